import io
import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from vcc.documents.answer import answer_at
from vcc.documents.layer_view import LayerView, binned, closest_passages, openness_of
from vcc.documents.show.figure import save_png
from vcc.documents.show.heatmap import heatmap_html, runs
from vcc.documents.show.terminal import print_heatmap, print_passages
from vcc.documents.text import Part, Text, join_pieces
from vcc.errors import UsageError

SCALES = (16, 4, 1)


def view_of(n: int = 400, layers: int = 3, seed: int = 0) -> tuple[Text, LayerView]:
    """A document of `n` words and random cuts through it; one word is an answer."""
    rng = np.random.default_rng(seed)
    words = [f"w{i}<&" if i % 7 == 0 else f"w{i}" for i in range(n)]
    lines = "".join(word + ("\n\n" if i % 50 == 49 else " ") for i, word in enumerate(words))
    text, parts = join_pieces([("page 1", lines[: len(lines) // 2]), ("page 2", lines[len(lines) // 2 :])])
    document = Text(text, "Words & </script>", "words.txt", parts)
    offsets = np.array([(m.start(), m.end()) for m in re.finditer(r"\S+", text)])
    n = len(offsets)
    tops = [rng.choice(n // 16, 4, replace=False) for _ in range(layers)]
    openness = np.stack([openness_of(SCALES, (top, np.array([top[0] * 4, top[1] * 4 + 3])), n) for top in tops])
    names = tuple(f"layer {i}" for i in range(layers))
    start = int(offsets[n // 3, 0])
    answers = (answer_at(document, start, start + 9, 0.9),)
    return document, LayerView("Which <word>?", offsets, openness, openness + 0.01, names, SCALES, answers)


@given(st.integers(1, 60), st.data())
def test_openness_says_the_finest_scale_whose_node_holds_the_token(n: int, data: st.DataObject) -> None:
    top = data.draw(st.lists(st.integers(0, (n - 1) // 16), unique=True))
    middle = (
        data.draw(st.lists(st.sampled_from([t * 4 + c for t in top for c in range(4)]), unique=True)) if top else []
    )
    level = openness_of(SCALES, (np.array(top), np.array(middle)), n)
    for token in range(n):
        assert level[token] == (1.0 if token // 4 in middle else 0.5 if token // 16 in top else 0.0)


@given(st.integers(1, 50), st.integers(1, 70))
def test_bins_are_means_of_equal_stretches(n: int, width: int) -> None:
    values = np.random.default_rng(n).random((2, n))
    out = binned(values, width)
    assert out.shape == (2, width)
    for column in range(width):
        first, last = column * n // width, (column + 1) * n // width
        assert np.allclose(out[:, column], values[:, first : max(last, first + 1)].mean(1))


def test_runs_spell_out_every_tokens_history() -> None:
    _, view = view_of()
    starts, codes, histories = runs(view)
    lengths = np.diff([*starts, len(view.offsets)])
    spelled = [histories[code] for code, length in zip(codes, lengths, strict=True) for _ in range(length)]
    assert spelled == ["".join(str(round(v * 2)) for v in column) for column in view.openness.T]
    assert all(a != b for a, b in zip(codes, codes[1:], strict=False))  # neighbours differ: no element too many


class Shaded(HTMLParser):
    """The page read back: every character of the text with the class of the element it stands in."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.classes, self.answer, self.open = "", [], "", []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1][0] == "u":
            self.text += data
            self.classes += [self.open[-1][1]["class"]] * len(data)
            if any(values.get("class") == "answer" for _, values in self.open):
                self.answer += data
        else:
            assert not any(values.get("class") == "block" for _, values in self.open), f"{data!r} between the pieces"


def test_the_page_shades_every_token_with_its_own_history() -> None:
    document, view = view_of()
    html = heatmap_html(document, view, {"tokens": "400"})
    page = Shaded(html)
    assert page.text == document.text and page.answer == view.answers[0].text
    data = json.JSONDecoder().raw_decode(html, html.index("const data = ") + len("const data = "))[0]
    for token, (start, end) in enumerate(view.offsets):
        history = "".join(str(round(value * 2)) for value in view.openness[:, token])
        assert {data["histories"][int(name[1:])] for name in page.classes[start:end]} == {history}
    assert html.count("</script>") == 1 and not re.search(r"https?:|@import|url\(|<link|src=", html)


def test_a_book_stays_light() -> None:
    rng = np.random.default_rng(0)
    n = 131_072
    text = ("word " * 99 + "end.\n\n") * (n // 100 + 1)
    offsets = np.array([(m.start(), m.end()) for m in re.finditer(r"\S+", text)])[:n]
    document = Text(text, "Book", "book.txt", (Part("", 0, len(text)),))
    openness = np.stack([openness_of((16, 1), (rng.choice(n // 16, 90, False),), n) for _ in range(12)])
    view = LayerView("q", offsets, openness, openness, tuple(map(str, range(12))), (16, 1))
    html = heatmap_html(document, view, {})
    assert html.count("<u ") < 2 * 12 * 90 + 1000 and html.count('class="block"') < 500 and len(html) < 1.3 * len(text)


def test_passages_are_the_most_opened_stretches() -> None:
    _, view = view_of()
    found = closest_passages(view, 1000)
    shares = [share for _, _, share in found]
    assert shares == sorted(shares, reverse=True)
    mean = view.openness.mean(0)
    covered = np.zeros(len(mean), bool)
    for first, last, share in found:
        assert np.allclose(mean[first:last], share) and not covered[first:last].any()
        covered[first:last] = True
    assert (covered == (mean > 0)).all()


def test_the_terminal_shows_a_row_a_layer_and_marks_the_answer() -> None:
    document, view = view_of()
    console = Console(file=io.StringIO(), width=90)
    print_heatmap(console, view)
    print_passages(console, document, view)
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "Which <word>?" and "▼" in lines[1]
    rows = [line for line in lines if line.startswith("layer")]
    assert len(rows) == 3 and all(f"{seen:,} rows" in row for row, seen in zip(rows, view.rows, strict=True))
    assert any("page" in line and "%" in line for line in lines)


def test_the_passages_in_the_terminal_do_not_repeat_a_sentence() -> None:
    text = "One fish here. Two fish there. Red fish now. Blue fish then."
    document = Text(text, "Fish", "fish.txt", (Part("", 0, len(text)),))
    offsets = np.array([(m.start(), m.end()) for m in re.finditer(r"\S+", text)])
    openness = np.zeros((2, 12))
    openness[0, [0, 2, 4, 6]] = 1  # two passages of the first sentence, one of the second, one of the third
    console = Console(file=io.StringIO(), width=90)
    print_passages(console, document, LayerView("q", offsets, openness, openness, ("a", "b"), (16, 1)), top=2)
    lines = [line.strip() for line in console.file.getvalue().splitlines()]
    assert lines == ["50%", "One fish here.", "50%", "Two fish there."]


def test_a_character_belongs_to_the_token_that_holds_it_or_the_next() -> None:
    zeros = np.zeros((1, 3))
    view = LayerView("q", np.array([(0, 2), (2, 4), (6, 8)]), zeros, zeros, ("l",), SCALES)
    assert [view.token_at(character) for character in range(10)] == [0, 0, 1, 1, 2, 2, 2, 2, 2, 2]


def test_rows_count_the_nodes_of_the_cut() -> None:
    openness = openness_of(SCALES, (np.array([1]), np.array([5, 6])), 64)
    view = LayerView("q", np.zeros((64, 2), int), openness[None], openness[None], ("l",), SCALES)
    assert view.rows.tolist() == [3 + 2 + 8]  # closed coarse nodes, closed middle nodes, tokens


@pytest.mark.parametrize("answered", [True, False])
def test_the_png_is_an_image_with_many_colours(tmp_path: Path, answered: bool) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    document, view = view_of()
    if not answered:
        view = replace(view, answers=())
    save_png(tmp_path / "strip.png", document, view)
    image = imread(tmp_path / "strip.png")
    assert image.shape[1] == 2000 and len(np.unique(image[::7, ::7].reshape(-1, 4), axis=0)) > 20


def test_a_view_with_the_wrong_shapes_is_refused() -> None:
    offsets, good = np.zeros((4, 2), int), np.zeros((1, 4))
    with pytest.raises(ValueError, match="layers, tokens"):
        LayerView("q", offsets, np.zeros((2, 4)), good, ("l",), (16, 1))
    with pytest.raises(ValueError, match=r"0\.\.1"):
        LayerView("q", offsets, good + 2, good, ("l",), (16, 1))
    with pytest.raises(ValueError, match="end in 1"):
        LayerView("q", offsets, good, good, ("l",), (16,))


def test_the_png_replaces_a_link_and_no_device(tmp_path: Path) -> None:
    document, view = view_of()
    other, link, pipe = tmp_path / "other", tmp_path / "link.png", tmp_path / "pipe.png"
    other.write_text("untouched")
    link.symlink_to(other)
    save_png(link, document, view)
    assert other.read_text() == "untouched" and link.read_bytes().startswith(b"\x89PNG") and not link.is_symlink()
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="not a regular file"):
        save_png(pipe, document, view)
