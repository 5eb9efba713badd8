import re
import tomllib
from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError

from vcc.documents.answer import Reply, answer_at
from vcc.documents.show import page
from vcc.documents.show.report import report_html
from vcc.documents.text import Text, join_pieces

NASTY = "<b>&amp;</b> \"quoted\" 'x' </script> & $title <!-- "


class Page(HTMLParser):
    """An independent reading of the page: the text of its right half, its anchors, links and lit-up pieces."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.anchors, self.links, self.marks = "", {}, [], {}
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)
        self.close()
        assert not self.open, f"unclosed elements: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag != "meta":
            self.open.append((tag, values))
        if tag == "a" and "id" in values:
            assert values["id"] not in self.anchors, "an id stands twice on the page"
            self.anchors[values["id"]] = len(self.text)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])

    def handle_endtag(self, tag: str) -> None:
        name, values = self.open.pop()
        assert name == tag
        if tag == "div" and "block" in (values.get("class") or ""):
            self.text += "\n\n"

    def handle_data(self, data: str) -> None:
        if any("block" in (values.get("class") or "") for _, values in self.open):
            for tag, values in self.open:
                if tag == "mark":
                    for name in (values["data-of"] or "").split():
                        self.marks[name] = self.marks.get(name, "") + data
            self.text += data


def test_every_file_of_the_pages_is_in_the_package() -> None:
    root = Path(__file__).parents[3]
    patterns = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    files = [file.name for file in (root / "src/vcc/documents/show").iterdir() if file.is_file()]
    assert {"page.css", "page.html", "report.js", "heatmap.js"} <= set(files)
    for name in files:
        assert any(fnmatch(name, pattern) for pattern in ("*.py", *patterns["vcc.documents.show"])), name


def test_a_page_holds_its_style_sheets_and_script_as_they_are() -> None:
    html = report_html(document_of([("page 1", "some text")]), [], {})
    folder = Path(page.__file__).parent
    for name in ("page.css", "report.css", "report.js"):
        assert (folder / name).read_text() in html


def test_a_value_that_a_page_lacks_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="groups"):
        page.render("report.html", text=document_of([("", "x")]), facts={}, linked=[], blocks=[])


def document_of(pieces: list[tuple[str, str]]) -> Text:
    text, parts = join_pieces(pieces)
    return Text(text, NASTY, "a&b.txt", parts, ("careful <here>",))


def squeezed(text: str) -> str:
    return "".join(text.split())


def test_the_page_needs_nothing_from_outside() -> None:
    document = document_of([("page 1", "some text")])
    html = report_html(document, [Reply("q", (answer_at(document, 0, 4, 0.5),))], {})
    assert not re.search(r"https?:|//[a-z]|@import|url\(|<link|src=", html)


def test_names_and_text_are_escaped_and_the_whole_text_is_there() -> None:
    document = document_of([("page <1>", NASTY + "\n\nsecond"), ("page 2", "third " + NASTY)])
    replies = [Reply(NASTY, (answer_at(document, 3, 60, 0.9),), NASTY, NASTY), Reply("none", ())]
    html = report_html(document, replies, {NASTY: NASTY})
    shown = Page(html)
    assert squeezed(shown.text) == squeezed(document.text)
    assert html.count("</script>") == 1 and "no answer found" in html and "answered <b>1 of 2</b>" in html
    assert "page &lt;1&gt;" in html and "careful &lt;here&gt;" in html


def test_a_page_adds_no_blanks_to_the_text() -> None:
    document = document_of([("page 1", "one  two\n   three\n\nfour"), ("page 2", "five six")])
    spans = [(0, 8), (5, 8), (document.text.index("six"), len(document.text))]
    replies = [Reply("q", (answer_at(document, start, end, 0.5),)) for start, end in spans]
    assert Page(report_html(document, replies, {})).text == document.text + "\n\n"


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.text(alphabet="ab<& \n", min_size=1, max_size=40), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 50)), max_size=6),
)
def test_every_answer_lights_up_its_own_text_however_they_overlap(
    bodies: list[str], spans: list[tuple[int, int]]
) -> None:
    document = document_of([("", "start"), *((f"page {i}", body) for i, body in enumerate(bodies))])
    replies = []
    for start, size in spans:
        start = min(start, len(document.text) - 1)
        span = document.text[start : start + size]
        if span.strip():
            replies.append(Reply(f"q{start}", (answer_at(document, start, start + len(span), 0.5),)))
    page = Page(report_html(document, replies, {}))
    assert squeezed(page.text) == squeezed(document.text)
    assert sorted(page.links) == sorted(2 * [f"#a{number}" for number in range(len(replies))])
    for number, reply in enumerate(replies):
        assert squeezed(page.marks[f"a{number}"]) == squeezed(reply.answers[0].text)
        after = page.text[page.anchors[f"a{number}"] :]
        assert squeezed(after).startswith(squeezed(reply.answers[0].text))
