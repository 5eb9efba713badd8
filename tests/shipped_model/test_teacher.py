"""A teacher's places are those of the characters, and what it says of a question stands under the prepared number."""

import random
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, LlamaConfig, LlamaModel, PreTrainedTokenizerFast

from shipped_model import teacher
from shipped_model.data import ASKED, TWISTED, TokenQuestion, TokenSets, Unit, load, save
from shipped_model.practice import Practice, load_taught
from shipped_model.prepare import to_units
from tests.documents import small_model
from vcc.commands.options import call
from vcc.data.example import Example
from vcc.data.features import tokenize_text

SET = "tatqa_train"


def byte_tokenizer(texts: list[str]) -> Any:
    """Of SmolLM2's kind: a blank belongs to the token of the word that follows."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    )
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<|endoftext|>")


def examples(number: int = 6) -> list[Example]:
    """Two questions on each text, of another word each; two texts a group, one question without an answer."""
    chance, made = random.Random(3), []
    for i in range(number):
        words = chance.sample(small_model.WORDS, 14)
        text = " ".join(words) + "."
        for j, word in enumerate(chance.sample(words, 2)):
            start = text.index(word + " ") if word + " " in text else text.index(word + ".")
            made.append(
                Example(f"{i}-{j}", f"{word}?", text, (word,), ((start, start + len(word)),), group=f"g{i // 2}")
            )
    return [*made[:-1], replace(made[-1], answers=(), answer_spans=())]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Prepared tokens, and a teacher of two layers. Before each question stands one that was not asked as published."""
    asked, prepared, smollm = examples(), tmp_path / "prepared", tmp_path / "smollm"
    small_model.tokenizer().save_pretrained(prepared)
    units, _ = to_units(SET, asked, small_model.tokenizer())
    twisted = TokenQuestion(np.array([7, 8]), (), TWISTED)
    units = tuple(replace(unit, questions=tuple(x for q in unit.questions for x in (twisted, q))) for unit in units)
    save(TokenSets({SET: units}, {}), prepared / "tokens.npz.xz")
    tokenizer = byte_tokenizer([e.document for e in asked])
    tokenizer.save_pretrained(smollm)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
    )
    LlamaModel(config).save_pretrained(smollm)
    monkeypatch.setattr(teacher, "paragraphs", lambda data: {SET: asked, teacher.TESTED: asked})
    return prepared, smollm


def test_places_are_those_of_the_characters() -> None:
    text = "w3 w41,  w5\n(w17) w2. w59 w8?"
    new, known = byte_tokenizer([text]), small_model.tokenizer()
    ours, theirs = tokenize_text(text, known).offsets, tokenize_text(text, new).offsets
    places = teacher.places_of(theirs, ours)
    assert len(theirs) > len(ours) and places.shape == (2, len(theirs))
    holds = {at: i for i, (a, b) in enumerate(ours.tolist()) for at in range(a, b)}
    for (a, b), (first, last) in zip(theirs.tolist(), places.T.tolist(), strict=True):
        inside = [holds[at] for at in range(a, b) if at in holds]
        if inside:
            assert (first, last) == (inside[0], inside[-1]), text[a:b]


def test_what_a_teacher_says_is_written_for_every_prepared_question(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    prepared, smollm = folders
    line = f"--prepared {prepared} --smollm {smollm} --workers 0 --tokens 2048"
    call(teacher.teach, [*line.split(), "--data", "unused", "--minutes", "0"], "teacher")
    assert not (prepared / "taught.npz").exists(), "no minutes: tokens only"
    call(teacher.teach, [*line.split(), "--minutes", "0.01"], "teacher")
    units = load(prepared / "tokens.npz.xz").units[SET]
    said = load_taught(prepared / "taught.npz")[SET]
    questions = [(unit, q) for unit in units for q in unit.questions]
    assert said.places.shape == said.chances.shape == (2, len(questions), teacher.TOP)
    assert said.none.shape == (2, len(questions))
    for unit, q in questions:
        i = q.number
        if q.kind != ASKED:
            assert not said.chances[:, i].any() and not said.none[:, i].any(), "never asked"
            continue
        assert (said.places[:, i] < len(unit.ids)).all()
        assert (said.chances[:, i].sum(1) + said.none[:, i] <= 1.01).all()
        assert (np.diff(said.chances[:, i].astype(float)) <= 0).all(), "best first"
    assert "token_f1" in capsys.readouterr().out


class Knowing:
    """Points at the word of the passage that the question names, by decoding what it is given."""

    device = torch.device("cpu")

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __call__(self, ids: torch.Tensor, mask: torch.Tensor) -> Any:
        logits = torch.zeros(2, *ids.shape)
        for row, (some, real) in enumerate(zip(ids.tolist(), mask.tolist(), strict=True)):
            between, n = some.index(2), sum(real)
            word = self.tokenizer.decode(some[1:between]).removesuffix("?")
            ends = [len(self.tokenizer.decode(some[between + 1 : i + 1])) for i in range(between + 1, n)]
            text = self.tokenizer.decode(some[between + 1 : n])
            at = next(match.start() for match in re.finditer(rf"\b{word}\b", text))
            logits[0, row, between + 1 + next(i for i, end in enumerate(ends) if end > at)] = 20
            logits[1, row, between + 1 + next(i for i, end in enumerate(ends) if end >= at + len(word))] = 20
        return SimpleNamespace(start_logits=logits[0], end_logits=logits[1])


def test_what_is_said_of_a_question_stands_under_its_prepared_number(folders: tuple[Path, Path]) -> None:
    prepared, smollm = folders
    line = f"--prepared {prepared} --smollm {smollm} --data unused --minutes 0"
    call(teacher.teach, line.split(), "teacher")
    units = load(prepared / "tokens.npz.xz").units[SET]
    practice = Practice(load(prepared / "teacher.npz.xz").units, {}, (), {}, teacher.FRAME, tokens=2048)
    reader: Any = Knowing(AutoTokenizer.from_pretrained(smollm))
    said = teacher.label(reader, practice, SET, np.load(prepared / "teacher-places.npz")[SET], units)
    asked = [q for unit in units for q in unit.questions if q.spans]
    assert len(asked) == 11
    for q in asked:
        assert tuple(said["places"][:, q.number, 0].tolist()) == q.spans[0]
        assert (said["chances"][:, q.number, 0] > 0.99).all()
    assert teacher.test(reader, practice)["token_f1"] == pytest.approx(100)


def test_it_sees_what_comes_after_and_no_padding() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    reader = teacher.Reader(LlamaModel(config)).eval()
    ids = torch.randint(3, 50, (1, 9))
    mask = torch.ones(1, 9, dtype=torch.bool)
    mask[:, 7:] = False
    later, padding = ids.clone(), ids.clone()
    later[0, 6] = padding[0, 8] = 2
    with torch.no_grad():
        own, seen, unseen = (reader(x, mask).start_logits[0, 0].item() for x in (ids, later, padding))
    assert own != seen and own == pytest.approx(unseen, abs=1e-6)


def test_other_data_than_the_prepared_are_refused(folders: tuple[Path, Path]) -> None:
    units = load(folders[0] / "tokens.npz.xz").units
    tokenizers = small_model.tokenizer(), byte_tokenizer(["w1 w2"])
    with pytest.raises(ValueError, match="12 questions were prepared"):
        teacher.read(SET, examples()[1:], units, *tokenizers)


def test_the_clock_ends_the_lessons_and_the_loss_falls() -> None:
    ids = np.arange(10, 30)
    units = {SET: tuple(Unit(np.roll(ids, i), (TokenQuestion(np.array([5 + i]), ((i, i + 1),)),), i) for i in range(4))}
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    practice = Practice(units, {SET: 1.0}, (), {}, teacher.FRAME, alone=1.0, tokens=512)
    losses = teacher.learn(teacher.Reader(LlamaModel(config)), practice, 0.04, 5e-3, 0)
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:3])
