"""Sentences are checked by quotes first, then by a model's verdict head."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.documents.small_model import document as small_document
from tests.documents.small_model import saved
from vcc.documents.document import Document
from vcc.documents.verify import NO_HEAD, clause_around, has_head, sentences_of
from vcc.errors import ModelError, UsageError
from vcc.qa.verdicts import FILE


def with_head(folder: Path, verdict: int) -> Document:
    """A model whose head always gives the same verdict."""
    model = saved(folder)
    bias = torch.full((3,), -5.0)
    bias[verdict] = 5.0
    save_file({"weight": torch.zeros(3, 16), "bias": bias}, folder / FILE)
    return Document(small_document(), model)


@pytest.mark.parametrize(("number", "verdict"), list(enumerate(("supported", "contradicted", "not found"))))
def test_what_is_no_quote_is_judged_by_the_head(tmp_path: Path, number: int, verdict: str) -> None:
    (found,) = with_head(tmp_path, number).verify("w1 w2 w1")
    assert found.verdict == verdict and found.by == "model"
    assert (found.passage is None) == (verdict == "not found")
    if found.passage is not None:
        assert found.passage.text == small_document().text[found.passage.start : found.passage.end]
        assert found.passage.score == pytest.approx(1, abs=1e-3)


def test_a_quote_needs_no_head_and_no_model(tmp_path: Path) -> None:
    text = small_document()
    quoted = " ".join(text.text.split()[5:12]).rstrip(".")
    found = Document(text, str(tmp_path / "none")).verify(quoted.replace(".", ""))
    assert [one.verdict for one in found] == ["supported"] and found[0].by == "exact quote"


def test_without_a_head_the_rest_is_not_found_and_says_why(tmp_path: Path) -> None:
    document = Document(small_document(), saved(tmp_path))
    assert not has_head(document)
    (found,) = document.verify("w1 w2 w1")
    assert found.verdict == "not found" and found.reason == NO_HEAD


def test_a_supported_sentence_with_other_numbers_is_not_found(tmp_path: Path) -> None:
    (found,) = with_head(tmp_path, 0).verify("w1 77 w2")
    assert found.verdict == "not found" and "numbers" in found.reason


def test_a_head_of_another_width_is_an_error(tmp_path: Path) -> None:
    model = saved(tmp_path)
    save_file({"weight": torch.zeros(3, 8), "bias": torch.zeros(3)}, tmp_path / FILE)
    with pytest.raises(ModelError, match="does not fit"):
        Document(small_document(), model).verify("w1 w2 w1")


def test_a_text_is_checked_sentence_by_sentence() -> None:
    assert sentences_of("It rains. It snows!\n\n Mr. Fox sleeps") == ["It rains.", "It snows!", "Mr. Fox sleeps"]
    for empty in ("", " \n", "..."):
        with pytest.raises(UsageError):
            sentences_of(empty)
    with pytest.raises(UsageError, match="sentences"):
        sentences_of("It rains. " * 300)


@pytest.mark.parametrize(
    ("inside", "clause"),
    [
        ("keep it", "Each party shall keep it secret."),
        ("send", "(b) send it back;"),
        ("use it only\nfor", "(a) use it only\nfor work,"),
        ("secret. The other", "Each party shall keep it secret. The other party shall"),
        ("Last words", "Last words"),
    ],
)
def test_a_passage_is_a_whole_sentence_or_a_whole_item(inside: str, clause: str) -> None:
    text = (
        "It rains. Each party shall keep it secret. The other party shall (a) use it only\nfor work,\n"
        "(b) send it back;\n(c) burn it.\n\nLast words"
    )
    start = text.index(inside)
    first, last = clause_around(text, start, start + len(inside))
    assert text[first:last] == clause
