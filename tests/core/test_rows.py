import pytest
import torch

from vcc import Rows
from vcc.core.rows import concat_rows, log_counts, pad_rows, sum_dtype, take, take_rows
from vcc.core.vips import pack
from vcc.testing import random_rows


def test_log_counts_weighs_a_row_like_that_many_equal_keys() -> None:
    counts = torch.tensor([[3.0, 1.0, 0.0]])
    logits = torch.tensor([[0.3, -1.2, 5.0]])
    weights = (logits + log_counts(counts)).softmax(-1)
    repeated = torch.tensor([0.3, 0.3, 0.3, -1.2]).softmax(-1)
    torch.testing.assert_close(weights[0], torch.stack([repeated[:3].sum(), repeated[3], torch.tensor(0.0)]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_padding_gets_no_attention_and_all_padding_still_has_a_softmax(dtype: torch.dtype) -> None:
    counts = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    weights = (torch.tensor([9.0, -9.0, 3.0], dtype=dtype) + log_counts(counts, dtype)).softmax(-1)
    assert weights[0].tolist() == [0, 1, 0]
    assert weights[1].isfinite().all() and abs(float(weights[1].sum()) - 1) < 1e-2


def test_take_reads_the_same_place_of_every_field() -> None:
    rows = random_rows(2, 5)
    index = torch.tensor([[4, 0], [1, 1]])
    taken = take_rows(rows, index)
    for element in range(2):
        assert torch.equal(taken.hidden[element], rows.hidden[element][index[element]])
        assert torch.equal(taken.positions[element], rows.positions[element][index[element]])
    assert torch.equal(take(rows.hidden[..., None], index)[..., 0], taken.hidden)


def test_pad_rows_appends_rows_of_count_zero() -> None:
    rows = random_rows(2, 3)
    padded = pad_rows(rows, 5)
    assert len(padded) == 5 and padded.counts[:, 3:].eq(0).all()
    assert torch.equal(padded.hidden[:, :3], rows.hidden)
    assert pad_rows(rows, 3) is rows


def test_concat_rows_keeps_the_first_hidden_type_and_fractional_positions() -> None:
    vips = Rows(torch.zeros(1, 1, 8).bfloat16(), torch.ones(1, 1).long(), torch.tensor([[6]]))
    segment = Rows(torch.zeros(1, 1, 8), torch.tensor([[4.0]]), torch.tensor([[1.5]]))
    joined = concat_rows(vips, segment)
    assert joined.hidden.dtype == torch.bfloat16
    assert joined.counts.tolist() == [[1, 4]] and joined.positions.tolist() == [[6, 1.5]]


def test_sums_are_kept_in_at_least_float32() -> None:
    assert [sum_dtype(t) for t in (torch.float16, torch.bfloat16, torch.float32)] == [torch.float32] * 3
    assert sum_dtype(torch.float64) == torch.float64


def test_integer_hidden_states_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(1, 2, 3\) and dtype torch.int64; it must be a floating-point"):
        Rows(torch.zeros(1, 2, 3, dtype=torch.int64), torch.ones(1, 2), torch.ones(1, 2))


def test_hidden_states_without_a_batch_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 3\).*\(batch, rows, features\)"):
        Rows(torch.zeros(2, 3), torch.ones(2), torch.ones(2))


@pytest.mark.parametrize("field", ["counts", "positions"])
def test_a_field_of_another_length_is_refused(field: str) -> None:
    fields = {"counts": torch.ones(1, 2), "positions": torch.ones(1, 2), field: torch.ones(1, 4)}
    with pytest.raises(ValueError, match=rf"Rows.{field} has shape \(1, 4\); it must be \(1, 2\)"):
        Rows(torch.zeros(1, 2, 3), **fields)


def test_rows_of_tokens_know_that_they_are_single_tokens() -> None:
    rows = random_rows(2, 4)
    real = torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0]])
    tokens = Rows.of_tokens(rows.hidden, real, rows.positions)
    assert torch.equal(tokens.counts, real != 0)
    assert tokens.single_tokens and not tokens.packed_tokens  # padding stands before tokens
    assert pack(tokens)[0].packed_tokens and pack(tokens)[0].single_tokens
    assert not rows.single_tokens and not pack(rows)[0].single_tokens  # ones may be counts of anything
