"""Options of `encode` that the paper does not have: VIPs in every window, means at a token's norm, budget by mass,
gates on closed rows, rows that see what is near. Each against an oracle that forms what it says, and exact where
everything is open."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.cases import alone, relative_error
from tests.test_encode import Judge, batch, error_on_tokens, every_scale_open
from vcc import Host, Rows, VccConfig, encode
from vcc.core.cut import choose_cut, read_cut, within_mass, write_cut
from vcc.core.norm import at_token_norm
from vcc.core.tree import build_tree, flatten_tree
from vcc.encode import Step, read_once
from vcc.errors import UsageError
from vcc.testing import TinyHost, dense, random_rows, tiny_host

# ------------------------------------------------------------------------------------------------- VIPs in every window


def masked_layer(host: TinyHost, index: int, hidden: Tensor, positions: Tensor, sees: Tensor) -> Tensor:
    """A post-norm or pre-norm layer with an explicit mask (n, n) of who sees whom."""
    q, k, v = host.project(index, hidden)
    gap = (positions[:, None] - positions).abs()
    logits = q @ k.mT * q.shape[-1] ** -0.5 - host.distance * gap
    attended = logits.masked_fill(~sees, -torch.inf).softmax(-1) @ v
    x = hidden + host.out[index](attended.transpose(1, 2).flatten(2))
    if host.pre_norm:
        return x + host.down[index](F.gelu(host.up[index](host.norm2[index](x))))
    x = host.norm1[index](x)
    return host.norm2[index](x + host.down[index](F.gelu(host.up[index](x))))


@pytest.mark.parametrize("window", [1, 5, 64])
@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("gradients", [True, False])
def test_windows_slide_over_tokens_that_all_see_the_vips_and_these_everything(
    window: int, pre_norm: bool, gradients: bool
) -> None:
    host, (rows, vip_mask) = tiny_host(layers=3, pre_norm=pre_norm, distance=0.1), batch()
    config = every_scale_open((4, 1), window=window, window_layers=2, vip_window="every")
    with torch.set_grad_enabled(gradients):
        result = encode(host, rows, vip_mask, config)
    for element in range(3):
        single, mask = alone(rows, vip_mask, element)
        vip, place = mask[0] != 0, single.positions[0]
        sees = vip[:, None] | vip | ((place[:, None] - place).abs() <= window // 2)
        hidden = single.hidden
        for index in range(2):
            hidden = masked_layer(host, index, hidden, single.positions[0], sees)
        hidden = host.layer(2, single.with_hidden(hidden))
        assert relative_error(result.hidden[element][rows.counts[element] > 0], hidden[0]) < 1e-12


def test_every_window_learns_from_the_vips() -> None:
    host, (rows, vip_mask) = tiny_host(layers=2), batch()
    rows = rows.with_hidden(rows.hidden.requires_grad_())
    config = VccConfig(scales=(4, 1), budget=(2,), window=5, window_layers=2, vip_window="every")
    result = encode(host, rows, vip_mask, config)
    result.hidden[2, 28].sum().backward()  # not a VIP
    assert vip_mask[2, 28] == 0 and rows.hidden.grad[2, 0].abs().max() > 1e-6  # a VIP, many windows away


def test_a_document_that_depends_on_the_question_cannot_be_read_once() -> None:
    with pytest.raises(UsageError, match='vip_window="every": the states of the document depend on the VIPs'):
        read_once(tiny_host(), [random_rows(1, 20)], VccConfig(vip_window="every", window_layers=1))


def test_a_host_without_it_says_so() -> None:
    class Declared(Host):
        num_layers = 3
        training = False
        layer = score = None  # type: ignore[assignment]

    with pytest.raises(UsageError, match='vip_window="every": Declared has no layer_near'):
        encode(Declared(), *batch(), VccConfig(vip_window="every", window_layers=1))


# ------------------------------------------------------------------------------------------------------ means at a norm


def test_rows_for_several_tokens_get_the_mean_norm_of_the_tokens() -> None:
    rows, tokens = random_rows(2, 4), random_rows(2, 3, seed=1)
    counts = torch.tensor([[1.0, 2.0, 0.0, 16.0]]).expand(2, 4)
    tokens = replace(tokens, counts=torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]).double())
    scaled = at_token_norm(replace(rows, counts=counts), tokens)
    wanted = (tokens.hidden[0, 0].norm() + tokens.hidden[0, 1].norm()) / 2
    torch.testing.assert_close(scaled.hidden[0, [1, 3]].norm(dim=1), wanted.expand(2))
    torch.testing.assert_close(F.normalize(scaled.hidden, dim=2), F.normalize(rows.hidden, dim=2))
    assert torch.equal(scaled.hidden[0, [0, 2]], rows.hidden[0, [0, 2]]), "one token and padding are unchanged"
    assert torch.equal(scaled.hidden[1], rows.hidden[1]), "without a token there is no norm to take"


def test_a_zero_row_stays_zero_and_has_finite_gradients() -> None:
    hidden = torch.zeros(1, 2, 3, dtype=torch.float64, requires_grad=True)
    rows = Rows(hidden, torch.full((1, 2), 4.0), torch.zeros(1, 2))
    scaled = at_token_norm(rows, Rows(torch.ones(1, 1, 3).double(), torch.ones(1, 1), torch.zeros(1, 1)))
    scaled.hidden.sum().backward()
    assert torch.equal(scaled.hidden, torch.zeros(1, 2, 3).double()) and hidden.grad.isfinite().all()


@pytest.mark.parametrize("pre_norm", [True, False])
def test_means_at_a_tokens_norm_leave_the_open_cut_exact(pre_norm: bool) -> None:
    host, (rows, vip_mask) = tiny_host(pre_norm=pre_norm), batch()
    result = encode(host, rows, vip_mask, every_scale_open((4, 1), mean_norm=True))
    assert error_on_tokens(result, dense(host, rows)) < 1e-12


def test_a_closed_mean_becomes_what_the_layer_gives_for_it_at_a_tokens_norm() -> None:
    """One layer by hand: scale the means that it sees, run it, and move all tokens of a segment as its mean moves."""
    host, rows = tiny_host(layers=1, pre_norm=False), random_rows(1, 14)
    vip_mask = (torch.arange(14) < 2).long()[None]
    steps: list[Step] = []
    config = VccConfig(scales=(4, 1), budget=(1,), window_layers=0, mean_norm=True)
    result = encode(host, rows, vip_mask, config, steps.append).hidden[0]
    vips, context = rows.hidden[0, :2], rows.hidden[0, 2:]
    opened = int(steps[0].cut.opened_nodes[0])
    means = context.unflatten(0, (3, 4)).mean(1)
    norm = vips.norm(dim=1).mean()
    closed = [x for x in range(3) if x != opened]
    scaled = torch.stack([means[x] * norm / means[x].norm() for x in closed])
    seen = torch.cat([vips, scaled, context[4 * opened : 4 * opened + 4]])[None]
    counts = torch.tensor([[1.0, 1, 4, 4, 1, 1, 1, 1]]).double()
    after = host.layer(0, Rows(seen, counts, torch.zeros_like(counts)))[0]
    expected = torch.empty_like(rows.hidden[0])
    expected[:2] = after[:2]
    expected[2 + 4 * opened : 6 + 4 * opened] = after[4:]
    for place, x in enumerate(closed):
        expected[2 + 4 * x : 6 + 4 * x] = context[4 * x : 4 * x + 4] + after[2 + place] - means[x]
    assert relative_error(result, expected) < 1e-12


# ------------------------------------------------------------------------------------------------------- budget by mass


def test_mass_takes_the_fewest_nodes_with_that_share_of_the_score() -> None:
    score = torch.tensor([[0.1, 0.4, 0.1, 0.3, 0.1], [0.2, 0.2, 0.2, 0.2, 0.2], [0.0, 0.0, 0.0, 0.0, 0.0]])
    real = torch.tensor([[True] * 5, [True] * 4 + [False], [True] * 5])
    assert within_mass(score, real, 0.65).tolist() == [
        [False, True, False, True, False],
        [True, True, True, False, False],  # 0.4 of 0.8 is less than 0.65 of it; the first win a tie
        [False] * 5,
    ]
    assert torch.equal(within_mass(score, real, 1.0), real)


def budget_of(mass: float, score: Tensor, real: Tensor) -> int:
    ordered = sorted(score[real].tolist(), reverse=True)
    total, opened = 0.0, 0
    while opened < len(ordered) and total < mass * sum(ordered):
        total, opened = total + ordered[opened], opened + 1
    return opened


@pytest.mark.parametrize("mass", [0.2, 0.5, 0.9])
def test_mass_opens_in_each_element_as_a_budget_of_its_own_would(mass: float) -> None:
    """One layer; the budget for each element alone is counted from its scores."""
    host, (rows, vip_mask) = tiny_host(layers=1, pre_norm=False), batch()
    config = VccConfig(scales=(4, 1), budget=(6,), window_layers=0, mass=mass)
    steps: list[Step] = []
    result = encode(host, rows, vip_mask, config, steps.append)
    numbers = []
    for element in range(3):
        single, mask = alone(rows, vip_mask, element)
        only: list[Step] = []
        encode(host, single, mask, replace(config, mass=None), only.append)
        score = only[0].cut.scores[0][0]
        numbers.append(min(6, budget_of(mass, score, torch.ones_like(score, dtype=torch.bool))))
        expected = encode(host, single, mask, replace(config, mass=None, budget=(numbers[-1],))).hidden[0]
        assert relative_error(result.hidden[element][rows.counts[element] > 0], expected) < 1e-12
    assert steps[0].cut.wanted.sum(1).tolist() == numbers and steps[0].cut.opened[0].shape[1] == max(numbers)
    assert mass != 0.5 or len(set(numbers)) > 1, "elements that open different numbers are the point"


def test_all_the_mass_is_the_dense_model() -> None:
    host, (rows, vip_mask) = tiny_host(), batch()
    result = encode(host, rows, vip_mask, every_scale_open((4, 1), mass=1.0))
    assert error_on_tokens(result, dense(host, rows)) < 1e-12


def test_a_cut_with_nodes_that_stay_closed_writes_what_was_read() -> None:
    tree = build_tree(random_rows(2, 14), (4, 1))
    cut = choose_cut(
        tree, lambda nodes: torch.rand(nodes.counts.shape, generator=torch.Generator().manual_seed(0)), (3,), mass=0.5
    )
    assert not cut.wanted.all()
    rows = read_cut(tree, cut)
    assert torch.equal(rows.counts.sum(1), torch.full((2,), 14.0).double()), "each token is covered once"
    changed = write_cut(tree, cut, rows.with_hidden(rows.hidden + 1.0))
    before, after = flatten_tree(tree), flatten_tree(changed)
    torch.testing.assert_close(after.hidden, before.hidden + 1.0)


def test_mass_needs_two_scales() -> None:
    with pytest.raises(UsageError, match="two scales if mass is given"):
        VccConfig(scales=(16, 4, 1), budget=(2, 2), mass=0.9)


# ------------------------------------------------------------------------------------------------- gates on closed rows


def test_closed_rows_teach_the_score_too_and_change_no_value() -> None:
    """With no budget nothing is opened: only a gate on closed rows can reach the score."""
    torch.manual_seed(0)
    host, (rows, vip_mask) = Judge().double().eval(), batch()
    config = VccConfig(scales=(4, 1), budget=(0,), window_layers=0)
    results = []
    for gate_closed in (False, True):
        host.zero_grad()
        result = encode(host, rows, vip_mask, replace(config, gate_closed=gate_closed))
        result.hidden[rows.counts > 0].square().sum().backward()
        results.append(result.hidden)
        gradient = host.judge.weight.grad
        assert (gradient is not None and float(gradient.abs().max()) > 1e-6) == gate_closed
    assert torch.equal(*results)


def test_the_gradient_of_a_closed_row_is_minus_what_its_update_is_worth() -> None:
    host, rows = tiny_host(layers=1), random_rows(1, 8)
    mu = torch.tensor([[0.7, 0.3]], dtype=torch.float64, requires_grad=True)
    host.score = lambda index, vips, nodes: mu  # type: ignore[method-assign]
    vip_mask = torch.zeros(1, 8)
    config = VccConfig(scales=(4, 1), budget=(0,), window_layers=0, gate_closed=True)
    result = encode(host, rows, vip_mask, config).hidden
    result.square().sum().backward()
    update = (result - rows.hidden).detach()  # the same for the tokens of a segment
    worth = (2 * result.detach() * update).sum(2).unflatten(1, (2, 4)).sum(2)
    torch.testing.assert_close(mu.grad, -worth)


# ---------------------------------------------------------------------------------------- rows that see what is near


@pytest.mark.parametrize("reach", [0, 4, 64])
@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("gradients", [True, False])
def test_open_rows_see_the_vips_and_what_is_near(reach: int, pre_norm: bool, gradients: bool) -> None:
    host, (rows, vip_mask) = tiny_host(layers=3, pre_norm=pre_norm, distance=0.1), batch()
    with torch.set_grad_enabled(gradients):
        result = encode(host, rows, vip_mask, every_scale_open((4, 1), window_layers=0, reach=reach))
    for element in range(3):
        single, mask = alone(rows, vip_mask, element)
        vip, place = mask[0] != 0, single.positions[0]
        sees = vip[:, None] | vip | ((place[:, None] - place).abs() <= reach)
        hidden = single.hidden
        for index in range(3):
            hidden = masked_layer(host, index, hidden, place, sees)
        assert relative_error(result.hidden[element][rows.counts[element] > 0], hidden[0]) < 1e-12


def test_closed_rows_are_near_by_the_mean_of_their_positions() -> None:
    """Eight tokens, the first a VIP, the others in nodes of 4 (three tokens, then four), all closed."""
    host, rows = tiny_host(layers=1), random_rows(1, 8)
    vip_mask = torch.tensor([[1, 0, 0, 0, 0, 0, 0, 0]])
    seen = {}
    for reach in (3, 4):  # the means are at 2.5 and 6
        config = VccConfig(scales=(4, 1), budget=(0,), window_layers=0, reach=reach)
        seen[reach] = encode(host, rows, vip_mask, config).hidden
    whole = encode(host, rows, vip_mask, VccConfig(scales=(4, 1), budget=(0,), window_layers=0)).hidden
    assert relative_error(seen[4], whole) < 1e-12
    assert relative_error(seen[3][:, :1], whole[:, :1]) < 1e-12  # the VIP sees both
    assert relative_error(seen[3][:, 1:], whole[:, 1:]) > 1e-3


def test_a_host_that_has_no_neighbours_says_so() -> None:
    class Declared(Host):
        num_layers = 1
        training = False
        layer = None  # type: ignore[assignment]

        def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
            return torch.zeros(nodes.counts.shape)

    with pytest.raises(UsageError, match="Declared has no layer_near"):
        encode(Declared(), *batch(), VccConfig(window_layers=0, reach=9))
