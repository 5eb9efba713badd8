"""A place that several passages hold is judged by all of them.

With other text around it, the same span has another lead. The best lead alone shows what one passage happens to like;
its mean with what all passages say of the place is right more often.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from vcc.qa.windows import Found

LEAST = -10.0  # a lead below counts as this


class View(NamedTuple):
    """A passage that was read with a question, and its best spans."""

    start: int  # token of the document
    end: int  # excluded
    spans: Sequence[Found]


def agreed(views: Sequence[View]) -> list[Found]:
    """Return the spans of all views. The score of each becomes the mean of its lead and of the average over the views
    that hold it.

    Its lead in another view is that of the best span there that overlaps it, or without one that of the last span
    there, but at most its own. A span that only one view holds keeps its score.
    """
    views = [view for view in views if view.spans]
    tables = [np.array([(span.first, span.last, span.score) for span in view.spans]) for view in views]
    found: list[Found] = []
    for view, table in zip(views, tables, strict=True):
        first, last, own = table.T
        total, holding = np.zeros(len(own)), np.zeros(len(own))
        for other, theirs in zip(views, tables, strict=True):
            held = (other.start <= first) & (last < other.end)
            if held.any():
                overlap = (theirs[:, 0] <= last[:, None]) & (first[:, None] <= theirs[:, 1])
                said = np.where(overlap, theirs[:, 2], theirs[:, 2].min()).max(1)
                total += held * np.minimum(np.maximum(said, LEAST), own)
                holding += held
        scores = (own + total / holding) / 2
        found += [replace(span, score=score) for span, score in zip(view.spans, scores.tolist(), strict=True)]
    return found
