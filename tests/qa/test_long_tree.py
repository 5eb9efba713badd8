"""A tree on disk is the tree in memory, and asking it is asking that one, where it looks at all."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.documents import small_model
from vcc.core.tree import SegmentTree, build_tree, flatten_tree, read_tokens
from vcc.encode import ask
from vcc.qa import long_tree
from vcc.qa.long_tree import best_spans_on_disk, deepened, read_long, regions
from vcc.qa.model import QaModel
from vcc.qa.six_bits import LEVELS
from vcc.testing import random_rows


@pytest.fixture(params=[False, True], ids=["bare", "framed"])
def qa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> QaModel:
    for name, value in (("ROOTS", 4), ("FAN_OUT", 4), ("OPENED", 3), ("READ_AT_ONCE", {"cpu": 32})):
        monkeypatch.setattr(long_tree, name, value)
    model = small_model.model()
    small_model.set_qa(model, framed_windows=request.param)
    return QaModel(model, small_model.tokenizer())


def unpacked(tree: SegmentTree) -> SegmentTree:
    """The tree with plain tensors."""
    return replace(tree, differences=tuple(part.unpacked() for part in tree.differences))  # type: ignore[attr-defined]


def ids_of(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(5, 60, n).astype(np.int32)


@pytest.mark.parametrize("n", [1, 31, 128, 129, 900])
def test_the_tree_on_disk_is_that_in_memory(qa: QaModel, n: int, tmp_path: Path) -> None:
    ids = ids_of(n)
    config = deepened(qa.config, n)
    assert n / config.scales[0] <= 4 and config.scales[-3:] == (8, 2, 1)
    with torch.inference_mode():
        leaves = flatten_tree(qa.read([ids]))
        whole = build_tree(leaves, config.scales)
        tree = read_long(qa, ids, tmp_path / "tree").open()
    assert (tree.scales, tree.length) == (whole.scales, whole.length)
    found = unpacked(tree)
    for mine, theirs in zip((found.means, *found.differences), (whole.means, *whole.differences), strict=True):
        steps = theirs.abs().amax(2, keepdim=True) / LEVELS
        assert (mine - theirs).abs().le(0.501 * steps + 1e-5).all(), "6 bits a number"
    for name in ("counts", "positions"):
        assert all(map(torch.equal, getattr(tree, name), getattr(whole, name)))
    assert (flatten_tree(found).hidden - leaves.hidden).norm() < 0.1 * leaves.hidden.norm()


def test_asking_it_finds_what_asking_that_in_memory_finds_there(qa: QaModel, tmp_path: Path) -> None:
    ids, questions = ids_of(900), [ids_of(4), ids_of(7)]
    tree = read_long(qa, ids, tmp_path / "tree")
    before = {path.name: path.read_bytes() for path in tree.folder.iterdir()}
    asked = best_spans_on_disk(qa, tree, ids, questions, 3)
    assert {path.name: path.read_bytes() for path in tree.folder.iterdir()} == before
    config = deepened(qa.config, len(ids))
    with torch.inference_mode():
        for question, found in zip(questions, asked.found, strict=True):
            vips, own = ask(qa.host, qa.vips([question]), unpacked(tree.open()), config)
            logits = qa.head(flatten_tree(own).hidden)[0, qa.places(len(ids))].double()
            none = qa.head(vips.hidden[:, :1]).double().sum()
            assert found
            for span in found:
                score = logits[span.first, 0] + logits[span.last, 1] - none
                torch.testing.assert_close(span.score, score.item(), atol=1e-4, rtol=1e-4)
    assert asked.rows == ((1, asked.rows[0][1]), (2, asked.rows[1][1])) and asked.rows[0][1] < 150


def test_a_second_look_reads_the_passages_around_the_best_nodes(qa: QaModel, tmp_path: Path) -> None:
    ids = ids_of(900)
    tree = read_long(qa, ids, tmp_path / "tree")
    small_model.set_qa(qa.model, second_looks=4)
    asked = best_spans_on_disk(qa, tree, ids, [ids_of(4)], 3)
    assert 1 <= asked.passages <= 4 and asked.found[0]


def test_tokens_are_read_without_the_rest() -> None:
    rows = random_rows(2, 37, 5)
    tree = build_tree(rows, (8, 4, 1))
    tokens = torch.tensor([36, 0, 7, 8, 8])
    torch.testing.assert_close(read_tokens(tree, tokens), flatten_tree(tree).hidden[:, tokens])


def test_regions_join_where_they_meet() -> None:
    assert regions([(50, 59), (0, 3), (20, 20), (98, 99)], 5, 100) == [(0, 9), (15, 26), (45, 65), (93, 100)]
    assert regions([(10, 19), (25, 30)], 5, 100) == [(5, 36)]


def test_what_the_model_can_take_is_read_as_it_says() -> None:
    assert deepened(small_model.SETTINGS, 8 * long_tree.ROOTS) == small_model.SETTINGS
    assert deepened(small_model.SETTINGS, 8 * long_tree.ROOTS + 1).scales == (128, 8, 2, 1)
