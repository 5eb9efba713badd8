"""Every window of a document between the tokens that a model expects around a text: [CLS] window [SEP].

The first layers see a window and nothing else. A model that was never trained without these tokens uses them as a place
to look at when there is nothing to look at.
"""

import numpy as np
from numpy.typing import NDArray

from vcc.data.features import Frame

Ints = NDArray[np.integer]


def framed_places(n: int, window: int, frame: Frame) -> Ints:
    """Where each of n tokens stands once every window is framed, (n,)."""
    first, last = len(frame.before), len(frame.after)
    room = window - first - last
    if room < 1:
        raise ValueError(f"window {window} has no room beside the {first + last} tokens around it")
    token = np.arange(n)
    return token + first + token // room * (first + last)


def framed(ids: Ints, window: int, frame: Frame) -> Ints:
    """The tokens with each window's frame; only the last window may be shorter."""
    room = window - len(frame.before) - len(frame.after)
    pieces = [ids[start : start + room] for start in range(0, max(len(ids), 1), room)]
    return np.concatenate([part for piece in pieces for part in (frame.before, piece, frame.after)])
