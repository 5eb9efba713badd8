import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck

from tests.cases import binary
from vcc import Rows, VccConfig, build_tree, choose_cut, encode, flatten_tree, read_cut, write_cut
from vcc.core.cut import add_to_cut, straight_through
from vcc.testing import dense, random_rows, tiny_host

SETTINGS = [((1,), (), 5), ((4, 1), (1,), 7), ((4, 2, 1), (1, 1), 7), ((6, 3, 1), (1, 2), 8), (binary(8), (1, 1, 1), 8)]


@pytest.mark.parametrize(("scales", "budget", "n"), SETTINGS)
@pytest.mark.parametrize("pre_norm", [True, False])
def test_gradients_flow_exactly_through_build_read_layer_write_flatten(scales, budget, n: int, pre_norm: bool) -> None:
    host = tiny_host(layers=1, width=4, pre_norm=pre_norm)
    rows = random_rows(2, n, width=4)
    rows = Rows(rows.hidden, torch.tensor([[1.0] * n, [1.0] * (n - 2) + [0.0] * 2]).double(), rows.positions)
    cut = choose_cut(build_tree(rows, scales), lambda nodes: nodes.hidden.sum(2), budget)

    def forward(hidden: Tensor) -> Tensor:
        tree = build_tree(rows.with_hidden(hidden), scales)
        read = read_cut(tree, cut)
        return flatten_tree(write_cut(tree, cut, read.with_hidden(host.layer(0, read)))).hidden

    assert gradcheck(forward, rows.hidden.clone().requires_grad_(), eps=1e-6, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize(("scales", "budget", "n"), SETTINGS)
def test_gradients_reach_the_update(scales, budget, n: int) -> None:
    tree = build_tree(random_rows(1, n, width=3), scales)
    cut = choose_cut(tree, lambda nodes: nodes.positions, budget)
    update = random_rows(1, len(read_cut(tree, cut)), width=3, seed=1).hidden.requires_grad_()
    assert gradcheck(lambda u: flatten_tree(add_to_cut(tree, cut, u)).hidden, update)


class Judge(nn.Module):
    """A score with weights of its own: only the gates can send them a gradient."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.key = nn.Linear(8, 1).to(dtype)

    def forward(self, nodes: Rows) -> Tensor:
        return self.key(nodes.hidden).squeeze(2).softmax(1)


def test_gates_are_one_and_send_a_gradient_to_the_score() -> None:
    judge, rows = Judge(), random_rows(2, 32)
    tree = build_tree(rows, (8, 2, 1))
    cut = choose_cut(tree, judge, (2, 3))
    assert [gate.shape for gate in cut.gates] == [(2, 2), (2, 3)]
    assert all(gate.eq(1).all() for gate in cut.gates)  # exactly: the value of what is read does not change
    with torch.no_grad():
        plain = choose_cut(tree, judge, (2, 3))
    assert plain.gates == ()
    read = read_cut(tree, cut)
    assert torch.equal(read.hidden, read_cut(tree, plain).hidden)
    read.hidden.square().sum().backward()
    assert judge.key.weight.grad is not None and judge.key.weight.grad.abs().max() > 1e-6


def test_the_gates_gradient_is_what_opening_a_node_was_worth() -> None:
    """d loss / d gate, by moving the children towards their parent by hand."""
    tree = build_tree(random_rows(1, 8), (4, 1))
    cut = choose_cut(tree, Judge(), (1,))
    gate = torch.ones_like(cut.gates[0], requires_grad=True)
    loss = lambda hidden: (hidden * hidden.sin()).sum()
    gated = type(cut)(cut.opened, cut.kept, cut.opened_nodes, (gate,))
    loss(read_cut(tree, gated).hidden).backward()

    def by_hand(strength: float) -> Tensor:
        node = int(cut.opened_nodes[0])
        closed = tree.means[:, 1 - node : 2 - node]
        children = tree.means[:, node, None] - strength * tree.differences[0][:, 4 * node : 4 * node + 4]
        return loss(torch.cat([closed, children], 1))

    slope = (by_hand(1 + 1e-6) - by_hand(1 - 1e-6)) / 2e-6
    torch.testing.assert_close(gate.grad.sum(), slope, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_score_of_zero_sends_a_finite_gradient(dtype: torch.dtype) -> None:
    mu = torch.tensor([0.0, 1e-44, 1e-30, 0.5], dtype=dtype, requires_grad=True)
    shares = mu * torch.tensor([0.0, 1.0, 1.0, 1.0], dtype=dtype)
    gate = straight_through(shares)
    assert gate.eq(1).all()
    (gate * 1e6).sum().backward()
    assert mu.grad.isfinite().all()


@pytest.mark.parametrize("scales", [(1,), (4, 1), (8, 2, 1)])
def test_gradients_of_an_open_cut_are_the_dense_models(scales: tuple[int, ...]) -> None:
    host, rows = tiny_host(layers=2), random_rows(2, 21)
    mask = torch.zeros(2, 21)
    mask[:, 3:6] = 1
    config = VccConfig(scales=scales, budget=(99,) * (len(scales) - 1), window_layers=0, explore=0.0)
    weights = torch.randn(2, 21, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.autograd.grad((dense(host, rows) * weights).sum(), list(host.parameters()))
    actual = torch.autograd.grad((encode(host, rows, mask, config).hidden * weights).sum(), list(host.parameters()))
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
