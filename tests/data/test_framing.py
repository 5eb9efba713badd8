"""Framed windows: every window starts and ends as the model expects, and no token is lost or moved elsewhere."""

import numpy as np
import pytest

from vcc.data.features import Frame
from vcc.data.framing import framed, framed_places

FRAME = Frame(np.array([101]), np.array([102]), np.array([102]), 1)


@pytest.mark.parametrize("n", [1, 5, 6, 7, 12, 13, 100])
def test_every_window_is_framed_and_every_token_is_found_again(n: int) -> None:
    ids = np.arange(n)
    read = framed(ids, 8, FRAME)
    assert (read[framed_places(n, 8, FRAME)] == ids).all()
    windows = [read[start : start + 8] for start in range(0, len(read), 8)]
    assert all(window[0] == 101 and window[-1] == 102 for window in windows)
    assert len(read) == n + 2 * len(windows) and all(len(window) == 8 for window in windows[:-1])


def test_a_window_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="window 2 must be larger than the 2 special tokens"):
        framed_places(3, 2, FRAME)
