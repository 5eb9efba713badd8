"""Rows: the VIPs are the stated ones, every token of a document is read once, and states belong to their labels."""

import numpy as np
import pytest
import torch

from reproduction.tasks.packed import LongItem
from reproduction.tasks.reader import pooled
from reproduction.tasks.rows import LongBatch, Specials, collate, lay
from reproduction.tasks.specs import LONG_TASKS, NO_TAG_WEIGHT, WAYS, Kind

CLS, SEP, PAD = 101, 102, 0
SPECIALS = Specials(CLS, SEP, PAD)


def tokens(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint16)


DOCUMENT = np.arange(1000, 1025, dtype=np.uint16)  # 25 tokens
CLASS = LongItem("d", DOCUMENT, (), 1)
PAIR = LongItem("d", DOCUMENT, (tokens(7, 8),), 2)
CHOICE = LongItem("d", DOCUMENT, (tokens(7, 8), tokens(11), tokens(12, 13)), 1)
TAGGED = LongItem("d", DOCUMENT, (tokens(21), tokens(22, 23)), 0, np.arange(25) % 3)


def batch_of(items: list[LongItem], kind: Kind, way: str, shape: tuple[int, int] = (6, 64)) -> LongBatch:
    laid = [lay(item, kind, WAYS[way].layout, SPECIALS, 16) for item in items]
    return collate(items, laid, kind, WAYS[way].compressed, PAD, shape)


def read_ids(batch: LongBatch) -> torch.Tensor:
    return batch.inputs["input_ids"].flatten()[batch.places]


def vips(item: LongItem, kind: Kind, way: str) -> list[int]:
    (row,) = lay(item, kind, WAYS[way].layout, SPECIALS, 16)
    return row.ids[row.vips == 1].tolist()


def test_vips_are_cls_for_classes() -> None:
    assert vips(CLASS, "class", "vcc") == [CLS]


def test_vips_are_the_statement_for_pairs() -> None:
    assert vips(PAIR, "class", "vcc") == [CLS, 7, 8, SEP]


def test_vips_are_question_and_choices_for_multiple_choice() -> None:
    assert vips(CHOICE, "choice", "vcc") == [CLS, 7, 8, SEP, 11, SEP, 12, 13, SEP]


def test_vips_are_the_names_of_tags_for_tagging() -> None:
    assert vips(TAGGED, "tag", "vcc") == [CLS, 21, SEP, 22, 23, SEP]


@pytest.mark.parametrize("item, kind", [(CLASS, "class"), (TAGGED, "tag")])
def test_vips_are_each_cls_for_stretches(item: LongItem, kind: Kind) -> None:
    (row,) = lay(item, kind, "stretches", SPECIALS, 16)
    assert row.ids[row.vips == 1].tolist() == [CLS, CLS] and np.flatnonzero(row.vips).tolist() == [0, 16]
    chunks = lay(item, kind, "chunks", SPECIALS, 16)
    assert row.ids.tolist() == [token for chunk in chunks for token in chunk.ids]


@pytest.mark.parametrize("way", WAYS)
def test_only_compressed_ways_get_a_vip_mask(way: str) -> None:
    batch = batch_of([CLASS, CLASS], "class", way)
    assert ("vip_mask" in batch.inputs) == WAYS[way].compressed
    if WAYS[way].compressed:
        assert not (batch.inputs["vip_mask"] * (1 - batch.inputs["attention_mask"])).any()


@pytest.mark.parametrize("way", WAYS)
def test_rows_without_an_item_have_one_token_that_nothing_reads(way: str) -> None:
    batch = batch_of([CLASS], "class", way, (5, 64))
    used = 2 if way == "chunks" else 1
    assert all(value.shape == (5, 64) for value in batch.inputs.values())
    assert batch.inputs["attention_mask"].sum(1)[used:].tolist() == [1] * (5 - used)
    assert (batch.inputs["input_ids"][used:, 0] == CLS).all() and (batch.places < used * 64).all()


@pytest.mark.parametrize("layout", ["chunks", "whole", "stretches"])
@pytest.mark.parametrize("item, kind", [(CLASS, "class"), (PAIR, "class"), (CHOICE, "choice"), (TAGGED, "tag")])
def test_every_token_is_in_one_row(layout: str, item: LongItem, kind: Kind) -> None:
    rows = lay(item, kind, layout, SPECIALS, 16)  # type: ignore[arg-type]
    read = [token for row in rows for token in row.ids if token >= 1000]
    assert read == DOCUMENT.tolist()
    assert layout != "chunks" or all(len(row.ids) <= 16 for row in rows)


def test_truncation_reads_the_first_tokens() -> None:
    (row,) = lay(PAIR, "class", "first", SPECIALS, 16)
    assert row.ids.tolist() == [CLS, 7, 8, SEP, *range(1000, 1011), SEP]
    assert row.types.tolist() == [0] * 4 + [1] * 12


@pytest.mark.parametrize("way", LONG_TASKS["tags"].ways)
def test_tags_are_read_from_their_tokens(way: str) -> None:
    batch = batch_of([TAGGED, TAGGED], "tag", way)
    read = read_ids(batch)
    assert (read == torch.from_numpy(np.tile(DOCUMENT, 2).astype(np.int64))[batch.owners]).all()
    assert len(batch.labels) == batch.predictions == 50 and len(read) == (28 if way == "truncated" else 50)
    weights = [NO_TAG_WEIGHT if label == 0 else 1.0 for label in batch.labels[batch.owners]]
    assert batch.number == pytest.approx(sum(weights))


@pytest.mark.parametrize("way", LONG_TASKS["choices"].ways)
def test_choices_are_read_from_their_tokens_and_separators(way: str) -> None:
    batch = batch_of([CHOICE, CHOICE], "choice", way, (8, 64))
    read = [[int(token) for token in read_ids(batch)[batch.owners == owner]] for owner in range(batch.predictions)]
    times = 1 if way != "chunks" else 5  # six tokens fit behind the texts
    assert read == [[11, SEP] * times, [12, 13, SEP] * times] * 2


def test_pooling_is_mean_and_maximum_of_each_owner() -> None:
    states = torch.randn(5, 3, dtype=torch.float64)
    found = pooled(states, torch.tensor([0, 1, 0, 0, 1]), 2)
    for owner, own in enumerate((states[[0, 2, 3]], states[[1, 4]])):
        assert torch.allclose(found[owner], torch.cat([own.mean(0), own.amax(0)]))
