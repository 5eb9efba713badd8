"""The heat map as a figure for a paper."""

import io
from pathlib import Path
from textwrap import shorten

import numpy as np

from vcc.documents.layer_view import Floats, LayerView, binned, closest_passages, heat
from vcc.documents.text import INSTALL, Text
from vcc.errors import UsageError
from vcc.files import write_whole

HEAT = ((0.0, "#f4f1ea"), (0.12, "#fde3a7"), (0.45, "#f59e0b"), (1.0, "#8f2d06"))  # from closed to fully open


def save_png(path: str | Path, text: Text, view: LayerView, around: int = 600) -> None:
    """Plot the question's scores and one row per layer over the whole document, and a close-up.

    The close-up shows `around` tokens around the best answer, or around the most opened passage.
    """
    try:
        from matplotlib.axes import Axes
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.figure import Figure
        from matplotlib.patches import ConnectionPatch, Patch
    except ImportError as error:
        raise UsageError(f"drawing a PNG needs matplotlib: {INSTALL}") from error

    n, layers = len(view.offsets), len(view.layers)
    colours = LinearSegmentedColormap.from_list("heat", HEAT)
    ink, soft, mark = "#1d2129", "#6a7280", "#0b7a6f"
    spans = [(view.token_at(answer.start), view.token_at(answer.end - 1) + 1) for answer in view.answers]
    middle = sum(spans[0]) // 2 if spans else next((first for first, _, _ in closest_passages(view, 1)), n // 2)
    low = int(np.clip(middle - around // 2, 0, max(n - around, 0)))
    high = min(low + around, n)

    figure = Figure(figsize=(10, 1.9 + 0.36 * layers), dpi=200, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    top, wide, close = figure.subplots(3, 1, height_ratios=(0.55, 0.16 * layers + 0.2, 0.16 * layers + 0.2))
    figure.suptitle(
        shorten(view.question, 120, placeholder=" …"), x=0.008, ha="left", fontsize=12, fontweight="bold", color=ink
    )

    def strip(axes: Axes, shown: Floats, first: int, last: int) -> None:
        axes.imshow(
            shown, cmap=colours, vmin=0, vmax=1, aspect="auto", interpolation="nearest", extent=(first, last, layers, 0)
        )
        axes.hlines(np.arange(1, layers), first, last, color="white", lw=1.5)
        axes.set(yticks=np.arange(layers) + 0.5, yticklabels=view.layers)
        axes.tick_params(length=0, colors=soft, labelsize=8)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.spines[:].set_visible(False)

    width = min(n, 1600)
    strip(wide, heat(view.openness, width), 0, n)
    strip(close, view.openness[:, low:high], low, high)
    wide.xaxis.tick_top()
    wide.tick_params(length=0)
    # Attention has a long tail: plot its logarithm above the median.
    profile = np.log(binned(view.scores.mean(0, keepdims=True), width)[0] + 1e-12)
    profile = np.maximum(profile - np.median(profile), 0)
    top.fill_between(np.linspace(0, n, width), profile / max(profile.max(), 1e-12), color="#e0b45a", lw=0)
    top.set(xlim=(0, n), ylim=(0, 1.05), xticks=[], yticks=[0.5], yticklabels=["score"])
    top.tick_params(length=0, colors=soft, labelsize=8)
    top.spines[:].set_visible(False)

    for number, (first, last) in enumerate(spans):
        for axes in (top, wide):
            axes.axvline((first + last) / 2, color=mark, lw=0.7 if number else 1.4)
        if low <= first and last <= high:
            close.axvspan(first, last, facecolor="none", edgecolor=mark, lw=1.6)
    if spans:
        right = spans[0][0] > n / 2
        answer = shorten(view.answers[0].text, 70, placeholder=" …")
        place = {"xytext": (-5 if right else 5, 0), "textcoords": "offset points", "ha": "right" if right else "left"}
        top.annotate(answer, (sum(spans[0]) / 2, 1), color=mark, fontsize=9, va="top", **place)
    for x in (low, high):
        corner = 0 if x == low else 1
        figure.add_artist(
            ConnectionPatch(
                (x, layers), (corner, 1), "data", "axes fraction", axesA=wide, axesB=close, color="#b8b2a5", lw=0.8
            )
        )
    seen, finest = int(view.rows.max()), len(view.scales) - 1
    names = ["every token" if scale == 1 else f"{scale} tokens per row" for scale in view.scales]
    patches = [Patch(facecolor=colours(level / finest), label=name) for level, name in enumerate(names)]
    figure.legend(
        handles=patches, loc="outside lower right", ncols=len(names), frameon=False, fontsize=8, labelcolor=soft
    )
    caption = f"{text.title}: {n:,} tokens, of which each layer saw at most {seen:,} rows"
    figure.text(0.008, 0.045, caption, color=soft, fontsize=8, va="center")
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    write_whole(Path(path), drawn.getvalue())
