"""Read once, ask many: questions continue a text that was read before, in a batch, or in another process."""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import vcc
from tests.decoders.models import CLOSED, OPEN, SMALL, ids, tiny
from vcc.errors import DocumentError, UsageError

GREEDY = {"max_new_tokens": 12, "do_sample": False}


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_questions_to_an_open_document_get_the_untouched_models_answers(family: str, each_way: str) -> None:
    model, text = tiny(family), ids(1, 75)
    questions = [ids(1, n, seed=n)[0] for n in (5, 9, 2)]
    document = vcc.wrap(model, OPEN).read(text, chunk=20)
    together = document.ask(questions, **GREEDY)
    for question, answer in zip(questions, together, strict=True):
        whole = torch.cat([text, question[None]], 1)
        expected = model.generate(whole, **GREEDY)[0, whole.shape[1] :]
        assert torch.equal(answer, expected)
        assert torch.equal(document.ask(question, **GREEDY)[0], expected)


def test_asking_a_closed_document_does_not_change_it() -> None:
    document = vcc.wrap(tiny(), CLOSED).read(ids(1, 75)[0])
    trees = [layer.tree for layer in document.cache.layers]
    first = document.ask(ids(1, 5), **GREEDY)
    document.ask(ids(4, 30, seed=3), max_new_tokens=40, do_sample=False)  # long enough to make the branch grow
    assert torch.equal(document.ask(ids(1, 5), **GREEDY), first)
    assert trees == [layer.tree for layer in document.cache.layers]


def test_branches_that_grow_do_not_meet() -> None:
    """Two continuations share the text's trees until what they add joins them."""
    wrapped = vcc.wrap(tiny(), CLOSED)
    document = wrapped.read(ids(1, 75))

    def go_on(cache: Any, seed: int, n: int) -> torch.Tensor:
        with torch.no_grad():
            return torch.cat(
                [wrapped(token, past_key_values=cache).logits for token in ids(1, n, seed=seed).split(1, 1)]
            )

    alone = document.branch()
    go_on(alone, 3, 20)
    expected = go_on(alone, 4, 5)
    first, second = document.branch(), document.branch()
    go_on(first, 3, 20)
    go_on(second, 5, 20)
    assert first.layers[0].tree.lengths > document.cache.layers[0].tree.lengths
    torch.testing.assert_close(go_on(first, 4, 5), expected, rtol=0, atol=1e-12)


def test_reading_is_exact_however_it_is_parted() -> None:
    """Also where the last part is short enough to count as a step."""
    wrapped, text = vcc.wrap(tiny(), CLOSED), ids(1, 75)
    caches = [wrapped.read(text, chunk=chunk).cache for chunk in (75, 70, 16)]
    for cache in caches[1:]:
        for layer, other in zip(cache.layers, caches[0].layers, strict=True):
            torch.testing.assert_close(layer.in_columns()[0], other.in_columns()[0], rtol=0, atol=1e-12)


NEW_PROCESS = """
import sys, torch, vcc
from tests.decoders.models import CLOSED, GREEDY_SETTINGS, ids, tiny
document = vcc.wrap(tiny(), CLOSED).load_document(sys.argv[1])
print(document.ask(ids(2, 7, seed=9), **GREEDY_SETTINGS).tolist())
"""


def test_a_saved_document_answers_the_same_in_a_new_process(tmp_path: Path) -> None:
    path = tmp_path / "text.safetensors"
    document = vcc.wrap(tiny(), CLOSED).read(ids(1, 75))
    document.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["text.safetensors"]
    script = NEW_PROCESS.replace("GREEDY_SETTINGS, ", "").replace("GREEDY_SETTINGS", repr(GREEDY))
    run = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(run, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True)
    assert done.stdout.splitlines()[-1] == str(document.ask(ids(2, 7, seed=9), **GREEDY).tolist())


@pytest.mark.parametrize("leaves", ["disk", "cpu", "device"])
def test_leaves_may_be_anywhere(tmp_path: Path, leaves: str) -> None:
    wrapped = vcc.wrap(tiny("gemma3"), CLOSED)
    document = wrapped.read(ids(1, 75), leaves="cpu")
    document.save(tmp_path / "text")
    loaded = wrapped.load_document(tmp_path / "text", leaves=leaves, verify=True)
    settings = {"max_new_tokens": 40, "do_sample": False}  # more than a piece joins the tree
    assert torch.equal(loaded.ask(ids(1, 5), **settings), document.ask(ids(1, 5), **settings))


def test_other_models_settings_and_damage_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    wrapped = vcc.wrap(tiny(), CLOSED)
    wrapped.read(ids(1, 75)).save(path)
    with pytest.raises(DocumentError, match="another model"):
        vcc.wrap(tiny(seed=5), CLOSED).load_document(path)
    with pytest.raises(DocumentError, match="other settings"):
        vcc.wrap(tiny(), vcc.DecoderConfig(**SMALL | {"first": 4})).load_document(path)
    more = vcc.wrap(tiny(), vcc.DecoderConfig(**SMALL, budget=5)).load_document(path)  # another budget is no other tree
    assert more.ask(ids(1, 5), **GREEDY).shape == (1, 12)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:5], b"", whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]):
        path.write_bytes(damaged)
        with pytest.raises(DocumentError, match="text"):
            wrapped.load_document(path)
    with pytest.raises(DocumentError, match="no such file"):
        wrapped.load_document(tmp_path / "nothing")


def header_of(whole: bytes) -> dict[str, Any]:
    return json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])


def with_header(whole: bytes, header: dict[str, Any]) -> bytes:
    size = int.from_bytes(whole[:8], "little")
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + whole[8 + size :]


def test_every_bit_of_the_header_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "text"
    wrapped = vcc.wrap(tiny(), CLOSED)
    wrapped.read(ids(1, 40)).save(path)
    whole = path.read_bytes()
    size = 8 + int.from_bytes(whole[:8], "little")
    draw = random.Random(0)
    for bit in draw.sample(range(8 * size), 400) + list(range(64)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(DocumentError, match="text"):
            wrapped.load_document(path)


def test_every_edit_of_the_header_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "text"
    wrapped = vcc.wrap(tiny(), CLOSED)
    wrapped.read(ids(1, 40)).save(path)
    whole = path.read_bytes()

    def edited(change: Callable[[dict[str, Any], dict[str, Any]], None]) -> bytes:
        header = header_of(whole)
        about = json.loads(header["__metadata__"]["vcc"])
        change(header, about)
        header["__metadata__"]["vcc"] = json.dumps(about)
        return with_header(whole, header)

    path.write_bytes(edited(lambda header, about: None))
    assert wrapped.load_document(path).ask(ids(1, 5), **GREEDY).shape == (1, 12)
    edits: list[Callable[[dict[str, Any], dict[str, Any]], Any]] = [
        lambda header, about: about["layers"][0].update(length=41),
        lambda header, about: about["layers"][1].update(tokens=[39]),
        lambda header, about: about["layers"][2].update(lengths=[0]),
        lambda header, about: about["layers"].pop(),
        lambda header, about: about["settings"].update(first=4),
        lambda header, about: about.pop("text"),
        lambda header, about: about.update(layers=None),
        lambda header, about: header.update(other=header.pop("0.columns")),
        lambda header, about: header["0.keys"].update(shape=header["0.keys"]["shape"][::-1]),
        lambda header, about: header["1.columns"].update(dtype="U64"),
        lambda header, about: header["__metadata__"].pop("sha256"),
        lambda header, about: header.pop("__metadata__") and header.update(__metadata__={"vcc": "[" * 100_000}),
    ]
    for edit in edits:
        path.write_bytes(edited(lambda header, about, edit=edit: edit(header, about)))  # type: ignore[misc]
        with pytest.raises(DocumentError, match="text"):
            wrapped.load_document(path)
    brackets = header_of(whole)
    brackets["__metadata__"]["vcc"] = "[" * 100_000
    path.write_bytes(with_header(whole, brackets))
    with pytest.raises(DocumentError, match="header"):
        wrapped.load_document(path)


def test_what_is_no_text_and_no_question_is_refused() -> None:
    wrapped = vcc.wrap(tiny(), CLOSED)
    for text in (ids(2, 20), ids(1, 20)[:, :0], ids(1, 20).double()):
        with pytest.raises(UsageError, match="one text"):
            wrapped.read(text)
    document = wrapped.read(ids(1, 20))
    for question in ("who?", [], ids(1, 20)[:, :0]):
        with pytest.raises(UsageError, match="question"):
            document.ask(question)
