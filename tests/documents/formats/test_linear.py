"""Reading takes time linear in the length of a file, whatever it holds. Eight times the input is compared: linear
reading then takes about 8 times as long, quadratic 64 times, so that noise cannot hide the difference.

What is timed runs apart from the other tests, by `make test-hostile`."""

import gc
import io
import time
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcc.documents.formats.gate import Limits
from vcc.documents.formats.read import read_data
from vcc.documents.formats.tags import Token, html_tokens, unescape
from vcc.documents.formats.word import WORD
from vcc.documents.text import normalise
from vcc.errors import DocumentError

W = f'xmlns:w="{WORD[:-1]}"'


def docx(body: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        made.writestr("word/document.xml", f"<w:document {W}><w:body>{body}</w:body></w:document>")
    return buffer.getvalue()


def boxes(depth: int) -> str:
    inside = "<w:p><w:r><w:t>x</w:t></w:r><w:r><w:txbxContent>"
    return inside * depth + "</w:txbxContent></w:r></w:p>" * depth


def rows(depth: int) -> str:
    return "<w:tr><w:p><w:t>x</w:t></w:p>" * depth + "</w:tr>" * depth


DEEP = Limits(nesting=10**6)
INPUTS: dict[str, tuple[str, int, Callable[[int], bytes | str]]] = {
    "blanks inside a line": ("a.txt", 8000, lambda n: "a" + " " * n + "b"),
    "tabs inside a line": ("a.txt", 8000, lambda n: "a" + "\t" * n + "b"),
    "blanks in a preformatted block": ("a.html", 8000, lambda n: "<pre>a" + " " * n + "b"),
    "blanks behind a title": ("a.md", 8000, lambda n: "---\ntitle: a" + " " * n + "b\n---\nwords"),
    "combining marks": ("a.txt", 20000, lambda n: "a" + "\u0301\u0316" * n),
    "marks that only their parts show to be marks": ("a.txt", 20000, lambda n: "a" + "\u0f73" * n),
    "a number of many digits": ("a.txt", 200000, lambda n: "a\n\n1." + "1" * n + "\n\nb"),
    "sections without lines": ("a.txt", 4000, lambda n: "1. A. " * n),
    "headings in a row": ("a.html", 2000, lambda n: "<h1>a</h1>" * n),
    "headings that are not closed": ("a.html", 2000, lambda n: "<h1>a" * n),
    "tags that are not closed": ("a.html", 40000, lambda n: "<a" * n),
    "comments that are not closed": ("a.html", 40000, lambda n: "<!--" * n),
    "declarations that are not closed": ("a.html", 40000, lambda n: "<![" * n),
    "quotes that are not closed": ("a.html", 20000, lambda n: "<a b=\"'" * n),
    "words in many tags on one line": ("a.html", 8000, lambda n: "<b>word</b>" * n),
    "boxes inside boxes": ("a.docx", 1000, lambda n: docx(boxes(n))),
    "rows inside rows": ("a.docx", 2000, lambda n: docx(rows(n))),
    "Markdown's brackets": ("a.md", 2000, lambda n: "[" * n),
    "Markdown's stars": ("a.md", 1000, lambda n: "*a " * n),
}


def seconds(name: str, data: bytes | str) -> float:
    gc.collect()
    gc.disable()  # a collection looks at everything that other tests left behind
    start = time.process_time()
    try:
        read_data(data.encode() if isinstance(data, str) else data, name, DEEP)
    except DocumentError as error:
        assert "holds no text" in str(error)
    finally:
        gc.enable()
    return time.process_time() - start


@pytest.mark.slow
@pytest.mark.parametrize("kind", INPUTS)
def test_eight_times_the_input_takes_at_most_about_eight_times_as_long(kind: str) -> None:
    name, number, make = INPUTS[kind]
    small, large = make(number), make(8 * number)
    once = min(seconds(name, small) for _ in range(3))
    assert min(seconds(name, large) for _ in range(3)) < 24 * once + 0.05


@pytest.mark.parametrize("kind", INPUTS)
def test_hostile_inputs_are_read(kind: str) -> None:
    name, number, make = INPUTS[kind]
    seconds(name, make(number))


def test_boxes_follow_their_paragraph_once_each() -> None:
    document = read_data(docx(boxes(3) + "<w:p><w:t>end</w:t></w:p>"), "a.docx")
    assert document.text == "x\n\nx\n\nx\n\nend"
    assert read_data(docx(rows(3)), "a.docx").text == "x | x | x"


def test_a_letter_keeps_thirty_marks() -> None:
    for mark in ("\u0301", "\u0344", "\u0f73"):  # the second and third become two each
        once = normalise("a" + mark * 1000 + "b")
        assert normalise(once) == once and len(once) < 40
    vietnamese = "Vie\u0302\u0323t Nam"
    assert normalise(vietnamese) == "Vi\u1ec7t Nam"


# ---------------------------------------------------------------- the tags


class Standard(HTMLParser):
    """The standard library's parser, as an oracle for pages that are well formed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tokens: list[Token] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tokens.append(("start", tag))

    def handle_endtag(self, tag: str) -> None:
        self.tokens.append(("end", tag))

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.tokens.append(("empty", tag))

    def handle_data(self, data: str) -> None:
        if not (self.tokens and self.tokens[-1][0] == "start" and self.tokens[-1][1] in ("script", "style")):
            self.tokens.append(("text", data))


def joined(tokens: list[Token]) -> list[Token]:
    """Texts side by side as one."""
    found: list[Token] = []
    for kind, content in tokens:
        if kind == "text" and found and found[-1][0] == "text":
            found[-1] = ("text", found[-1][1] + content)
        else:
            found.append((kind, content))
    return found


PIECES = st.sampled_from(
    [
        "words ", "a < b", "5 > 3", "&amp;", "&lt;p&gt;", "&#233;", "&#xE9;", "&unknown;", "&copy ", "\n",
        "<p>", "</p>", "<P CLASS=x>", "<br/>", "<br />", '<a href="x>y">', "<a href='\"'>", "<a href=x>", "</a >",
        "<!-- a > b -->", "<!doctype html>", "<?php x ?>", "<h1 id = 'a'>", "</h1>", "<script>a < b; '<p>'</script>",
        "<style>p > a {}</style>", "<svg:a/>", "<td\n>",
    ]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(PIECES, max_size=12))
def test_tags_are_those_of_the_standard_parser(pieces: list[str]) -> None:
    page = "".join(pieces)
    assert joined(list(html_tokens(page))) == joined(Standard(page).tokens)


@settings(deadline=None)
@given(st.text(st.sampled_from("<>!-/a=\"'&#[]x;1 "), max_size=60))
def test_any_page_is_read_without_an_error(page: str) -> None:
    list(html_tokens(page))


def test_character_numbers_of_any_length_are_read() -> None:
    assert unescape("&#" + "9" * 5000 + ";&#x41;&#" + "0" * 5000 + "65;&#x" + "f" * 5000) == "\ufffdAA\ufffd"
