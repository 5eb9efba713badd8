"""Choosing, reading and writing a cut, case by case. The equations of the paper are in test_paper.py."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given

from tests.cases import Case, cases, relative_error
from vcc import Cut, Rows, SegmentTree, build_tree, choose_cut, read_cut, write_cut
from vcc.core.cut import add_to_cut, best
from vcc.testing import nodes_of_cut, random_rows


def chosen(case: Case) -> tuple[SegmentTree, Cut]:
    tree = build_tree(case.rows, case.config.scales)
    return tree, choose_cut(tree, case.score, case.config.budget)


def copied(tree: SegmentTree) -> SegmentTree:
    return replace(tree, means=tree.means.clone(), differences=tuple(d.clone() for d in tree.differences))


def same(a: SegmentTree, b: SegmentTree) -> bool:
    return torch.equal(a.means, b.means) and all(map(torch.equal, a.differences, b.differences))


@given(cases())
def test_a_cut_covers_every_token_exactly_once(case: Case) -> None:
    tree, cut = chosen(case)
    stored = tree.counts[-1].shape[1]
    for element in range(case.rows.counts.shape[0]):
        rows, inner = nodes_of_cut(tree, cut, element)
        assert sorted(token for node in rows for token in node.tokens) == list(range(stored))
        for depth, nodes in enumerate(cut.opened_nodes):
            assert nodes[element].tolist() == [node.x for node in inner if node.depth == depth]
    for places in (*cut.opened, *cut.kept):
        assert places.diff().gt(0).all()  # ascending, so reading order is kept within a scale


@given(cases())
def test_the_budget_opens_the_best_real_nodes_first_come_first_served(case: Case) -> None:
    tree, cut = chosen(case)
    for element in range(case.rows.counts.shape[0]):
        visited = list(range(tree.means.shape[1]))
        for depth, budget in enumerate(case.config.budget):
            score = case.score(nodes_by_place(tree, depth))[element]
            counts = tree.counts[depth][element]
            ranked = sorted(visited, key=lambda x: (counts[x] == 0, -score[x], x))  # noqa: B023
            opened = sorted(ranked[: min(budget, len(visited))])
            assert cut.opened_nodes[depth][element].tolist() == opened
            fan_out = tree.fan_outs[depth]
            visited = [x * fan_out + child for x in opened for child in range(fan_out)]


def nodes_by_place(tree: SegmentTree, depth: int) -> Rows:
    """All nodes of one scale, as far as a score by position is concerned."""
    counts = tree.counts[depth]
    return Rows(counts[..., None], counts, tree.positions[depth])


@given(cases())
def test_padding_is_opened_only_when_nothing_real_is_left(case: Case) -> None:
    tree, cut = chosen(case)
    for depth, (nodes, kept) in enumerate(zip(cut.opened_nodes, cut.kept, strict=False)):
        counts = tree.counts[depth]
        for element in range(counts.shape[0]):
            rows, _ = nodes_of_cut(tree, cut, element)
            left = [node.x for node in rows if node.depth == depth]
            assert len(left) == kept.shape[1]
            if (counts[element, nodes[element]] == 0).any():
                assert not any(counts[element, x] > 0 for x in left)


@given(cases())
def test_read_undoes_write_and_write_undoes_read(case: Case) -> None:
    tree, cut = chosen(case)
    before = copied(tree)
    rows = read_cut(tree, cut)
    unmoved = write_cut(tree, cut, rows)
    assert same(unmoved, tree)  # an update of zero changes no bit
    hidden = random_rows(*rows.counts.shape, seed=case.seed + 1).hidden
    written = write_cut(tree, cut, rows.with_hidden(hidden))
    assert relative_error(read_cut(written, cut).hidden, hidden) < 1e-13
    assert same(tree, before)  # the old tree is untouched
    in_place = add_to_cut(tree, cut, hidden - rows.hidden, in_place=True)
    assert same(in_place, written) and in_place.means.data_ptr() == tree.means.data_ptr()


def test_every_node_opens_when_the_budget_is_larger_than_the_tree() -> None:
    rows = random_rows(2, 11)
    tree = build_tree(rows, (8, 2, 1))
    cut = choose_cut(tree, lambda nodes: nodes.positions, (99, 99))
    assert [places.shape[1] for places in cut.kept] == [0, 0, 16]
    read = read_cut(tree, cut)
    assert relative_error(read.hidden[:, :11], rows.hidden) < 1e-14
    assert read.counts[:, 11:].eq(0).all()


def test_a_budget_of_zero_reads_the_means_of_the_coarsest_scale() -> None:
    tree = build_tree(random_rows(2, 11), (8, 2, 1))
    cut = choose_cut(tree, lambda nodes: nodes.positions, (0, 5))
    assert torch.equal(read_cut(tree, cut).hidden, tree.means)


def test_batch_elements_choose_for_themselves() -> None:
    tree = build_tree(random_rows(2, 8), (4, 1))
    cut = choose_cut(tree, lambda nodes: torch.tensor([[0.0, 1.0], [1.0, 0.0]]), (1,))
    assert cut.opened_nodes[0].tolist() == [[1], [0]]
    assert read_cut(tree, cut).positions.tolist() == [[1.5, 4, 5, 6, 7], [5.5, 0, 1, 2, 3]]


def test_equal_scores_open_in_reading_order_at_any_length() -> None:
    for n in (3, 40, 5000):
        score = torch.zeros(1, n)
        score[0, n // 2 :] = -0.0
        assert best(score, torch.ones(1, n, dtype=torch.bool), 3)[0].tolist() == [[0, 1, 2]]


def test_order_of_the_packed_scores_is_the_order_of_the_numbers() -> None:
    generator = torch.Generator().manual_seed(0)
    score = torch.randn(4, 300, generator=generator) * 10.0 ** torch.randint(-30, 30, (4, 300), generator=generator)
    score[:, :4] = torch.tensor([float("inf"), float("-inf"), 0.0, 1e-45])
    real = torch.ones_like(score, dtype=torch.bool)
    for wanted in (0, 1, 7, 150, 300):
        order = score.argsort(dim=1, descending=True, stable=True)
        top, rest = best(score, real, wanted)
        assert torch.equal(top, order[:, :wanted].sort(1).values)
        assert torch.equal(rest, order[:, wanted:].sort(1).values)


def test_nan_scores_count_as_the_worst_yet_before_padding() -> None:
    score = torch.tensor([[float("nan"), -5.0, 9.0]])
    real = torch.tensor([[True, True, False]])
    assert best(score, real, 1)[0].tolist() == [[1]]
    assert best(score, real, 2)[0].tolist() == [[0, 1]]


@pytest.mark.parametrize("budget", [(), (1, 2), (-1,), (1.5,), (True,), ("3",), (None,)])
def test_bad_budgets_are_refused_with_value_and_rule(budget: tuple) -> None:
    tree = build_tree(random_rows(1, 4), (4, 1))
    with pytest.raises(ValueError) as error:
        choose_cut(tree, lambda nodes: nodes.counts, budget)
    assert f"budget={budget!r}" in str(error.value)
    assert "one for each scale but the last" in str(error.value) or "non-negative whole number" in str(error.value)


def test_a_score_of_another_shape_is_refused() -> None:
    tree = build_tree(random_rows(1, 8), (4, 1))
    with pytest.raises(ValueError, match=r"score returned shape \(1, 3\); it must be \(1, 2\)"):
        choose_cut(tree, lambda nodes: torch.zeros(1, 3), (1,))


def test_rows_of_another_shape_cannot_be_written() -> None:
    tree = build_tree(random_rows(1, 8), (4, 1))
    cut = choose_cut(tree, lambda nodes: nodes.counts, (1,))
    with pytest.raises(ValueError, match=r"rows has shape \(1, 4, 8\); this cut has \(1, 5, 8\)"):
        write_cut(tree, cut, random_rows(1, 4))


def test_exploration_draws_nodes_at_random_and_still_spares_padding() -> None:
    rows = random_rows(400, 40)
    counts = rows.counts.clone()
    counts[:, 32:] = 0
    tree = build_tree(replace(rows, counts=counts), (4, 1))
    torch.manual_seed(0)
    drawn = choose_cut(tree, lambda nodes: nodes.positions, (2,), explore=1.0).opened_nodes[0]
    share = torch.bincount(drawn.flatten(), minlength=10) / len(drawn)
    assert share[8:].eq(0).all()
    assert (share[:8] - 2 / 8).abs().max() < 0.08  # every real node alike, whatever its score


def test_exploration_happens_with_its_probability() -> None:
    tree = build_tree(random_rows(4000, 16, width=1), (2, 1))
    torch.manual_seed(0)
    greedy = choose_cut(tree, lambda nodes: nodes.positions, (1,)).opened_nodes[0]
    drawn = choose_cut(tree, lambda nodes: nodes.positions, (1,), explore=0.1).opened_nodes[0]
    assert abs(float((drawn != greedy).float().mean()) - 0.1 * 7 / 8) < 0.015


def test_without_exploration_no_random_number_is_drawn() -> None:
    tree = build_tree(random_rows(1, 16), (4, 1))
    torch.manual_seed(0)
    state = torch.get_rng_state()
    choose_cut(tree, lambda nodes: nodes.positions, (1,))
    assert torch.equal(torch.get_rng_state(), state)
