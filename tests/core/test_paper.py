"""The equations of the paper, against dense matrices in float64."""

import pytest
import torch
from hypothesis import given
from torch import Tensor

from tests.cases import Case, binary, cases, relative_error
from vcc import Cut, Rows, SegmentTree, build_tree, choose_cut, flatten_tree, read_cut, write_cut
from vcc.core.cut import add_to_cut
from vcc.core.rows import log_counts
from vcc.testing import compression, mean, nodes_of_cut, random_rows

EXACT = 1e-12


def random_cut(tree: SegmentTree, budget: tuple[int, ...], seed: int = 0) -> Cut:
    generator = torch.Generator().manual_seed(seed)
    return choose_cut(tree, lambda nodes: torch.rand(nodes.counts.shape, generator=generator), budget)


SETTINGS = [  # scales, budget, tokens, padding after that many of them
    ((1,), (), 9, 9),
    ((4, 1), (2,), 16, 16),
    ((4, 1), (2,), 15, 15),
    ((16, 1), (1,), 50, 41),
    ((16, 4, 1), (2, 3), 61, 61),
    ((12, 6, 3, 1), (2, 2, 3), 40, 29),
    (binary(64), (1, 2, 3, 4, 3, 2), 64, 64),
    (binary(64), (1, 1, 2, 2, 2, 2), 37, 33),
]


@pytest.mark.parametrize(("scales", "budget", "n", "real"), SETTINGS)
class TestClaims:
    """One setting, all claims of the appendix."""

    @pytest.fixture(autouse=True)
    def _setting(self, scales: tuple[int, ...], budget: tuple[int, ...], n: int, real: int) -> None:
        rows = random_rows(1, n)
        self.rows = Rows(rows.hidden, (torch.arange(n) < real).double()[None], rows.positions)
        self.real = self.rows.counts[0] > 0
        self.tree = build_tree(self.rows, scales)
        self.cut = random_cut(self.tree, budget)
        self.S, self.S_inverse, self.D = compression(self.tree, self.cut, 0)
        self.C = self.rows.hidden[0]  # (n, D)

    def test_the_inverse_meets_the_four_moore_penrose_conditions(self) -> None:
        S, P = self.S, self.S_inverse
        for actual, expected in ((S @ P @ S, S), (P @ S @ P, P), ((S @ P).T, S @ P), ((P @ S).T, P @ S)):
            assert (actual - expected).abs().max() < EXACT
        assert (torch.linalg.pinv(S) - P).abs().max() < EXACT

    def test_every_column_has_one_non_zero(self) -> None:
        assert torch.equal((self.S != 0).sum(0), self.real.long())
        assert torch.equal(self.S_inverse.sum(1), self.real.double())  # exactly a 1 in each row

    def test_reading_is_multiplying_by_S(self) -> None:
        read = read_cut(self.tree, self.cut)
        assert relative_error(read.hidden[0][self.D.diag() > 0], (self.S @ self.C)[self.D.diag() > 0]) < EXACT
        assert torch.equal(read.counts[0], self.D.diag())
        place = self.S @ self.rows.positions[0]
        assert relative_error(read.positions[0], place) < EXACT

    def test_compressed_attention_is_the_segment_averaged_exponential(self) -> None:
        """exp(P C^T S^T) D S spreads each segment's exp(mean of p c_i) over its tokens; log(counts) is that D."""
        P = random_rows(1, 3, seed=1).hidden[0]
        left = (P @ self.C.T @ self.S.T).exp() @ self.D @ self.S
        nodes, _ = nodes_of_cut(self.tree, self.cut, 0)
        for node in nodes:
            tokens = [j for j in node.tokens if j < len(self.real) and self.real[j]]
            for j in tokens:
                averaged = (P @ self.C[tokens].T).mean(1).exp()
                assert relative_error(left[:, j], averaged) < EXACT
        read = read_cut(self.tree, self.cut)
        attention = (P @ read.hidden[0].T + log_counts(read.counts, torch.float64)[0]).softmax(-1)
        assert relative_error(attention @ self.S, left / left.sum(1, keepdim=True)) < EXACT

    def test_writing_is_decompressing_adding_and_rebuilding(self) -> None:
        update = random_rows(1, self.S.shape[0], seed=2).hidden
        new = self.rows.with_hidden(self.rows.hidden + self.S_inverse @ update)
        self.check_tree(add_to_cut(self.tree, self.cut, update), build_tree(new, self.tree.scales))
        read = read_cut(self.tree, self.cut)
        self.check_tree(
            write_cut(self.tree, self.cut, read.with_hidden(read.hidden + update)), build_tree(new, self.tree.scales)
        )

    def check_tree(self, actual: SegmentTree, expected: SegmentTree) -> None:
        pairs = [(actual.means, expected.means), *zip(actual.differences, expected.differences, strict=True)]
        for (left, right), counts in zip(pairs, expected.counts, strict=True):
            assert relative_error(left[counts > 0], right[counts > 0]) < EXACT
        flat = [flatten_tree(tree).hidden[0][self.real] for tree in (actual, expected)]
        assert relative_error(*flat) < EXACT


@given(cases(longest=30))
def test_writing_is_decompressing_adding_and_rebuilding_for_any_input(case: Case) -> None:
    tree = build_tree(case.rows, case.config.scales)
    cut = choose_cut(tree, case.score, case.config.budget)
    read = read_cut(tree, cut)
    update = random_rows(*read.counts.shape, seed=case.seed + 1).hidden
    after = flatten_tree(add_to_cut(tree, cut, update))
    for element in range(update.shape[0]):
        S, inverse, D = compression(tree, cut, element)
        real, seen = case.rows.counts[element] > 0, D.diag() > 0
        assert relative_error(read.hidden[element][seen], (S @ case.rows.hidden[element])[seen]) < EXACT
        expected = case.rows.hidden[element] + inverse @ update[element]
        assert relative_error(after.hidden[element][real], expected[real]) < EXACT


def changed(before: SegmentTree, after: SegmentTree) -> list[Tensor]:
    """(B, m_i) per scale: nodes with any bit changed."""
    pairs = [(before.means, after.means), *zip(before.differences, after.differences, strict=True)]
    return [(left != right).any(2) for left, right in pairs]


def test_the_papers_example_changes_exactly_its_green_nodes() -> None:
    """n_c = 8 and the cut {c_1^2, c_3^1, c_4^1, c_2^4}; x counts from 1 here, as in the paper."""
    rows = random_rows(1, 8)
    tree = build_tree(rows, (8, 4, 2, 1))
    wanted = {(8, 1), (4, 1), (2, 2)}  # the segments the figure splits

    def score(nodes: Rows) -> Tensor:
        s = int(nodes.counts[0, 0])
        x = ((nodes.positions + (s + 1) / 2) / s).round().long()  # the mean position of (s, x) is s x - (s + 1) / 2
        return torch.tensor([[float((s, int(number)) in wanted) for number in x[0]]])

    cut = choose_cut(tree, score, (1, 1, 1))
    order, _ = nodes_of_cut(tree, cut, 0)
    assert [(node.s, node.x + 1) for node in order] == [(4, 2), (2, 1), (1, 3), (1, 4)]
    C = rows.hidden[0]
    c = {(node.s, node.x + 1): mean(rows, 0, node) for node in order}
    read = read_cut(tree, cut)
    for row, key in zip(read.hidden[0], c, strict=True):
        assert relative_error(row, c[key]) < EXACT
    assert read.counts.tolist() == [[4, 2, 1, 1]]

    update = random_rows(1, 4, seed=3).hidden
    new = write_cut(tree, cut, read.with_hidden(read.hidden + update))
    u = dict(zip(c, update[0], strict=True))

    # Eq. (equality_lazy): tokens under c_1^2 move by its update, tokens under c_2^4 by its own.
    moves = [u[2, 1], u[2, 1], u[1, 3], u[1, 4], *[u[4, 2]] * 4]
    C_new = C + torch.stack(moves)
    assert relative_error(flatten_tree(new).hidden[0], C_new) < EXACT

    # Node by node, by the definitions of c_x^s and of delta c_x^s = c_ceil(x/2)^2s - c_x^s.
    def c_new(s: int, x: int) -> Tensor:
        return C_new[s * (x - 1) : s * x].mean(0)

    stored = {(8, 1): new.means[0, 0]}
    for s, differences in zip((4, 2, 1), new.differences, strict=True):
        stored |= {(s, x + 1): differences[0, x] for x in range(8 // s)}
    assert relative_error(stored[8, 1], c_new(8, 1)) < EXACT
    for (s, x), value in stored.items():
        if s < 8:
            assert relative_error(value, c_new(2 * s, -(-x // 2)) - c_new(s, x)) < EXACT

    green = {(8, 1), (4, 1), (4, 2), (2, 1), (2, 2), (1, 3), (1, 4)}  # the traversed nodes
    touched = {
        (s, x + 1)
        for s, nodes in zip((8, 4, 2, 1), changed(tree, new), strict=True)
        for x in nodes[0].nonzero().flatten().tolist()
    }
    assert touched == green  # every other node is the same to the last bit


@given(cases(longest=64))
def test_at_most_2r_nodes_change_and_only_the_cut_and_its_ancestors(case: Case) -> None:
    tree = build_tree(case.rows, case.config.scales)
    cut = choose_cut(tree, case.score, case.config.budget)
    r = sum(kept.shape[1] for kept in cut.kept)
    update = random_rows(case.rows.counts.shape[0], r, seed=case.seed).hidden
    touched = changed(tree, add_to_cut(tree, cut, update))
    for element in range(update.shape[0]):
        rows, inner = nodes_of_cut(tree, cut, element)
        allowed = {(node.depth, node.x) for node in rows + inner}
        actual = {(depth, int(x)) for depth, nodes in enumerate(touched) for x in nodes[element].nonzero()}
        assert len(actual) <= 2 * r
        assert actual <= allowed
