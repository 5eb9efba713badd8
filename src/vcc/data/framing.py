"""Frame every window of a document with the special tokens of the model: [CLS] window [SEP].

The first layers see only one window. A model that was always trained with these tokens uses them as attention sinks.
"""

import numpy as np
from numpy.typing import NDArray

from vcc.data.features import Frame

Ints = NDArray[np.integer]


def framed_places(n: int, window: int, frame: Frame) -> Ints:
    """The place of each of n tokens once every window is framed, (n,)."""
    first, last = len(frame.before), len(frame.after)
    room = window - first - last
    if room < 1:
        raise ValueError(f"window {window} must be larger than the {first + last} special tokens around it")
    token = np.arange(n)
    return token + first + token // room * (first + last)


def framed(ids: Ints, window: int, frame: Frame) -> Ints:
    """The tokens with each window's frame; only the last window may be shorter."""
    room = window - len(frame.before) - len(frame.after)
    pieces = [ids[start : start + room] for start in range(0, max(len(ids), 1), room)]
    return np.concatenate([part for piece in pieces for part in (frame.before, piece, frame.after)])
