"""The whole algorithm on a tiny host: against the dense model, the dense formula, and itself."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from hypothesis import given
from torch import Tensor, nn

from tests.cases import Case, alone, binary, cases, relative_error
from vcc import Cut, Host, Rows, VccConfig, encode, join_vips, split_vips
from vcc.core.score import vip_attention
from vcc.core.tree import build_tree
from vcc.encode import Step
from vcc.testing import TinyHost, dense, layer_by_matrices, random_rows, tiny_host

OPEN = 10_000
SCALES = [(1,), (2, 1), (4, 1), (16, 1), (16, 4, 1), (6, 2, 1), binary(29)]


def batch(n: int = 29) -> tuple[Rows, Tensor]:
    """Three sequences, padded left, right and not at all, with 3, 0 and 11 VIPs in different places."""
    rows = random_rows(3, n)
    counts = rows.counts.clone()
    counts[0, :6] = 0
    counts[1, 20:] = 0
    vip_mask = torch.zeros(3, n, dtype=torch.int64)
    vip_mask[0, [7, 15, n - 1]] = 1
    vip_mask[2, ::3] = 1
    return replace(rows, counts=counts), vip_mask


def every_scale_open(scales: tuple[int, ...], **kwargs: object) -> VccConfig:
    return VccConfig(**{"scales": scales, "budget": (OPEN,) * (len(scales) - 1), "window_layers": 0, **kwargs})


def error_on_tokens(actual: Rows, expected: Tensor) -> float:
    real = actual.counts > 0
    return relative_error(actual.hidden[real], expected[real])


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("vip_window", ["inline", "own", "every"])
@pytest.mark.parametrize(("pre_norm", "distance"), [(True, 0.0), (False, 0.0), (True, 0.1)])
def test_every_scale_open_equals_the_dense_model(scales, vip_window: str, pre_norm: bool, distance: float) -> None:
    host = tiny_host(pre_norm=pre_norm, distance=distance)
    rows, vip_mask = batch()
    result = encode(host, rows, vip_mask, every_scale_open(scales, vip_window=vip_window))
    assert error_on_tokens(result, dense(host, rows)) < 1e-12
    assert torch.equal(result.counts, rows.counts) and torch.equal(result.positions, rows.positions)


@pytest.mark.parametrize("scales", [(4, 1), (16, 4, 1)])
@pytest.mark.parametrize("window", [1, 5, 8, 512])
def test_windows_are_the_first_layers_on_separate_slices(scales: tuple[int, ...], window: int) -> None:
    host = tiny_host(layers=3, distance=0.1)
    rows, vip_mask = batch()
    for layers in (1, 2, 3):
        config = every_scale_open(scales, window=window, window_layers=layers)
        result = encode(host, rows, vip_mask, config)
        for element in range(3):
            single, _ = alone(rows, vip_mask, element)
            hidden = sliced(host, single, window, layers)
            for index in range(layers, 3):
                hidden = host.layer(index, single.with_hidden(hidden))
            real = rows.counts[element] > 0
            assert relative_error(result.hidden[element][real], hidden[0]) < 1e-12


def sliced(host: TinyHost, rows: Rows, window: int, layers: int) -> Tensor:
    """The host's first layers on each slice of `window` tokens by itself."""
    parts = []
    for start in range(0, len(rows), window):
        cut = slice(start, start + window)
        part = Rows(rows.hidden[:, cut], rows.counts[:, cut], rows.positions[:, cut])
        for index in range(layers):
            part = part.with_hidden(host.layer(index, part))
        parts.append(part.hidden)
    return torch.cat(parts, 1)


def test_vips_in_windows_of_their_own_leave_the_context_unaware_of_them() -> None:
    host = tiny_host(layers=2)
    rows, vip_mask = batch()
    config = VccConfig(scales=(4, 1), budget=(2,), window=5, window_layers=2, vip_window="own")
    result = encode(host, rows, vip_mask, config)
    for element in range(3):
        single, mask = alone(rows, vip_mask, element)
        vips, context, layout = split_vips(single, mask)
        vips, context = (part.with_hidden(sliced(host, part, 5, 2)) if len(part) else part for part in (vips, context))
        expected = join_vips(vips, context, layout).hidden[0]
        assert relative_error(result.hidden[element][rows.counts[element] > 0], expected) < 1e-12
    hidden = torch.where(vip_mask[..., None] != 0, rows.hidden * 3, rows.hidden)
    other = encode(host, rows.with_hidden(hidden), vip_mask, config)
    context = (vip_mask == 0) & (rows.counts > 0)
    assert torch.equal(other.hidden[context], result.hidden[context])


@pytest.mark.parametrize(
    ("scales", "budget"), [((4, 1), (2,)), ((16, 4, 1), (1, 2)), ((6, 2, 1), (2, 0)), (binary(29), (1, 2, 2, 3, 3))]
)
@pytest.mark.parametrize("pre_norm", [True, False])
def test_every_layer_is_the_papers_equation(scales, budget, pre_norm: bool) -> None:
    """X_new = S^+ gamma(S X) + X with dense S and S^+, gamma(x) = layer(x) - x, given the cuts that were chosen."""
    host = tiny_host(layers=3, pre_norm=pre_norm)
    rows, vip_mask = batch()
    cuts, states = [], []
    config = VccConfig(scales=scales, budget=budget, window=5, window_layers=1)

    def watch(step: Step) -> None:
        cuts.append(step.cut)
        states.append(step.whole().hidden.clone())

    result = encode(host, rows, vip_mask, config, watch)
    assert len(cuts) == 3 and cuts[0] is None
    assert torch.equal(states[-1], result.hidden)
    for element in range(3):
        real = rows.counts[element] > 0
        vip = vip_mask[element][real] != 0
        vips = int(vip.sum())
        order = torch.cat([vip.nonzero(), (~vip).nonzero()]).flatten()  # X = [P; C]
        X = states[0][element][real][order]
        n = len(X) - vips
        counts = (torch.arange(29) < n).double()[None]  # the batch's tree has room for 29: element 1 has no VIP
        tree = build_tree(Rows(torch.zeros(1, 29, 8).double(), counts, counts), scales)
        for index in (1, 2):
            X = layer_by_matrices(host, index, X, vips, tree, only(cuts[index], element))
            assert relative_error(states[index][element][real][order], X) < 1e-12


def only(cut: Cut, element: int) -> Cut:
    """The cut of one batch element."""
    return Cut(*(tuple(place[[element]] for place in places) for places in (cut.opened, cut.kept, cut.opened_nodes)))


def test_similarity_opens_the_node_that_is_like_the_vips() -> None:
    host, rows = tiny_host(layers=1), random_rows(1, 33)
    hidden = rows.hidden.clone()
    hidden[0, 21:25] = hidden[0, 0]  # the context starts at 1: these are its tokens 20 to 23, node 5 of 4 tokens each
    vip_mask = torch.zeros(1, 33, dtype=torch.int64)
    vip_mask[0, 0] = 1
    cuts: list[Cut] = []
    config = VccConfig(scales=(16, 4, 1), budget=(1, 1), window_layers=0, score="similarity")
    encode(host, replace(rows, hidden=hidden), vip_mask, config, lambda step: cuts.append(step.cut))
    assert [nodes.tolist() for nodes in cuts[0].opened_nodes] == [[[1]], [[5]]]
    assert cuts[0].scores[1].shape == (1, 4) and cuts[0].scores[1].argmax() == 1


# A batch element must come out as if it were alone.

HOSTS = [tiny_host(layers=3), tiny_host(layers=3, pre_norm=False), tiny_host(layers=3, distance=0.05)]


def check_batch_is_every_row_alone(host: Host, case: Case) -> None:
    with torch.no_grad():
        result = encode(host, case.rows, case.vip_mask, case.config)
        assert result.hidden.isfinite().all()
        for element in range(case.rows.counts.shape[0]):
            single, mask = alone(case.rows, case.vip_mask, element)
            expected = encode(host, single, mask, case.config).hidden[0]
            error = relative_error(result.hidden[element][case.rows.counts[element] > 0], expected)
            assert error < 1e-10, f"batch element {element} differs from itself alone by {error:.1e}"


@given(cases())
def test_a_batch_is_every_row_alone(case: Case) -> None:
    check_batch_is_every_row_alone(HOSTS[case.seed % 3], case)


class Leak:
    """A host that mixes 1e-6 of another batch element into every layer."""

    def __init__(self, host: TinyHost) -> None:
        self.host, self.num_layers, self.training, self.score = host, host.num_layers, False, host.score

    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        hidden = self.host.layer(index, rows, consecutive)
        return hidden + 1e-6 * hidden.roll(1, 0)

    def layer_near(self, index: int, rows: Rows, vips: int, reach: int, ordered: bool = False) -> Tensor:
        return self.host.layer_near(index, rows, vips, reach, ordered)


def test_a_leak_of_1e6_between_batch_rows_is_caught() -> None:
    rows, vip_mask = batch()
    case = Case(rows, vip_mask, VccConfig(scales=(4, 1), budget=(2,), window_layers=0), 0)
    check_batch_is_every_row_alone(HOSTS[0], case)
    with pytest.raises(AssertionError, match="batch element 0 differs from itself alone by"):
        check_batch_is_every_row_alone(Leak(HOSTS[0]), case)


def test_a_leak_of_1e6_makes_the_property_test_fail() -> None:
    @given(cases())
    def leaking(case: Case) -> None:
        check_batch_is_every_row_alone(Leak(HOSTS[0]), case)

    with pytest.raises(AssertionError, match="differs from itself alone"):
        leaking()


def test_what_lies_in_the_padding_never_changes_a_result() -> None:
    host, (rows, vip_mask) = tiny_host(distance=0.1), batch()
    config = VccConfig(scales=(8, 2, 1), budget=(2, 3), window=7, window_layers=1)
    padding = rows.counts == 0
    other = Rows(
        torch.where(padding[..., None], 1e6 * torch.randn_like(rows.hidden), rows.hidden),
        rows.counts,
        torch.where(padding, 12_345.0, rows.positions),
    )
    vip_too = torch.where(padding, 1, vip_mask)
    for mask in (vip_mask, vip_too):
        assert error_on_tokens(encode(host, other, mask, config), encode(host, rows, vip_mask, config).hidden) < 1e-12


@pytest.mark.parametrize(("batch_size", "n"), [(1, 0), (2, 0), (0, 5), (0, 0), (1, 1), (2, 2)])
@pytest.mark.parametrize("vips", [0, 1])
@pytest.mark.parametrize("max_vips", [None, 4])
def test_the_smallest_inputs_work(batch_size: int, n: int, vips: int, max_vips: int | None) -> None:
    rows = random_rows(batch_size, n)
    for window_layers in (0, 2, 3):
        config = VccConfig(scales=(8, 2, 1), budget=(1, 1), window_layers=window_layers, max_vips=max_vips)
        result = encode(tiny_host(), rows, torch.full((batch_size, n), vips), config)
        assert result.hidden.shape == (batch_size, n, 8) and result.hidden.isfinite().all()


def test_rows_reserved_for_vips_change_nothing() -> None:
    host, (rows, vip_mask) = tiny_host(), batch()
    config = VccConfig(scales=(4, 1), budget=(2,), window_layers=1, window=8)
    expected = encode(host, rows, vip_mask, config).hidden
    assert error_on_tokens(encode(host, rows, vip_mask, replace(config, max_vips=17)), expected) < 1e-12


def test_whole_numbers_for_counts_and_positions_mean_the_same() -> None:
    host, (rows, vip_mask) = tiny_host(distance=0.3), batch()
    config = VccConfig(scales=(4, 1), budget=(2,), window_layers=1, window=8)
    whole = Rows(rows.hidden, rows.counts.long(), rows.positions.long())
    result = encode(host, whole, vip_mask, config)
    assert error_on_tokens(result, encode(host, rows, vip_mask, config).hidden) < 1e-12


# The sequence is never materialised between layers.


def test_the_sequence_is_built_once_and_flattened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    def noting(name: str, function: Callable) -> Callable:
        def noted(*args: object, **kwargs: object) -> object:
            log.append(name)
            return function(*args, **kwargs)

        return noted

    for module, name in (("encode", "build_tree"), ("core.state", "flatten_tree"), ("encode", "add_to_cut")):
        where = import_module(f"vcc.{module}")  # vcc.encode itself is the function
        monkeypatch.setattr(where, name, noting(name, getattr(where, name)))
    rows, vip_mask = batch()
    config = VccConfig(scales=(4, 1), budget=(2,), window_layers=1)
    encode(tiny_host(layers=5), rows, vip_mask, config)
    assert log == ["build_tree", *["add_to_cut"] * 4, "flatten_tree"]


def test_a_layer_sees_the_vips_and_the_cut_and_nothing_else() -> None:
    seen: list[int] = []

    class Watched(TinyHost):
        def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
            assert consecutive == (index == 0)
            seen.append(len(rows))
            return super().layer(index, rows)

    rows = random_rows(1, 1000)
    vip_mask = torch.zeros(1, 1000)
    vip_mask[0, 3:8] = 1
    steps: list[Step] = []
    config = VccConfig(scales=(100, 10, 1), budget=(3, 4), window=64, window_layers=1)
    encode(Watched().double(), rows, vip_mask, config, steps.append)
    expected = 5 + (10 - 3) + (30 - 4) + 40
    assert seen == [64, expected, expected]
    assert [step.rows for step in steps] == [64, expected, expected]


def test_without_gradients_the_tree_changes_in_place_to_the_same_result() -> None:
    host, (rows, vip_mask) = tiny_host(), batch()
    for scales, budget in (((1,), ()), ((4, 1), (2,)), ((8, 2, 1), (1, 3))):
        for layers in (0, 1):
            config = VccConfig(scales=scales, budget=budget, window_layers=layers, window=8)
            before = rows.hidden.clone()
            with torch.no_grad():
                fast = encode(host, rows, vip_mask, config).hidden
            assert torch.equal(rows.hidden, before)  # what the caller handed over is not touched
            assert torch.equal(encode(host, rows, vip_mask, config).hidden, fast)


# Learning.


class Judge(TinyHost):
    """Scores with a projection of its own, so that only the gates can teach it."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.judge = nn.Linear(8, 8)

    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        q, k = (self.judge(part.hidden)[:, None] for part in (vips, nodes))
        return vip_attention(q, k, vips, nodes, 0.3)


def test_the_score_learns_through_the_gates() -> None:
    torch.manual_seed(0)
    host, (rows, vip_mask) = Judge().double().eval(), batch()
    config = VccConfig(scales=(8, 2, 1), budget=(1, 2), window_layers=0)
    result = encode(host, rows, vip_mask, config)
    with torch.no_grad():
        assert torch.equal(encode(host, rows, vip_mask, config).hidden, result.hidden)  # a gate is worth exactly 1
    result.hidden[rows.counts > 0].square().sum().backward()
    assert host.judge.weight.grad.abs().max() > 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_whatever_the_padding_and_the_vips(dtype: torch.dtype) -> None:
    host, (rows, vip_mask) = tiny_host(dtype=dtype), batch()
    counts = torch.cat([rows.counts[:2], torch.zeros_like(rows.counts[:1])])
    rows = Rows(rows.hidden.to(dtype).requires_grad_(), counts.to(dtype), rows.positions.to(dtype))
    for budget in ((2, 2), (OPEN, OPEN)):
        result = encode(host, rows, vip_mask, VccConfig(scales=(8, 2, 1), budget=budget, window_layers=1, window=8))
        host.zero_grad()
        (result.hidden * 1e8).sum().backward()
        assert all(weight.grad is None or weight.grad.isfinite().all() for weight in host.parameters())
        assert rows.hidden.grad.isfinite().all()


def test_exploration_is_for_training_only() -> None:
    host, (rows, vip_mask) = tiny_host(), batch()
    config = VccConfig(scales=(4, 1), budget=(2,), window_layers=0, explore=1.0)
    greedy = encode(host, rows, vip_mask, replace(config, explore=0.0)).hidden
    state = torch.get_rng_state()
    assert torch.equal(encode(host, rows, vip_mask, config).hidden, greedy)
    assert torch.equal(torch.get_rng_state(), state)
    host.train()
    torch.manual_seed(0)
    cuts: list[list] = []
    for _ in range(2):
        encode(host, rows, vip_mask, config, lambda step: cuts.append(step.cut.opened_nodes[0].tolist()))
    assert cuts[:3] != cuts[3:]  # not the same cut twice
    assert torch.equal(encode(host, rows, vip_mask, replace(config, explore=0.0)).hidden, greedy)


# Bad input.


def test_bad_masks_are_refused() -> None:
    host, rows, config = tiny_host(), random_rows(2, 4), VccConfig()
    with pytest.raises(ValueError, match=r"vip_mask has shape \(2, 5\); it must be \(2, 4\)"):
        encode(host, rows, torch.zeros(2, 5), config)
    with pytest.raises(ValueError, match="vip_mask contains NaN"):
        encode(host, rows, torch.full((2, 4), float("nan")), config)


@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_bad_counts_are_refused(value: float) -> None:
    rows = random_rows(1, 4)
    counts = torch.tensor([[1.0, 1.0, value, 1.0]])
    with pytest.raises(ValueError, match=rf"counts holds {value}; a row stands for 0 tokens \(padding\) or more"):
        encode(tiny_host(), replace(rows, counts=counts), torch.zeros(1, 4), VccConfig())


def test_more_window_layers_than_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="window_layers=4: this model has only 3 layers"):
        encode(tiny_host(layers=3), random_rows(1, 4), torch.zeros(1, 4), VccConfig(window_layers=4))
