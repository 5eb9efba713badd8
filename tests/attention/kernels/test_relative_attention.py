"""The fused kernel against the reference in float64, forward and every gradient."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from tests.deep import deep_but
from vcc.attention.attend import attend
from vcc.attention.scoring import RelativeBias, Scoring
from vcc.core.rows import Rows

TOLERANCE = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}


def chosen_rows(batch: int, r: int, device: str, padding: int = 0) -> Rows:
    """Rows as a compressed layer sees them: VIPs, then closed nodes of 16 tokens, then runs of opened tokens."""
    vips, opened = min(3, r), min(24, max(0, r - 3))
    closed = r - vips - opened
    runs = torch.arange(opened) % 12 + torch.arange(opened) // 12 * 500 + 40
    positions = torch.cat([torch.arange(vips) * 2, 7.5 + 16 * torch.arange(closed), runs]).repeat(batch, 1).float()
    counts = torch.cat([torch.ones(vips), torch.full((closed,), 16), torch.ones(opened)]).repeat(batch, 1)
    ragged = torch.randint(1, 17, (batch, r))
    counts = torch.where(counts > 1, ragged, 1)
    positions = positions - torch.where(counts > 1, (16 - counts) / 2, 0)  # the mean moves with the missing tokens
    if padding:
        counts[-1, r - padding :] = 0
    return Rows(torch.zeros(batch, r, 1, device=device), counts.to(device), positions.to(device))


@dataclass
class Case:
    q: Tensor
    k: Tensor
    v: Tensor
    grad: Tensor
    table: Tensor
    rows: Rows

    @classmethod
    def random(cls, shape, dtype: torch.dtype, device: str, padding: int = 0) -> "Case":
        batch, heads, r, d = shape
        # Heads as a layer makes them: slices of one projection, so nothing but the features is contiguous.
        q, k, v, grad = torch.randn(batch, r, 4, heads, d, device=device).to(dtype).permute(2, 0, 3, 1, 4)
        return cls(q, k, v, grad, torch.randn(32, heads, device=device), chosen_rows(batch, r, device, padding))

    def run(self, backend: str, dtype: torch.dtype, table: bool = False, **options) -> list[Tensor]:
        """out, dq, dk, dv and the table's gradient."""
        q, k, v = (part.to(dtype).detach().requires_grad_() for part in (self.q, self.k, self.v))
        weights = self.table.to(torch.promote_types(dtype, torch.float32)).detach().requires_grad_()
        relative = RelativeBias(weights) if table else None
        out = attend(q, k, v, self.rows, Scoring(relative=relative, **options), backend)
        out.backward(self.grad.to(dtype))
        return [out, q.grad, k.grad, v.grad, *([weights.grad] if table else [])]


def assert_close(case: Case, dtype: torch.dtype, **options) -> None:
    torch.manual_seed(1)
    fused = case.run("triton", dtype, **options)
    exact = case.run("reference", torch.float64, **options)
    for name, ours, theirs in zip(("out", "dq", "dk", "dv", "dtable"), fused, exact, strict=False):
        error = ((ours.double() - theirs).norm() / (theirs.norm() + 1)).item()  # + 1: a lone row has no gradient
        assert error < TOLERANCE[dtype], f"{name} is off by {error:.1e}"


DTYPES = (torch.float32, torch.bfloat16)
SEEN = [  # by whom: options
    {},
    {"table": True},
    {"window": 40},
    {"window": 20, "consecutive": True},
    {"window": 25, "first": 70},
    {"table": True, "window": 40, "first": 40},
    {"table": True, "consecutive": True},
    {"table": True, "window": 40},
    {"window": 40, "first": 3},
]


@pytest.mark.parametrize(
    ("options", "dtype"),
    deep_but(
        [(options, dtype) for options in SEEN[:5] for dtype in DTYPES] + [(SEEN[5], torch.float32)],
        [(options, dtype) for options in SEEN for dtype in DTYPES],
    ),
    ids=lambda one: ("-".join(one) or "plain") if isinstance(one, dict) else str(one),
)
def test_fused_equals_reference(device, options, dtype):
    torch.manual_seed(0)
    shape = (2, 1, 75, 16) if dtype == torch.float32 else (2, 1, 140, 16)
    assert_close(Case.random(shape, dtype, device, padding=9), dtype, scale=0.4, **options)


QUICK = [(40, 5, True, 100), (0, 33, False, 180), (64, 70, False, 180)]  # more tiles take the interpreter a minute
DEEP = [(*rows, table, 300) for rows in [(3, 20), (40, 5), (0, 33), (64, 70)] for table in (False, True)]


@pytest.mark.parametrize(("first", "window", "table", "r"), deep_but(QUICK, QUICK + DEEP))
def test_tokens_in_their_order_see_each_other_through_a_sliding_window(device, first, window, table, r):
    """The positions of the first rows are missing among the others."""
    torch.manual_seed(0)
    case = Case.random((2, 1, r, 16), torch.float32, device, padding=50)
    asked = torch.arange(first) * 3 + 7
    others = torch.tensor([place for place in range(r) if place not in set(asked.tolist())])
    positions = torch.cat([asked, others[: r - first], r + torch.arange(max(0, r - first - len(others)))])
    counts = torch.ones(2, r)
    counts[1, -50:] = 0
    case.rows = Rows(case.rows.hidden, counts.to(device), positions.repeat(2, 1).float().to(device))
    assert_close(case, torch.float32, table=table, window=window, first=first, ordered=True)


def test_fused_equals_reference_in_float16(device):
    torch.manual_seed(0)
    assert_close(Case.random((1, 2, 70, 32), torch.float16, device), torch.float16, table=True)


@pytest.mark.parametrize("r", [1, 31, 33, 64])
def test_any_number_of_rows_works(device, r):
    torch.manual_seed(0)
    assert_close(Case.random((1, 1, r, 16), torch.float32, device), torch.float32, table=True)


def test_any_head_size_works(device):
    torch.manual_seed(0)
    assert_close(Case.random((1, 1, 40, 24), torch.float32, device), torch.float32, table=True)
    assert_close(Case.random((1, 1, 40, 80), torch.bfloat16, device), torch.bfloat16)


def test_many_windows_share_one_table_gradient(device):
    torch.manual_seed(0)
    case = Case.random((5, 2, 40, 16), torch.bfloat16, device, padding=11)
    assert_close(case, torch.bfloat16, table=True, consecutive=True)


@pytest.mark.parametrize("window", [None, 30])
def test_a_batch_row_of_padding_is_finite_and_changes_nothing_else(device, window):
    torch.manual_seed(0)
    case = Case.random((2, 1, 40, 16), torch.float32, device, padding=40)
    assert_close(case, torch.float32, table=True, window=window)


def test_padding_gets_no_probability(device):
    torch.manual_seed(0)
    case = Case.random((1, 1, 50, 16), torch.float32, device, padding=9)
    before = case.run("triton", torch.float32, table=True)
    case.k, case.v = (torch.cat([part[:, :, :41], part[:, :, 41:] * 1e4], 2) for part in (case.k, case.v))
    after = case.run("triton", torch.float32, table=True)
    assert torch.equal(before[0], after[0])
    assert not after[2][:, :, 41:].any() and not after[3][:, :, 41:].any()


def test_without_gradients_the_result_is_the_same(device):
    torch.manual_seed(0)
    case = Case.random((2, 2, 50, 16), torch.float32, device, padding=9)
    scoring = Scoring(window=20)
    with torch.enable_grad():
        expected = attend(case.q, case.k, case.v, case.rows, scoring, "triton")
    with torch.no_grad():
        found = attend(case.q, case.k, case.v, case.rows, scoring, "triton")
    assert expected.abs().sum() > 0 and torch.equal(found, expected.detach())


def test_dropout_drops_the_same_probabilities_forward_and_backward(device):
    torch.manual_seed(0)
    r, rate = 40, 0.3
    case = Case.random((1, 2, r, 64), torch.float32, device)
    case.v = torch.eye(r, 64, device=device).expand(1, 2, r, 64)  # the output is then the probabilities themselves
    torch.manual_seed(7)
    fused = case.run("triton", torch.float32, table=True, dropout=rate)
    kept = fused[0][..., :r] != 0
    assert abs(kept.double().mean().item() - (1 - rate)) < 0.03
    agree = (kept[:, 0] == kept[:, 1]).double().mean().item()
    assert abs(agree - (rate**2 + (1 - rate) ** 2)) < 0.06  # heads drop independently

    q, k, v, table = (part.double().detach().requires_grad_() for part in (case.q, case.k, case.v, case.table))
    values = torch.eye(r, 64, device=device).double().expand_as(v)
    whole = attend(q, k, values, case.rows, Scoring(relative=RelativeBias(table)), "reference")[..., :r]
    out = (whole * kept / (1 - rate)) @ v
    out.backward(case.grad.double())
    for ours, theirs in zip(fused, [out, q.grad, k.grad, v.grad, table.grad], strict=True):
        assert (ours.double() - theirs).norm() < 3e-6 * theirs.norm()


def test_the_operation_is_what_torch_believes_it_is(device):
    """Its schema, its shapes without data, its gradient registration."""
    from vcc.attention.kernels import relative_attention as module

    torch.manual_seed(0)
    case = Case.random((1, 1, 20, 16), torch.float32, device)
    keys = torch.zeros(1, module.EDGE, device=device)
    keys[:, 20:] = float("-inf")
    q, k, v, table = (part.detach().requires_grad_() for part in (case.q, case.k, case.v, case.table))
    starts = list(RelativeBias(table).starts)
    call = (q, k, v, keys, case.rows.positions, table, None, 0.25, starts, -1, 0, False, False, 0.0)
    torch.library.opcheck(module._attention, call, rtol=1e-4, atol=1e-5)


def test_fused_compiles_as_one_graph(device):
    torch.manual_seed(0)
    case = Case.random((1, 1, 40, 16), torch.float32, device)
    plain = case.run("triton", torch.float32, table=True)
    torch._dynamo.reset()

    def run(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        return attend(q, k, v, case.rows, Scoring(relative=RelativeBias(table)), "triton")

    leaves = [part.detach().requires_grad_() for part in (case.q, case.k, case.v, case.table)]
    out = torch.compile(run, fullgraph=True, backend="aot_eager")(*leaves)
    out.backward(case.grad)
    for ours, theirs in zip([out, *(leaf.grad for leaf in leaves)], plain, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)
