import pytest
import torch
from hypothesis import given

from tests.cases import Case, cases
from vcc import Rows, join_vips, split_vips
from vcc.core.vips import pack
from vcc.testing import random_rows


@given(cases())
def test_join_undoes_split(case: Case) -> None:
    vips, context, layout = split_vips(case.rows, case.vip_mask, case.config.max_vips)
    joined = join_vips(vips, context, layout)
    assert torch.equal(joined.hidden, case.rows.hidden)
    assert torch.equal(joined.counts, case.rows.counts)
    assert torch.equal(joined.positions, case.rows.positions)


@given(cases())
def test_each_part_holds_its_tokens_in_order_and_padding_last(case: Case) -> None:
    rows = case.rows
    vips, context, _ = split_vips(rows, case.vip_mask, case.config.max_vips)
    for element in range(rows.counts.shape[0]):
        real = rows.counts[element] > 0
        marked = case.vip_mask[element] != 0
        for part, members in ((vips, real & marked), (context, real & ~marked)):
            number = int(members.sum())
            assert torch.equal(part.hidden[element, :number], rows.hidden[element][members])
            assert torch.equal(part.positions[element, :number], rows.positions[element][members])
            assert part.counts[element, :number].eq(1).all()
            assert part.counts[element, number:].eq(0).all()


def test_shapes_with_a_capacity_do_not_depend_on_the_mask() -> None:
    rows = random_rows(2, 6)
    none, every = torch.zeros(2, 6), torch.ones(2, 6)
    shapes = {(len(vips), len(context)) for vips, context, _ in (split_vips(rows, mask, 6) for mask in (none, every))}
    assert shapes == {(6, 6)}


@pytest.mark.parametrize("capacity", [None, 0, 5])
def test_an_empty_sequence_and_an_empty_batch_split_and_join(capacity: int | None) -> None:
    for batch, n in ((2, 0), (0, 3), (0, 0)):
        rows = random_rows(batch, n)
        parts = split_vips(rows, torch.zeros(batch, n), capacity)
        assert join_vips(*parts).hidden.shape == (batch, n, 8)


def test_more_vips_than_reserved_rows_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"more VIPs than the 1 rows reserved \(max_vips\)"):
        split_vips(random_rows(1, 3), torch.ones(1, 3), capacity=1)


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"vip_mask has shape \(1, 4\); it must be \(1, 3\), one entry per token"):
        split_vips(random_rows(1, 3), torch.ones(1, 4))


def test_a_mask_with_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="vip_mask contains NaN; it must hold 1"):
        split_vips(random_rows(1, 2), torch.tensor([[1.0, float("nan")]]))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32])
def test_masks_of_any_type_mean_the_same(dtype: torch.dtype) -> None:
    vips, _, _ = split_vips(random_rows(1, 3), torch.tensor([[0, 1, 1]]).to(dtype))
    assert vips.positions.tolist() == [[1, 2]]


def test_gradients_go_where_the_rows_came_from() -> None:
    """Also where more VIP rows are reserved than there are VIPs: an empty place has no part in anything."""
    rows = random_rows(2, 7)
    counts = rows.counts.clone()
    counts[1, 5:] = 0
    rows = Rows(rows.hidden.requires_grad_(), counts, rows.positions)
    vips, context, layout = split_vips(rows, torch.tensor([[0, 1, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 1, 0]]), capacity=4)
    seats = torch.cat([vips.hidden, context.hidden], 1)
    weights = torch.randn_like(seats) * layout.filled[..., None]
    (gradient,) = torch.autograd.grad((seats * weights).sum(), rows.hidden)
    places = layout.places[..., None].expand_as(gradient)
    assert torch.equal(gradient, weights.gather(1, places))

    parts = [part.with_hidden(part.hidden.detach().requires_grad_()) for part in (vips, context)]
    weights = torch.randn_like(gradient)
    loss = (join_vips(*parts, layout).hidden * weights).sum()
    given = torch.cat(torch.autograd.grad(loss, [part.hidden for part in parts]), 1)
    assert torch.equal(given, torch.zeros_like(given).scatter(1, places, weights))
    assert (~layout.filled).any() and not given[~layout.filled].any()


@given(cases())
def test_packing_then_splitting_is_one_layout(case: Case) -> None:
    packed, packing = pack(case.rows)
    assert (packed.counts.diff() <= 0).all()  # padding is last
    vips, context, layout = split_vips(packed, case.vip_mask.gather(1, packing.tokens), case.config.max_vips)
    joined = join_vips(vips, context, packing.then(layout))
    assert torch.equal(joined.hidden, case.rows.hidden)
    assert torch.equal(joined.counts, case.rows.counts)
