"""A conversation is read once: each turn reads only what is new, and says what a fresh reading would."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.chat import models
from tests.documents import small_model
from vcc.chat.model import ChatModel, against_repeating, load_chat_model
from vcc.chat.talk import Talk
from vcc.decoders.model import TreeDecoder
from vcc.documents.document import Document
from vcc.errors import ModelError, UsageError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return models.saved(tmp_path_factory.mktemp("llm"))


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    return Document(small_model.document(), small_model.saved(tmp_path_factory.mktemp("finder")))


def lengths_read(model: ChatModel) -> list[int]:
    """Fills with how many tokens each forward is given."""
    seen: list[int] = []
    model.model.model.embed_tokens.register_forward_hook(lambda module, given, out: seen.append(given[0].shape[1]))
    return seen


def test_llamas_are_wrapped_and_others_talk_as_they_are(folder: str, tmp_path: Path) -> None:
    assert isinstance(load_chat_model(folder).model, TreeDecoder)
    other = load_chat_model(models.saved(tmp_path, "gpt2"))
    assert not isinstance(other.model, TreeDecoder)
    assert isinstance(other.reply([{"role": "user", "content": "w1 w2"}], 5), str)


def test_a_second_turn_reads_only_what_is_new_and_says_the_same(folder: str) -> None:
    model, fresh = load_chat_model(folder), load_chat_model(folder)
    messages = [{"role": "user", "content": "w1 w2 w3 " * 40}]
    first = model.reply(messages, 6)
    messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "w4 w5 ?"}]
    seen, ids = lengths_read(model), model.ids_of(messages)
    kept = len(model.seen) if torch.equal(model.seen, ids[: len(model.seen)]) else 0
    assert kept > 120, "the template must repeat what was said"
    second = model.reply(messages, 6)
    assert seen[0] == len(ids) - kept
    assert second == fresh.reply(messages, 6)


def test_another_conversation_starts_anew(folder: str) -> None:
    model = load_chat_model(folder)
    model.reply([{"role": "user", "content": "w1 w2 w3"}], 4)
    other = [{"role": "user", "content": "w9 w8"}]
    seen = lengths_read(model)
    said = model.reply(other, 4)
    assert seen[0] == len(model.ids_of(other)) and said == load_chat_model(folder).reply(other, 4)


def test_answers_come_with_their_passages_and_history_gives_way(folder: str, document: Document) -> None:
    model = load_chat_model(folder)
    talk = Talk(document, model, room=200, longest=5)
    for number in range(14):
        talk = talk.ask(f"w{number} w{number + 1} ?")
        said = talk.said[-1]
        assert said.passages and sum(model.length(one.text) for one in said.passages) <= 200
        assert all(document.text[one.start : one.end] == one.text for one in said.passages)
    assert len(talk.messages) < 2 * len(talk.said) and talk.messages[0]["role"] == "user"
    assert talk.messages[-1]["role"] == "assistant"
    said = talk.said[-1]
    assert set(said.text.split()) | set(" ".join(said.unsupported).split()) == set(talk.messages[-1]["content"].split())
    assert len(model.ids_of(talk.messages[:-1])) + 5 <= model.positions
    with pytest.raises(UsageError, match="too many for a model"):
        talk.ask("w1 " * 3000)


def test_a_short_document_is_given_whole(folder: str, document: Document) -> None:
    [passage] = Talk(document, load_chat_model(folder), 900, 5).ask("w1 ?").said[0].passages
    assert passage.text == document.text.strip()


def test_what_cannot_talk_is_refused(folder: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no chat template"):
        load_chat_model(models.saved(tmp_path / "plain", template=None))
    with pytest.raises(ModelError, match="too few"):
        load_chat_model(models.saved(tmp_path / "short", positions=64))
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_chat_model(str(tmp_path))
    with pytest.raises(UsageError, match="more than the 2048"):
        load_chat_model(folder).reply([{"role": "user", "content": "w1 " * 3000}], 5)


def test_the_answer_is_that_of_the_untouched_model(folder: str) -> None:
    """Below one piece nothing is closed: transformers' own greedy generation is the oracle."""
    model = load_chat_model(folder)
    messages = [{"role": "user", "content": "w1 w2 w3 w4"}]
    plain: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = model.ids_of(messages)
    kind = against_repeating(len(ids))
    out = plain.generate(ids[None], max_new_tokens=8, do_sample=False, logits_processor=kind, pad_token_id=2)
    assert model.reply(messages, 8) == model.tokenizer.decode(out[0, len(ids) :], skip_special_tokens=True).strip()


def test_a_document_that_was_read_whole_is_kept_between_runs(
    folder: str, document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ways = {"fresh": False, "first": True, "second": True}
    wrote, read = {}, {}
    for run, keep in ways.items():
        model = load_chat_model(folder, keep=keep)
        read[run] = lengths_read(model)
        talk = Talk(document, model, 900, 5)
        wrote[run] = [talk.ask(question).messages[-1] for question in ("w1 w2 ?", "w3 ?")]
    assert wrote["first"] == wrote["second"] == wrote["fresh"]
    text = model.length(document.text)
    assert text > 100
    assert sum(length > text // 2 for length in read["first"]) == 1, "the text is read for the first question only"
    assert max(read["second"]) < text // 2, "and not at all in another run"
    [file] = (tmp_path / "vcc" / "chat").iterdir()
    file.write_bytes(file.read_bytes()[:1000])  # damaged: read again
    model = load_chat_model(folder)
    again = lengths_read(model)
    assert Talk(document, model, 900, 5).ask("w1 w2 ?").messages[-1] == wrote["fresh"][0]
    assert max(again) > text // 2
