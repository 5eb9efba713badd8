"""Passes of fixed shapes: every item is in one, padding changes no loss, and compiled gradients are the others'."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertModel

from reproduction.tasks.cell import DrawnItems, make_fast, read_passes, warm_up
from reproduction.tasks.packed import LongItem
from reproduction.tasks.passes import Laying, fill
from reproduction.tasks.reader import LongReader
from reproduction.tasks.rows import Specials, lay
from reproduction.tasks.specs import NO_TAG_WEIGHT, WAYS, Kind
from vcc.config import VccConfig
from vcc.errors import ModelError
from vcc.hosts.wrap import wrap

CLS, SEP, PAD = 97, 98, 0
SPECIALS = Specials(CLS, SEP, PAD)
ROW, LENGTH, BATCH, LABELS = 16, 128, 4, 3
# More segments than are opened: if only padding stays closed, scores have a gradient that exact lengths have not.
LENGTHS = (15, 90, 31, 60, 14, 111, 47)


def items(kind: Kind) -> list[LongItem]:
    draw = np.random.default_rng(0)

    def tokens(n: int) -> Any:
        return draw.integers(3, 90, n).astype(np.uint16)

    def item(n: int) -> LongItem:
        asked = () if kind == "class" else tuple(tokens(1 + i % 2) for i in range(4))
        document = tokens(n)
        tags = document.astype(np.int64) % (LABELS + 1) if kind == "tag" else None
        return LongItem(f"d{n}", document, asked, int(draw.integers(LABELS)), tags)

    return [item(n) for n in LENGTHS]


def reader(kind: Kind, way: str, vips: int | None = None) -> LongReader:
    torch.manual_seed(0)
    sizes = dict(hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16)
    config = BertConfig(vocab_size=99, max_position_embeddings=ROW, pad_token_id=PAD, **sizes)
    encoder: Any = BertModel(config)
    if WAYS[way].compressed:
        encoder = wrap(encoder, VccConfig(scales=(4, 1), budget=(3,), window=ROW, dense_below=0, max_vips=vips))
    return LongReader(encoder, kind, LABELS)


def laying(kind: Kind, way: str, tokens: int = 256) -> Laying:
    return Laying.of(items(kind), kind, WAYS[way], SPECIALS, ROW, LENGTH, BATCH, tokens)


def plain_loss(model: LongReader, item: LongItem, kind: Kind, way: str) -> Tensor:
    """The loss of one item without padding: one row at a time, its states picked by hand."""
    states: dict[int, list[Tensor]] = {}
    for row in lay(item, kind, WAYS[way].layout, SPECIALS, ROW):
        inputs = {"input_ids": row.ids, "token_type_ids": row.types}
        if WAYS[way].compressed:
            inputs["vip_mask"] = row.vips
        hidden = model.encoder(**{name: torch.from_numpy(one)[None] for name, one in inputs.items()}).last_hidden_state
        for token, owner in row.places.tolist():
            states.setdefault(owner, []).append(hidden[0, token])
    if kind == "tag":
        assert item.tags is not None
        losses = [
            cross_entropy(model.head(own[0]), torch.tensor(tag)) * (1.0 if tag else NO_TAG_WEIGHT)
            for own, tag in ((own, item.tags[owner]) for owner, own in states.items())
        ]
        return torch.stack(losses).sum()
    stacked = [torch.stack(states[owner]) for owner in sorted(states)]
    logits = torch.stack([model.head(torch.cat([own.mean(0), own.amax(0)])) for own in stacked])
    return cross_entropy(logits[0] if kind == "class" else logits[:, 0], torch.tensor(item.label))


CASES = [
    (kind, way) for kind in ("class", "choice", "tag") for way in WAYS if kind != "choice" or way != "vcc-stretches"
]


@pytest.mark.parametrize("kind, way", CASES)
def test_padding_to_shapes_changes_no_loss(kind: Kind, way: str) -> None:
    plain = reader(kind, way).double().eval()
    given = laying(kind, way)
    padded = reader(kind, way, given.vips).double().eval()
    every = items(kind)
    expected = torch.stack([plain_loss(plain, item, kind, way) for item in every]).sum()
    found = torch.stack([padded.loss(batch) for _, batch in given.passes(every)]).sum()
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
    expected.backward()
    found.backward()
    for (name, one), other in zip(plain.named_parameters(), padded.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        assert one.grad is None or torch.allclose(one.grad, other.grad, rtol=1e-9, atol=1e-10), name


@pytest.mark.parametrize("way", WAYS)
def test_passes_have_a_few_shapes_and_every_item_once(way: str) -> None:
    given = laying("class", way)
    found = given.passes(items("class"))
    assert sorted(i for some, _ in found for i in some) == list(range(len(LENGTHS)))
    assert {tuple(batch.inputs["input_ids"].shape) for _, batch in found} <= set(given.shapes)
    assert len(given.shapes) <= 3
    assert [tuple(one.inputs["input_ids"].shape) for one in given.one_of_each(items("class"))] == list(given.shapes)
    wide = way in ("vcc", "vcc-stretches")
    assert all(n == ROW or wide for _, n in given.shapes) and (not wide or max(n for _, n in given.shapes) == LENGTH)


def test_a_pass_takes_what_fits_and_is_as_small_as_that_allows() -> None:
    shapes = [(8, 32), (4, 64), (2, 128)]
    assert list(fill([(1, 20), (1, 100), (1, 64), (1, 30)], shapes)) == [([1, 2], (2, 128)), ([3, 0], (8, 32))]
    chunks = [(4, 16), (8, 16), (16, 16)]
    assert list(fill([(9, 16), (2, 16), (8, 16), (7, 16)], chunks)) == [([0, 3], (16, 16)), ([2, 1], (16, 16))]
    assert list(fill([(3, 16), (1, 5)], chunks)) == [([0, 1], (4, 16))]
    with pytest.raises(ModelError, match="17 x 16"):
        list(fill([(17, 16)], chunks))


def test_shapes_that_no_item_needs_are_left_out() -> None:
    long = [replace(one, document=np.zeros(100, dtype=np.uint16)) for one in items("class")]
    assert Laying.of(long, "class", WAYS["vcc"], SPECIALS, ROW, LENGTH, BATCH, 256).shapes == ((2, 128),)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["chunks", "vcc"])
def test_nothing_is_compiled_after_the_warm_up(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original: Callable[..., Any] = torch.compile
    counter = CompileCounterWithBackend("aot_eager")

    def counted(function: Any, **options: Any) -> Any:
        return original(function, **{**options, "backend": counter, "options": None})

    monkeypatch.setattr(torch, "compile", counted)
    some = [item for item in items("class") if item.length in (14, 47)]
    given = Laying.of(some, "class", WAYS[way], SPECIALS, ROW, LENGTH, BATCH, 256)
    model = reader("class", way, given.vips)
    make_fast(model.encoder, WAYS[way])
    work = DrawnItems(model, some, given, 1, 0, "cpu")
    warm_up(work)
    before = counter.frame_count
    warm_up(work)
    model.train()
    for losses in islice(work.steps(0, None), 8):
        for loss in losses:
            loss.backward()
    read_passes(model, given.passes(some), "cpu")
    assert counter.frame_count == before > 0
    assert way == "vcc" or before == 2 * len(given.shapes)  # in training and in reading; the compiler's limit is 8


@pytest.mark.parametrize("way", ["chunks", pytest.param("vcc", marks=pytest.mark.slow)])
def test_compiled_gradients_are_those_of_the_uncompiled_model(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original: Callable[..., Any] = torch.compile

    def without_code(function: Any, **options: Any) -> Any:
        return original(function, **{**options, "backend": "aot_eager", "options": None})

    monkeypatch.setattr(torch, "compile", without_code)
    given = laying("class", way)
    first = given.passes(items("class"))[0][1]
    others = given.one_of_each(items("class"))
    passes = [first, next(one for one in others if one.inputs["input_ids"].shape != first.inputs["input_ids"].shape)]
    plain, fast = reader("class", way, given.vips).eval(), reader("class", way, given.vips).eval()
    make_fast(fast.encoder, WAYS[way])
    for model in (plain, fast):
        for batch in passes:
            model.loss(batch).backward()
    for (name, one), other in zip(plain.named_parameters(), fast.parameters(), strict=True):
        expected, found = (torch.zeros_like(p) if p.grad is None else p.grad for p in (one, other))  # of the pooler
        assert torch.allclose(found, expected, atol=1e-5), name
