"""`attend`: buckets against Hugging Face's T5, the SDPA backend against the reference."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.models.t5.modeling_t5 import T5Attention

from vcc.attention.attend import BACKENDS, attend, fastest
from vcc.attention.scoring import RelativeBias, Scoring
from vcc.attention.sdpa import fold
from vcc.core.rows import Rows, log_counts

TOLERANCE = {torch.float64: 1e-12, torch.float32: 3e-6, torch.bfloat16: 1.5e-2, torch.float16: 2e-3}


def some_rows(batch: int, r: int, padding: int = 0) -> Rows:
    counts = torch.randint(1, 17, (batch, r))
    counts[-1, r - padding :] = 0
    return Rows(torch.zeros(batch, r, 1), counts, torch.randint(0, 900, (batch, r)) / 2)


def heads(batch: int, number: int, r: int, d: int) -> Tensor:
    return torch.randn(3, batch, number, r, d)


def error(ours: Tensor, theirs: Tensor) -> float:
    return ((ours.double() - theirs.double()).norm() / theirs.double().norm()).item()


# ------------------------------------------------------------------------------------------------------- relative bias


@pytest.mark.parametrize(("buckets", "longest"), [(32, 128), (32, 256), (16, 64), (64, 128), (8, 20)])
def test_buckets_equal_those_of_t5(buckets, longest):
    distance = torch.arange(-2000, 2001)
    theirs = T5Attention._relative_position_bucket(distance, True, buckets, longest)
    relative = RelativeBias(torch.zeros(buckets, 2), longest)
    assert torch.equal(relative.buckets(distance).long(), theirs)
    assert torch.equal(relative.buckets(distance.float()).long(), theirs)


def test_distances_round_to_the_nearest_integer_and_halves_away_from_zero():
    relative = RelativeBias(torch.zeros(32, 1))
    distance = torch.tensor([0.4, 0.5, 1.5, 2.49, -0.4, -0.5, -1.5, -2.49, 90.4, 90.5])
    whole = torch.tensor([0, 1, 2, 2, 0, -1, -2, -2, 90, 91])
    assert torch.equal(relative.buckets(distance), relative.buckets(whole))


def test_bias_among_neighbours_is_the_bias_between_their_positions():
    table = torch.randn(32, 3, dtype=torch.float64, requires_grad=True)
    relative, places = RelativeBias(table), torch.arange(150)[None]
    among, between = relative.among(150), relative.between(places, places)
    assert torch.equal(among, between)
    weight = torch.randn_like(among)
    gradients = [torch.autograd.grad((bias * weight).sum(), table)[0] for bias in (among, between)]
    exact = torch.autograd.grad((table[relative.buckets(places[:, None] - places[..., None])] * weight.permute(0, 2, 3, 1)).sum(), table)[0]  # fmt: skip # noqa: E501
    assert all(torch.allclose(gradient, exact) for gradient in gradients)


def test_bias_equals_that_of_a_t5_layer():
    from transformers import T5Config

    layer = T5Attention(T5Config(d_model=8, num_heads=2, d_kv=4), has_relative_attention_bias=True)
    ours = RelativeBias(layer.relative_attention_bias.weight).among(200)
    assert torch.equal(ours, layer.compute_bias(200, 200))


@pytest.mark.parametrize(("shape", "longest"), [((32,), 128), ((30, 2), 128), ((32, 2), 8)])
def test_a_bad_relative_bias_is_refused(shape, longest):
    with pytest.raises(ValueError, match="must be"):
        RelativeBias(torch.zeros(shape), longest)


# ------------------------------------------------------------------------------------------------------------ backends


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("consecutive", [False, True])
@pytest.mark.parametrize("window", [None, 60])
@pytest.mark.parametrize("biased", [False, True])
def test_sdpa_equals_reference(dtype, consecutive, window, biased):
    torch.manual_seed(0)
    rows, qkv = some_rows(2, 130, padding=20), heads(2, 3, 130, 16).to(dtype)
    weight, table = torch.randn(2, 3, 130, 16), torch.randn(32, 3)
    results = []
    for backend, precision in (("sdpa", dtype), ("reference", torch.float64)):
        leaf = qkv.to(precision).detach().requires_grad_()
        leaf_table = table.to(torch.promote_types(precision, torch.float32)).detach().requires_grad_()
        relative = RelativeBias(leaf_table) if biased else None
        out = attend(*leaf, rows, Scoring(0.5, relative, window, consecutive), backend)
        (out * weight).sum().backward()
        results.append([out, leaf.grad, *([leaf_table.grad] if biased else [])])
    for ours, theirs in zip(*results, strict=True):
        assert error(ours, theirs) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("window", [None, 60])
@pytest.mark.parametrize("relative", [False, True])
def test_sdpa_equals_reference_with_a_bias_between_rows(dtype, window, relative):
    torch.manual_seed(0)
    rows, qkv = some_rows(2, 50, padding=20), heads(2, 3, 50, 16).to(dtype)
    weight, given, table = torch.randn(2, 3, 50, 16), torch.randn(2, 3, 50, 50).to(dtype), torch.randn(32, 3)
    results = []
    for backend, precision in (("sdpa", dtype), ("reference", torch.float64)):
        leaf, bias = qkv.to(precision).detach().requires_grad_(), given.to(precision).detach().requires_grad_()
        by_distance = RelativeBias(table.to(torch.promote_types(precision, torch.float32))) if relative else None
        out = attend(*leaf, rows, Scoring(0.5, by_distance, window, bias=bias), backend)
        (out * weight).sum().backward()
        results.append([out, leaf.grad, bias.grad])
    for ours, theirs in zip(*results, strict=True):
        assert error(ours, theirs) < TOLERANCE[dtype]


def test_a_bias_between_rows_is_added_to_their_scores():
    torch.manual_seed(0)
    q, k, v = heads(1, 2, 40, 8).double()
    rows, bias = (
        Rows(torch.zeros(1, 40, 1), torch.ones(1, 40), torch.arange(40)[None]),
        torch.randn(1, 2, 40, 40).double(),
    )
    for backend in ("reference", "sdpa"):
        found = attend(q, k, v, rows, Scoring(bias=bias), backend)
        assert torch.allclose(found, F.scaled_dot_product_attention(q, k, v, bias))


def test_reference_of_single_tokens_is_plain_attention():
    torch.manual_seed(0)
    q, k, v = heads(1, 2, 40, 8).double()
    rows = Rows(torch.zeros(1, 40, 1), torch.ones(1, 40), torch.arange(40)[None])
    assert torch.allclose(attend(q, k, v, rows, backend="reference"), F.scaled_dot_product_attention(q, k, v))


def test_a_row_that_stands_for_n_tokens_weighs_as_n_equal_rows():
    torch.manual_seed(0)
    q, k, v = heads(1, 2, 4, 8).double()
    counts = torch.tensor([[1, 3, 2, 1]])
    some = attend(q, k, v, Rows(torch.zeros(1, 4, 1), counts, torch.zeros(1, 4)))
    repeated = [part.repeat_interleave(counts[0], 2) for part in (q, k, v)]
    every = attend(*repeated, Rows(torch.zeros(1, 7, 1), torch.ones(1, 7), torch.zeros(1, 7)))
    assert torch.allclose(some, every[:, :, [0, 1, 4, 6]])


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
@pytest.mark.parametrize("options", [{}, {"window": 5}, {"consecutive": True}])
def test_padding_gets_no_probability_and_all_padding_is_finite(backend, options):
    torch.manual_seed(0)
    q, k, v = heads(2, 2, 30, 8)
    rows = some_rows(2, 30, padding=30)
    rows.counts[0, 20:] = 0
    relative = RelativeBias(torch.randn(32, 2))
    out = attend(q, k, v, rows, Scoring(relative=relative, **options), backend)
    assert out.isfinite().all()
    k[0, :, 20:], v[0, :, 20:] = 1e4, 1e4
    again = attend(q, k, v, rows, Scoring(relative=relative, **options), backend)
    assert torch.equal(out[0, :, :20], again[0, :, :20])


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_a_window_hides_what_is_further_away(backend):
    torch.manual_seed(0)
    q, k, v = heads(1, 1, 20, 8)
    rows = Rows(torch.zeros(1, 20, 1), torch.ones(1, 20), torch.arange(20)[None] * 1.5)
    near = (rows.positions[0] - rows.positions[0, 7]).abs() <= 4
    alone = attend(*(part[:, :, near] for part in (q, k, v)), Rows(torch.zeros(1, 5, 1), torch.ones(1, 5), torch.zeros(1, 5)))  # fmt: skip # noqa: E501
    assert near.sum() == 5
    assert torch.allclose(attend(q, k, v, rows, Scoring(window=4), backend)[:, :, 7], alone[:, :, 2], atol=1e-6)


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_a_padding_row_with_nothing_near_sees_itself(backend):
    torch.manual_seed(0)
    q, k, v = heads(1, 1, 6, 8)
    rows = Rows(torch.zeros(1, 6, 1), torch.tensor([[2, 1, 3, 1, 0, 0]]), torch.tensor([[0, 1, 2, 3, 900, 901]]))
    out = attend(q, k, v, rows, Scoring(window=4), backend)
    both = F.scaled_dot_product_attention(*(part[:, :, 4:] for part in (q, k, v)))
    assert not torch.allclose(out[:, :, 4:], both, atol=1e-3)  # padding does not see other padding
    assert torch.allclose(out[:, :, 4:], v[:, :, 4:])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_folded_bias_is_exact_to_a_millionth(dtype):
    torch.manual_seed(0)
    counts = torch.randint(1, 300, (2, 50))
    counts[1, 40:] = 0
    bias, scale = log_counts(counts), 0.125
    q, k, v = torch.zeros(3, 2, 2, 50, 8, dtype=dtype)
    q, k, v = fold(q, k, v, bias, scale)
    scores = scale * (q.double() @ k.double().mT)
    real = (counts > 0)[:, None, None].expand_as(scores)
    exact = bias.double()[:, None, None].expand_as(scores)
    assert (scores - exact)[real].abs().max() < 2e-6
    assert scores[~real].max() < -1000


def test_dropout_keeps_the_expectation():
    torch.manual_seed(0)
    q, k, v = heads(1, 1, 12, 8)
    rows = some_rows(1, 12)
    for backend in ("reference", "sdpa"):
        mean = torch.stack([attend(q, k, v, rows, Scoring(dropout=0.2), backend) for _ in range(800)]).mean(0)
        assert error(mean, attend(q, k, v, rows)) < 0.05


def test_auto_is_sdpa_without_a_gpu():
    assert fastest(torch.zeros(1, 1, 4, 16), Scoring()) == "sdpa"


def test_a_backend_that_cannot_run_says_why(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    q, k, v = heads(1, 1, 4, 16)
    with pytest.raises(ValueError, match="Triton is not installed|not on a CUDA device"):
        attend(q, k, v, some_rows(1, 4), backend="triton")
    with pytest.raises(ValueError, match="'flash'"):
        attend(q, k, v, some_rows(1, 4), backend="flash")


def test_shapes_that_do_not_fit_are_refused():
    q, k, v = heads(1, 2, 4, 16)
    with pytest.raises(ValueError, match="rows"):
        attend(q, k, v, some_rows(1, 5))
    with pytest.raises(ValueError, match="heads"):
        attend(q, k, v, some_rows(1, 4), Scoring(relative=RelativeBias(torch.zeros(32, 3))))


def test_autocast_decides_the_type():
    q, k, v = heads(1, 2, 4, 16)
    with torch.autocast("cpu", torch.bfloat16):
        assert attend(q, k, v, some_rows(1, 4)).dtype == torch.bfloat16


@pytest.mark.parametrize("options", [{}, {"biased": True}, {"biased": True, "consecutive": True}, {"window": 9}])
def test_sdpa_compiles_as_one_graph(options):
    torch.manual_seed(0)
    torch._dynamo.reset()
    rows, table = some_rows(2, 30, padding=4), torch.randn(32, 2)
    options = dict(options)
    relative = options.pop("biased", False)

    def run(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        return attend(q, k, v, rows, Scoring(relative=RelativeBias(table) if relative else None, **options))

    results = []
    qkv = heads(2, 2, 30, 8)
    for function in (run, torch.compile(run, fullgraph=True, backend="aot_eager")):
        leaves = [part.detach().clone().requires_grad_() for part in (*qkv, table)]
        out = function(*leaves)
        out.square().sum().backward()
        results.append([out, *(leaf.grad for leaf in leaves if leaf.grad is not None)])
    assert all(torch.allclose(ours, theirs, atol=1e-5) for ours, theirs in zip(*results, strict=True))


def test_a_new_backend_is_a_row_of_the_table(monkeypatch):
    monkeypatch.setitem(
        BACKENDS, "first", lambda q, k, v, rows, scoring: v[:, :, :1].expand_as(v) * scoring.scale_of(q)
    )
    q, k, v = heads(1, 2, 4, 16)
    assert torch.equal(attend(q, k, v, some_rows(1, 4), backend="first"), v[:, :, :1].expand_as(v) / 4)


def test_a_negative_window_is_refused():
    with pytest.raises(ValueError, match="window is -1; it must be at least 0"):
        Scoring(window=-1)
    with pytest.raises(ValueError, match="first is -2; it must be at least 0"):
        Scoring(window=1, first=-2)


@pytest.mark.parametrize("first", [0, 3, 40])
@pytest.mark.parametrize("window", [0, 1, 7, 64])
@pytest.mark.parametrize("biased", [False, True])
def test_tokens_in_their_order_are_attended_to_in_blocks(first: int, window: int, biased: bool) -> None:
    """Single tokens with gaps between them, padding at the end of one element; the first rows stand elsewhere."""
    torch.manual_seed(0)
    r = 40
    q, k, v = heads(2, 2, r, 8).double()
    positions = torch.cat([torch.tensor([5, 60, 2])[:first], 2 * torch.arange(r) - torch.arange(r) % 2])[:r]
    real = torch.ones(2, r, dtype=torch.bool)
    real[1, 31:] = False
    if first:
        real[0, first - 1] = False
    rows = Rows(torch.zeros(2, r, 1), real, positions.expand(2, r))
    relative = RelativeBias(torch.randn(32, 2, dtype=torch.float64)) if biased else None
    scoring = Scoring(relative=relative, window=window, first=first)
    leaves = [[part.clone().requires_grad_() for part in (q, k, v)] for _ in range(2)]
    expected = attend(*leaves[0], rows, scoring, "reference")
    found = attend(*leaves[1], rows, replace(scoring, ordered=True), "sdpa")
    seen = real[:, None, :, None]
    for out in (expected, found):
        (out * seen).square().sum().backward()
    assert ((found - expected) * seen).abs().max() < 1e-12
    for one, other in zip(*leaves, strict=True):
        assert (one.grad - other.grad).abs().max() < 1e-12
