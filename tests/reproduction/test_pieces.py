"""Texts in pieces with ids: nothing is lost but what is counted, answers stay answers, and new ids change little."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForQuestionAnswering

from reproduction.small import jobs, pieces
from reproduction.small.facts import ShuffledHops, facts_of, shuffled
from reproduction.small.layout import SmallLayout
from reproduction.small.learning import MaskedWords
from reproduction.small.pieces import TYPES, PieceRule, PieceTokenizer
from reproduction.small.questions import HiddenQuestions, QuestionTokens
from reproduction.small.variants import reading
from tests.reproduction import tiny
from tests.reproduction.test_facts import HUBS, RECORD
from vcc.data.answers import predict_spans
from vcc.data.example import Example
from vcc.data.features import ExampleTokenizer, Features, Frame, Row
from vcc.data.pretrain import MaskedLM
from vcc.hosts import load
from vcc.tasks import TASKS
from vcc.tasks.hotpotqa import multi_hop_example

SMALL = replace(tiny.SMALL, reader=True)
LINES = "\n".join(tiny.text(7 * i, 9) for i in range(12))  # 108 tokens
WORDS = [(word.start(), word.end()) for word in re.finditer(r"\S+", LINES)]
ANSWERS = (WORDS[0], (WORDS[8][0], WORDS[9][1]), WORDS[-1])  # the second goes on in the next line
EXAMPLE = Example("a", "what w3 ?", LINES, tuple(LINES[a:b] for a, b in ANSWERS), ANSWERS)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> SmallLayout:
    folder = tmp_path_factory.mktemp("pieces")
    made = SmallLayout(tiny.packed(folder, ("hotpotqa", "fairytale_choices")), folder / "out", SMALL)
    jobs.begin(made)
    jobs.read(made, "start")
    return made


@pytest.fixture(scope="module")
def tokenizer(layout: SmallLayout) -> object:
    return load.load_tokenizer(layout.start(), local=True)


def cut_up(features: Features, frame: Frame) -> Iterator[tuple[int, list[int]]]:
    """The id and the tokens of each piece, read off the row token by token."""
    ids, types = features.row.input_ids.tolist(), features.row.token_type_ids.tolist()
    place = features.row.vip_count
    while place < len(ids):
        end = ids.index(int(frame.after[0]), place)
        assert ids[place] == frame.before[0] and len(set(types[place : end + 1])) == 1
        yield types[place], ids[place + 1 : end]
        place = end + 1


def test_a_document_in_pieces_is_the_document(tokenizer: object) -> None:
    frame = Frame.of(tokenizer)
    plain = ExampleTokenizer(tokenizer, "span", 256)
    for number in range(20):  # the number of pieces and their ids follow the name
        example = replace(EXAMPLE, id=str(number))
        ours, theirs = PieceTokenizer(tokenizer, "span", 256, PieceRule(frame, 32))(example), plain(example)
        found = list(cut_up(ours, frame))
        assert 4 <= len(found) <= 13 and len({name for name, _ in found}) == len(found)
        assert all(0 < name < TYPES for name, _ in found)
        vips = theirs.row.vip_count
        assert ours.row.input_ids[:vips].tolist() == theirs.row.input_ids[:vips].tolist()
        assert not ours.row.token_type_ids[:vips].any() and ours.row.vip_count == vips
        assert sum((ids for _, ids in found), []) == theirs.row.input_ids[vips:-1].tolist()
        begins = [LINES[int(ours.row.offsets[place, 0]) - 1] for place in piece_starts(ours, frame)[1:]]
        assert begins.count("\n") >= len(begins) - 2, "pieces begin with lines where lines are short enough"


def piece_starts(features: Features, frame: Frame) -> list[int]:
    """The first token of each piece."""
    ids, vips = features.row.input_ids, features.row.vip_count
    return [i + 1 for i in range(vips, len(ids)) if ids[i] == frame.before[0]]


def test_answers_are_found_in_the_text_again_even_if_a_piece_begins_inside_them(tokenizer: object) -> None:
    frame, crossed = Frame.of(tokenizer), 0
    for number in range(20):
        features = PieceTokenizer(tokenizer, "span", 256, PieceRule(frame, 32))(replace(EXAMPLE, id=str(number)))
        texts = []
        for first, last in features.spans:
            starts, ends = (torch.zeros(features.length) for _ in "se")
            starts[first] = ends[last] = 9
            texts.append(predict_spans(EXAMPLE, features, starts, ends, allow_none=False).text)
            crossed += any(first < place <= last for place in piece_starts(features, frame))
        assert texts == list(EXAMPLE.answers)
    assert crossed


def test_what_makes_room_for_special_tokens_is_counted(tokenizer: object) -> None:
    frame = Frame.of(tokenizer)
    plain = ExampleTokenizer(tokenizer, "span", 256)(EXAMPLE)
    for length in (115, 120):
        features = PieceTokenizer(tokenizer, "span", length, PieceRule(frame, 32))(EXAMPLE)
        kept = sum(len(ids) for _, ids in cut_up(features, frame))
        assert features.length <= length and kept + features.cut_tokens + features.row.vip_count + 1 == plain.length
        assert features.cut_answers == 1 and len(features.spans) == 2


@pytest.mark.parametrize("record", [RECORD, HUBS])
def test_facts_begin_their_sentences_in_pieces(record: object, tokenizer: object) -> None:
    tokenize = PieceTokenizer(tokenizer, "span", 256, PieceRule(Frame.of(tokenizer), 32))
    for draw in range(3):
        features = ShuffledHops([record], tokenize, 0)[draw]  # type: ignore[list-item]
        mixed = shuffled(record, draw, 0)  # type: ignore[arg-type]
        document = multi_hop_example(mixed).document
        starts = [document[int(features.row.offsets[place, 0]) :] for place, *_ in features.facts]
        assert starts == [document[fact.start :] for fact in facts_of(mixed)]


def test_hidden_paragraphs_are_not_cut_and_fill_the_row(layout: SmallLayout, tokenizer: object) -> None:
    frame = Frame.of(tokenizer)
    examples = TASKS["squad"]().load("train", str(layout.packed / "data"))
    tokens = QuestionTokens.of(examples, tokenizer)
    alone = HiddenQuestions(tokens, frame, 32, 0, hidden=False)
    cut = HiddenQuestions(tokens, frame, 128, 0, hidden=True, pieces=PieceRule(frame, 96))
    whole = {tuple(tokens.paragraph(i).tolist()) for i in range(len(tokens.owners))}
    for i in range(2 * len(cut)):
        row, (first, last) = cut[i].row, cut[i].spans[0]
        assert len(row.input_ids) <= 128 and cut[i].cut_tokens == 0
        assert row.vip_count + sum(len(ids) + 2 for _, ids in cut_up(cut[i], frame)) == len(row.input_ids) > 120
        a, b = alone[i].spans[0]
        assert row.input_ids[first : last + 1].tolist() == alone[i].row.input_ids[a : b + 1].tolist()
        begun = [tuple(row.input_ids[p : p + 20].tolist()) for p in piece_starts(cut[i], frame)]
        assert all(ids in whole for ids in begun if ids != begun[-1]), "the last paragraph may be cut"


def test_masked_words_are_those_of_the_text_in_another_order(tokenizer: object) -> None:
    frame, words = Frame.of(tokenizer), MaskedLM.of(tokenizer, ratio=0.1)
    permuted = pieces.PermutedWords(words, PieceRule(frame, 32))
    text = np.arange(permuted.raw_length(128)) + 10  # no token twice
    numbers, orders = set(), set()
    for seed in range(60):
        found = permuted.hide_words(text, np.random.default_rng(seed))
        assert len(found.input_ids) == 128 and found.vip_mask.sum() > 9
        ids = np.where(found.vip_mask == 1, found.labels, found.input_ids)
        row = Row(ids, found.token_type_ids, np.zeros((128, 2), dtype=np.int32), 0)
        names, parts = zip(*cut_up(Features("", row), frame), strict=True)
        assert len(set(names)) == len(parts)
        assert sum(sorted(parts), []) == text[: 128 - 2 * len(parts)].tolist()
        numbers.add(len(parts))
        orders.add(tuple(np.argsort([part[0] for part in parts])) == tuple(range(len(parts))))
    assert numbers == set(range(4, 17)) and orders == {False} and permuted.raw_length(4096) == 4096 - 2 * 128


def test_new_ids_begin_as_the_type_of_a_document_and_differ(layout: SmallLayout) -> None:
    plain, ours = (reading(name, layout.reader(), 128) for name in ("vcc", "vcc-pieces"))
    old, new = (model.base_model.embeddings.token_type_embeddings.weight for model in (plain, ours))
    assert new.shape[0] == ours.config.type_vocab_size == TYPES and torch.equal(new[0], old[0])
    moved = (new[1:] - old[1]).detach()
    assert 0.015 < float(moved.std()) < 0.025 and float(moved.mean(0).abs().max()) < 0.01
    assert len(new.unique(dim=0)) == TYPES


@pytest.mark.parametrize("name", ["vcc-pieces", pytest.param("vcc-near-2-pieces", marks=pytest.mark.slow)])
def test_a_model_learns_its_ids_from_the_reader_to_scores(layout: SmallLayout, name: str) -> None:
    before = reading(name, layout.reader(), 128).base_model.embeddings.token_type_embeddings.weight
    for task in ("squad_haystack", "fairytale_choices"):
        jobs.tune(layout, name, task)
        found = json.loads(layout.scores(name, task).read_text())
        assert found["length"] == 128 and all(0 <= value <= 100 for value in found["metrics"].values())
    folder = layout.tuned(name, "squad_haystack")
    trained, _ = load.load_model(folder, AutoModelForQuestionAnswering, local=True)
    assert not torch.equal(trained.base_model.embeddings.token_type_embeddings.weight[2:], before[2:])


def test_pretraining_reads_ids(layout: SmallLayout, tmp_path: Path) -> None:
    own = SmallLayout(layout.packed, tmp_path, replace(SMALL, reader=False))
    shutil.copytree(layout.start(), own.start())
    tokenizer = load.load_tokenizer(own.start(), local=True)
    cut = jobs.pieces_of(own, "vcc-pieces", tokenizer)
    data = jobs.sequences(own, "train", tokenizer, 128, 0, 8, pieces=cut)
    batch = MaskedWords(tokenizer.pad_token_id, "vip_mask").collate([data[0], data[1]])
    assert batch["token_type_ids"].tolist() == [data[i].token_type_ids.tolist() for i in range(2)]
    jobs.pretrain(own, "vcc-pieces")
    learned = json.loads((own.pretrained("vcc-pieces") / "curve.json").read_text())["curve"]
    assert all(2.5 < point["log_perplexity"] < 8 for point in learned if "log_perplexity" in point)  # log 208: 5.3
    jobs.answer(own, "vcc-pieces")
    assert load.load_config(own.answering("vcc-pieces"), local=True).type_vocab_size == TYPES
