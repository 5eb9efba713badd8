"""`benchmarks.decoder_choices`: its ways read what they say they do, and today's is what the library does."""

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.decoder_choices import (
    TODAY,
    WAYS,
    Bench,
    Curves,
    Measured,
    Runner,
    Way,
    best,
    coarse_nodes,
    concave,
    dealt,
    evenly,
    learn,
    leaves_for,
    measure,
    outliers,
    place_of,
    rows_read,
    table,
)
from tests.decoders.read_prefix import NEW, N
from tests.decoders.read_prefix import model as model
from tests.decoders.read_prefix import prefix as prefix
from tests.decoders.read_prefix import text as text
from vcc.decoders.cache import TreeCache
from vcc.decoders.config import DecoderConfig
from vcc.decoders.layer import TreeLayer
from vcc.decoders.wrap import wrap_decoder

# 320 tokens of the prefix are in the tree, and none joins it while the new ones are read
THREE = Way("three", (64, 16, 1), coarse=0.4)


@pytest.fixture(scope="module")
def runner(model: Any, prefix: Any) -> Runner:
    return Runner(model, prefix)


def counts(runner: Runner, number: int) -> torch.Tensor:
    return torch.full((len(runner.prefix), runner.prefix[0][0].shape[1]), number)


def mean(parts: list[torch.Tensor]) -> float:
    return float(torch.cat(parts).mean())


@pytest.mark.parametrize(("way", "leaves"), [(TODAY, 4), (THREE, 3), (Way("larger", (32, 1)), 3)])
@torch.inference_mode()
def test_a_way_of_the_library_is_what_the_library_does(
    way: Way, leaves: int, model: Any, text: torch.Tensor, runner: Runner
) -> None:
    coarse = coarse_nodes(way, runner.keep(way, 0))
    budget = (coarse, leaves) if coarse else (leaves,)
    config = DecoderConfig(scales=way.scales, budget=budget, block=NEW)
    wrapped: Any = wrap_decoder(model, config)
    cache = TreeCache(TreeLayer.filled(config, k, v) for k, v in runner.prefix)
    expected = wrapped(text[None, N:], past_key_values=cache).logits[0]
    found, measured = runner.run(text[N:], way, counts(runner, leaves))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    report = wrapped.vcc_report()
    rows = sum(layer.rows for layer in report) / len(report)  # with the new tokens, without keys of opened nodes
    assert mean(measured.rows) == pytest.approx(rows - (NEW + 1) / 2 + sum(budget) / 2, abs=0.01)


@torch.inference_mode()
def test_all_leaves_open_are_dense_attention(model: Any, text: torch.Tensor, runner: Runner) -> None:
    expected = model(text[None]).logits[0, N:]
    found, measured = runner.run(text[N:], None, None)
    torch.testing.assert_close(found, expected, atol=2e-2, rtol=2e-2)  # the prefix is kept in 16 bits
    assert mean(measured.recall) == 1.0 and mean(measured.mass) == pytest.approx(1.0)


@pytest.mark.parametrize("way", [way for way in WAYS if not way.by_head], ids=lambda way: way.name)
def test_rows_are_counted_as_they_are_read(way: Way, text: torch.Tensor, runner: Runner) -> None:
    kept = runner.keep(way, 0)
    measured = runner.run(text[N:], way, counts(runner, 2))[1]
    assert mean(measured.rows) == pytest.approx(rows_read(way, kept, 2))
    assert leaves_for(way, kept, rows_read(way, kept, 2)) == pytest.approx(2)


def test_rows_of_a_hand_counted_prefix(runner: Runner) -> None:
    # 80 outside the tree, 20 leaves with a mean and 16 of the 2 * 64 numbers of a row each, 3 of them opened.
    width = 2 * runner.prefix[0][0].shape[3]
    spread = runner.keep(TODAY, 0).above[0].spreads.shape[2] / width
    assert rows_read(TODAY, runner.keep(TODAY, 0), 3) == pytest.approx(80 + 17 + 3 * (16 + 0.5) + 20 * spread)
    # 5 nodes of 64, of which 2 are opened: 8 leaves, of which 3 are opened.
    expected = 80 + 3 + 2 * 0.5 + 5 + 3 * (16 + 0.5) + (5 + 8) * spread
    assert rows_read(THREE, runner.keep(THREE, 0), 3) == pytest.approx(expected)


def test_a_second_look_at_no_more_leaves_changes_nothing(text: torch.Tensor, runner: Runner) -> None:
    once, twice = (
        runner.run(text[N:], way, counts(runner, 3))[1] for way in (TODAY, Way("twice", (16, 4, 1), looks=1))
    )
    assert mean(twice.recall) == pytest.approx(mean(once.recall))


def test_budgets_by_head_keep_the_rows_and_raise_recall_where_they_were_learned(
    text: torch.Tensor, runner: Runner
) -> None:
    ways, curves = [TODAY, Way("by head", by_head=True)], Curves()
    rows = rows_read(TODAY, runner.keep(TODAY, 0), 4)
    learn(runner, text[N:], ways, rows, curves)
    lines = measure(runner, text[N:], ways, rows, curves)
    same, by_head = lines.values()
    assert by_head.most > by_head.fewest >= 2 and by_head.opened == same.opened == 4
    assert by_head.recall > same.recall and by_head.rows == pytest.approx(same.rows)
    assert table({name: [line] for name, line in lines.items()}).count("\n") == 3


def test_leaves_are_dealt_where_they_add_most() -> None:
    assert evenly(2.5, 4).tolist() == [2, 3, 2, 3]
    curves = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5], [0.5, 0.6, 0.6, 0.6, 0.6], [0.0, 0.1, 0.15, 0.5, 0.5]])
    assert dealt(curves, 3).tolist() == [3, 2, 4]  # the third's second and fourth leaf add 0.5 / 4 each
    flat = torch.tensor([[0.1, 0.2, 0.8, 0.8, 0.9]])
    torch.testing.assert_close(concave(flat), torch.tensor([[0.8 / 3, 1.6 / 3, 0.8, 0.85, 0.9]]))


def test_the_best_are_as_many_as_each_head_may_open() -> None:
    share = torch.tensor([[[0.1, 0.5, 0.3, -1.0]], [[0.4, 0.1, 0.2, 0.3]]])
    assert best(share, torch.tensor([4, 2])).tolist() == [[[True, True, True, False]], [[True, False, False, True]]]


def test_outliers_are_farthest_from_their_mean_and_the_others_stay_in_text_order() -> None:
    keys = torch.tensor([[[0.0], [9.0], [0.0], [5.0], [4.0], [6.0], [5.0], [-1.0]]])
    means = torch.tensor([[[3.5], [3.5]]])
    chosen, rest = outliers(keys, means, torch.tensor([[7, 3, 5, 1, 0, 2, 4, 6]]), 2)
    assert chosen.tolist() == [[1, 7]] and rest.tolist() == [[4, 3, 5, 6, 2, 0]]


def test_an_answer_is_found_in_its_context(text: torch.Tensor, runner: Runner) -> None:
    at = place_of(text[200:204], text[:N])
    assert at.tolist() == [200, 201, 202, 203]
    dense: Measured = runner.run(text[N:], None, None, at=at)[1]
    closed = runner.run(text[N:], TODAY, counts(runner, 1), at=at)[1]
    assert torch.cat(dense.needle)[:, 1].eq(1).all() and torch.cat(closed.needle)[:, 1].mean() < 0.5


class Letters:
    """A tokenizer of bytes, for a model of 99 tokens."""

    def __call__(self, text: str, return_tensors: str = "", **_: Any) -> Any:
        found = [byte % 97 + 2 for byte in text.encode()]
        return type("Encoding", (), {"input_ids": torch.tensor([found]) if return_tensors else found})


def test_books_and_needles_are_measured_and_prefixes_kept(model: Any, tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    for number, split in enumerate(("validation", "train")):
        book = {"title": f"Book {number}", "text": f"Nothing at all happens in {number}. \n\n" * 100}
        with lzma.open(tmp_path / "books" / f"{split}.jsonl.xz", "wt") as file:
            file.write(json.dumps(book) + "\n")
    ways = [TODAY, Way("by head", by_head=True)]
    bench = Bench(model, Letters(), tmp_path, 1024, ways, tmp_path)
    first = bench.read_books(1024, 1, 1)
    assert first.count("\n| today | ") == first.count("\n| by head | ") == 1
    kept = sorted(file.name for file in tmp_path.glob("*.safetensors"))
    assert kept == ["Book0.896.safetensors", "Book1.896.safetensors"]
    assert bench.read_books(1024, 1, 1) == first, "from the files"
    told = bench.find_needles(1024, 1, 1)
    assert "| dense | 100% |" in told and told.count("% of 4 |") == 3
