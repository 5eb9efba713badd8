import torch
from hypothesis import given

from tests.cases import Case, cases
from vcc import Rows
from vcc.core.windows import join_windows, split_windows
from vcc.testing import random_rows


@given(cases())
def test_join_undoes_split(case: Case) -> None:
    pieces, frame = split_windows(case.rows, case.config.window)
    joined = join_windows(pieces, frame)
    assert torch.equal(joined.hidden, case.rows.hidden)
    assert torch.equal(joined.counts, case.rows.counts)
    assert torch.equal(joined.positions, case.rows.positions)


def test_windows_are_consecutive_pieces_of_each_sequence() -> None:
    rows = random_rows(2, 7)
    pieces, _ = split_windows(rows, 3)
    assert pieces.hidden.shape == (6, 3, 8)
    for element in range(2):
        for window, start in enumerate(range(0, 7, 3)):
            expected = rows.hidden[element, start : start + 3]
            assert torch.equal(pieces.hidden[3 * element + window, : len(expected)], expected)
    assert pieces.counts.view(2, 9).tolist() == [[1] * 7 + [0] * 2] * 2


def test_windows_of_padding_are_left_out_and_keep_their_hidden_states() -> None:
    rows = random_rows(2, 6)
    rows = Rows(rows.hidden, torch.tensor([[1.0] * 6, [1.0] + [0.0] * 5]), rows.positions)
    pieces, frame = split_windows(rows, 2)
    assert pieces.hidden.shape == (4, 2, 8)
    joined = join_windows(pieces.with_hidden(pieces.hidden + 1), frame)
    assert torch.equal(joined.hidden[0], rows.hidden[0] + 1)
    assert torch.equal(joined.hidden[1, :2], rows.hidden[1, :2] + 1)
    assert torch.equal(joined.hidden[1, 2:], rows.hidden[1, 2:])


def test_a_window_longer_than_the_sequence_is_the_sequence() -> None:
    rows = random_rows(1, 5)
    pieces, _ = split_windows(rows, 512)
    assert pieces.hidden.shape == (1, 5, 8)


def test_a_slice_of_a_longer_tensor_can_be_split() -> None:
    long = random_rows(2, 9)
    rows = Rows(long.hidden[:, :6], long.counts[:, :6], long.positions[:, :6])
    pieces, frame = split_windows(rows, 3)
    assert torch.equal(join_windows(pieces, frame).hidden, rows.hidden)
