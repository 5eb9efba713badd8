import contextlib
import io
import os
import sys
import zipfile
from pathlib import Path

import docx
import pypdf
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.documents.samples import epub_bytes, pdf_bytes, write
from vcc.documents.formats import read as formats
from vcc.documents.formats.gate import File, open_file
from vcc.documents.formats.read import FORMATS, Format, format_of, read_text
from vcc.documents.text import Pieces, Text
from vcc.errors import DocumentError
from vcc.printable import printable


def labels(document: Text) -> list[str]:
    return [part.label for part in document.parts]


def part_of(document: Text, words: str) -> str:
    return document.part_at(document.text.index(words)).label


# ---------------------------------------------------------------- text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_text_reads_the_same_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path / "a.txt", "Caf\u00e9 \u20ac 5 \u201cdone\u201d\r\nnext".encode(encoding))
    document = read_text(path)
    assert document.text == "Café € 5 “done”\nnext" and document.title == "a" and document.source == str(path)


@pytest.mark.parametrize(
    ("name", "data", "rule"),
    [
        ("empty.txt", b" \n\t ", "is empty"),
        ("empty.html", b"<html><script>x</script></html>", "holds no text"),
        ("noise.txt", bytes(range(256)) * 9, "binary"),
        ("picture.txt", b"\x89PNG\r\n\x1a\n\0\0\0", "binary"),
        ("russian.txt", "Все счастливые семьи похожи".encode("cp1251"), "neither UTF-8 nor Western"),
        ("undefined.txt", b"plain text and then \x81 a byte that is nothing", "not valid cp1252"),
        ("half.txt", b"\xff\xfea\x00b", "not valid utf-16"),
        ("old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" * 9, "old or password-protected Office"),
        ("rich.rtf", rb"{\rtf1 hello}", "RTF"),
        ("fake.pdf", b"only words", "not a PDF"),
        ("fake.docx", b"only words", "not a DOCX"),
        ("torn.docx", b"PK\x03\x04 torn", "broken DOCX, EPUB or ZIP"),
        ("torn.pdf", b"%PDF-1.7\nthis is all there is", "broken PDF"),
        ("packed.md", b"\x1f\x8b\x08 packed", "is compressed: unpack it first"),
        ("rich.html", rb"{\rtf1 hello}", "RTF"),
        ("page.epub", b"<html><p>words", "not an EPUB"),
    ],
)
def test_what_is_no_document_is_refused_with_its_name_and_the_rule(
    tmp_path: Path, name: str, data: bytes, rule: str
) -> None:
    with pytest.raises(DocumentError, match=rule) as caught:
        read_text(write(tmp_path / name, data))
    assert name in str(caught.value)


def test_missing_file_and_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"gone\.txt: no such file"):
        read_text(tmp_path / "gone.txt")
    with pytest.raises(DocumentError, match="no document of a known kind"):
        read_text(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    st.binary() | st.binary().map(lambda b: b"%PDF-1.4\n" + b) | st.binary().map(lambda b: b"PK\x03\x04" + b),
    st.sampled_from(["x.txt", "x.html", "x.md", "x.pdf", "x.docx"]),
)
def test_any_bytes_are_a_document_or_a_document_error(tmp_path: Path, data: bytes, name: str) -> None:
    with contextlib.suppress(DocumentError):
        assert read_text(write(tmp_path / name, data)).text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(st.sampled_from(["pdf", "epub"]), st.data())
def test_a_damaged_file_is_a_document_or_a_document_error(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    good = pdf_bytes([["one"], ["two"]]) if kind == "pdf" else epub_bytes(["<p>one</p>", "<p>two</p>"])
    place = data.draw(st.integers(10, len(good) - 5))
    damaged = good[:place] + data.draw(st.binary(max_size=4)) + good[place + data.draw(st.integers(0, 40)) :]
    with contextlib.suppress(DocumentError):
        assert read_text(write(tmp_path / f"x.{kind}", damaged)).text


def test_plain_headings_and_form_feeds_become_parts(tmp_path: Path) -> None:
    text = "DEED\n\nCHAPTER IV. The Inn\n\nRoom.\n\n## 12. GOVERNING LAW.\n\nThat of Kent.\n\n2. It ends.\n\nSo."
    document = read_text(write(tmp_path / "a.txt", text))
    assert labels(document) == ["beginning", "CHAPTER IV. The Inn", "12. GOVERNING LAW"] and document.text == text
    paged = read_text(write(tmp_path / "b.txt", "first\fsecond\f"))
    assert labels(paged) == ["page 1", "page 2"] and part_of(paged, "second") == "page 2"


# ---------------------------------------------------------------- HTML and Markdown

PAGE = """<!DOCTYPE html><html><head><title>The &amp; Deed</title><style>p {x: y}</style></head><body>
<h1>Deed</h1><h2>of <i>sale</i></h2><p>One   <b>two</b>
three &lt;four&gt;<br>five</p><script>var x = "<p>no</p>";</script>
<ul><li>first</li><li>second</li></ul><h2>Money</h2><table><tr><th>Fee</th><td>$5</td></tr><tr><td>Tax</td><td>$1</td>
</tr></table><pre>  a
   b</pre>"""


def test_html_reads_as_a_browser_lays_it_out(tmp_path: Path) -> None:
    document = read_text(write(tmp_path / "a.html", PAGE))
    assert document.title == "The & Deed" and labels(document) == ["Deed: of sale", "Money"]
    assert document.text == (
        "Deed\n\nof sale\n\nOne two three <four>\nfive\n\n- first\n\n- second\n\n"
        "Money\n\nFee | $5\n\nTax | $1\n\n  a\n   b"
    )


def test_html_is_known_without_a_suffix_and_by_its_declared_encoding(tmp_path: Path) -> None:
    page = '<html><meta charset="koi8-r"><p>Привет</p></html>'.encode("koi8-r")
    assert read_text(write(tmp_path / "page", page)).text == "Привет"


def test_markdown_reads_without_its_marks(tmp_path: Path) -> None:
    front, table = "---\ntitle: 'My Notes'\n---\n", "| a | b |\n|---|---|\n| 1 | 2 |\n"
    text = f"{front}# Start\n\nSome *bold* [words](http://x.y).\n\n## Next\n\n{table}"
    document = read_text(write(tmp_path / "a.md", text))
    assert document.title == "My Notes" and labels(document) == ["Start", "Next"]
    assert document.text == "Start\n\nSome bold words.\n\nNext\n\na | b\n\n1 | 2"


# ---------------------------------------------------------------- PDF


def test_pdf_keeps_its_pages_and_notes_those_without_text(tmp_path: Path) -> None:
    data = pdf_bytes([["The law of (Kent)", "governs."], [], ["Fees are due."]], title="A Deed")
    document = read_text(write(tmp_path / "named.txt", data))  # the content decides, not the name
    assert document.title == "A Deed" and labels(document) == ["page 1", "page 3"]
    assert document.text == "The law of (Kent)\ngoverns.\n\nFees are due." and part_of(document, "Fees") == "page 3"
    assert document.notes == ("no text on page 2 (an image?)",)


def test_pdf_hyphens_follow_the_documents_own_spelling(tmp_path: Path) -> None:
    page = [
        "This agree-",
        "ment has a non-",
        "compete term, a cross-border",
        "rule, a cross-",
        "border tax and a re-",
        "markable price in 2001-",
        "2002 for A-",
        "Corp. The agreement ends.",
    ]
    text = read_text(write(tmp_path / "a.pdf", pdf_bytes([page]))).text
    assert text == (
        "This agreement has a non-compete term, a cross-border\nrule, a cross-border tax and a remarkable price in"
        " 2001-\n2002 for A-\nCorp. The agreement ends."
    )


def test_pdf_without_text_or_with_a_password_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no text on its 2 pages"):
        read_text(write(tmp_path / "scan.pdf", pdf_bytes([[], []])))
    for password, rule in (("secret", "encrypted"), ("", None)):
        writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf_bytes([["words"]])))
        writer.encrypt(password, owner_password="owner", algorithm="RC4-128")
        with (tmp_path / "locked.pdf").open("wb") as file:
            writer.write(file)
        if rule:
            with pytest.raises(DocumentError, match=rule):
                read_text(tmp_path / "locked.pdf")
        else:
            assert read_text(tmp_path / "locked.pdf").text == "words"


def test_a_text_may_mention_the_mark_of_a_pdf_and_a_pdf_may_begin_with_other_bytes(tmp_path: Path) -> None:
    words = "A PDF begins with the bytes %PDF- and a number."
    assert read_text(write(tmp_path / "a.txt", words)).text == words
    for before in (b"\n \n", b"\xef\xbb\xbf", b"some mail header\r\n"):
        assert read_text(write(tmp_path / "a.txt", before + pdf_bytes([["words"]]))).text == "words"


def test_names_headings_and_notes_reach_no_terminal_raw(tmp_path: Path) -> None:
    nasty = "\x1b[31m\x9b2J\u202e\x7f"
    write(tmp_path / f"box/a{nasty}\nvcc: forged.html", f"<title>t{nasty}</title><h1>h{nasty}</h1><p>p{nasty}</p>")
    write(tmp_path / f"box/b{nasty}\nvcc: forged.png", "x")
    (tmp_path / "box" / os.fsdecode(b"c\xff.txt")).write_text("not UTF-8 by name")
    box = read_text(tmp_path / "box")
    page = read_text(tmp_path / f"box/a{nasty}\nvcc: forged.html")
    shown = [box.text, box.title, box.source, *box.notes, *labels(box), page.title, page.source, *labels(page)]
    for words in shown:
        assert printable(words.replace("\n\n", "")) == words.replace("\n\n", "")
    assert page.title == "t[31m2J" and "\\xff" not in page.text and len(box.notes) == 1
    "".join(shown).encode()


# ---------------------------------------------------------------- DOCX and EPUB


def test_docx_keeps_headings_tables_insertions_and_drops_deletions(tmp_path: Path) -> None:
    word = docx.Document()
    word.core_properties.title = "Supply Deed"
    word.add_paragraph("Preamble.")
    word.add_heading("1. Term", level=1)
    paragraph = word.add_paragraph("It lasts ")
    for tag, kind, text in (("ins", "t", "five"), ("del", "delText", "three"), ("moveFrom", "t", "two")):
        paragraph._p.append(
            parse_xml(f'<w:{tag} {nsdecls("w")} w:id="1" w:author="x"><w:r><w:{kind}>{text}</w:{kind}></w:r></w:{tag}>')
        )
    paragraph.add_run(" years.")
    word.element.body.insert(
        3,
        parse_xml(
            f"<w:sdt {nsdecls('w')}><w:sdtContent><w:p><w:r><w:t>In a control.</w:t></w:r></w:p></w:sdtContent></w:sdt>"
        ),
    )
    table = word.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "Fee", "$5"
    word.save(str(tmp_path / "a.docx"))
    document = read_text(tmp_path / "a.docx")
    assert document.title == "Supply Deed" and labels(document) == ["beginning", "1. Term"]
    assert document.text == "Preamble.\n\n1. Term\n\nIt lasts five years.\n\nIn a control.\n\nFee | $5"


def test_epub_follows_the_spine_and_names_the_chapters(tmp_path: Path) -> None:
    chapters = ["<h1>I</h1><h2>The Inn</h2><p>Caf&#233;.</p>", "<p>No heading.</p>", "<h2>Two</h2><p>End.</p>"]
    document = read_text(write(tmp_path / "a.epub", epub_bytes(chapters, title="Tales")))
    assert document.title == "Tales" and labels(document) == ["I: The Inn", "section 2", "Two"]
    assert document.text == "I\n\nThe Inn\n\nCafé.\n\nNo heading.\n\nTwo\n\nEnd."


def test_epub_with_encrypted_pages_is_refused_but_obfuscated_fonts_are_not(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="encrypted EPUB"):
        read_text(write(tmp_path / "a.epub", epub_bytes(["<p>x</p>"], encryption="OEBPS/ch%200.xhtml")))
    assert read_text(write(tmp_path / "b.epub", epub_bytes(["<p>x</p>"], encryption="OEBPS/font.otf"))).text == "x"


def test_a_zip_that_is_neither_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "x")
    with pytest.raises(DocumentError, match="no DOCX and no EPUB"):
        read_text(tmp_path / "a.zip")


# ---------------------------------------------------------------- standard input and folders


@pytest.mark.parametrize(
    ("data", "text"), [(b"plain *words*", "plain *words*"), (pdf_bytes([["a PDF"]]), "a PDF"), (b"<html><p>a", "a")]
)
def test_standard_input_takes_any_format(monkeypatch: pytest.MonkeyPatch, data: bytes, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    document = read_text("-")
    assert document.text == text and document.source == "standard input"


def test_a_folder_is_one_document_with_its_files_as_parts(tmp_path: Path) -> None:
    write(tmp_path / "box/b.pdf", pdf_bytes([["first page"], ["second page"]]))
    write(tmp_path / "box/a/x.md", "# Head\n\nbody")
    write(tmp_path / "box/c.txt", "tail")
    write(tmp_path / "box/torn.pdf", "%PDF-1.4 torn")
    write(tmp_path / "box/picture.png", b"\x89PNG")
    write(tmp_path / "box/.git/config.txt", "hidden")
    document = read_text(tmp_path / "box")
    assert document.title == "box"
    assert labels(document) == ["a/x.md · Head", "b.pdf · page 1", "b.pdf · page 2", "c.txt"]
    assert document.text == "Head\n\nbody\n\nfirst page\n\nsecond page\n\ntail"
    assert document.notes[0] == "skipped picture.png: not a document format"
    assert document.notes[1].startswith("skipped torn.pdf: is a broken PDF")


# ---------------------------------------------------------------- the table


def test_a_new_format_is_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_loud(file: File) -> Pieces:
        return Pieces((("loud", file.data[5:].decode().upper()),), title="Loud")

    row = Format((".loud",), lambda file: file.data.startswith(b"LOUD:"), read_loud, "a LOUD file")
    monkeypatch.setattr(formats, "FORMATS", (row, *FORMATS))
    write(tmp_path / "a.loud", "LOUD:words")
    write(tmp_path / "b.loud", "words")
    write(tmp_path / "c.txt", "LOUD:named otherwise")
    assert read_text(tmp_path / "a.loud").text == "WORDS" and read_text(tmp_path / "a.loud").title == "Loud"
    box = read_text(tmp_path)
    assert box.text == "WORDS\n\nNAMED OTHERWISE" and labels(box) == ["a.loud · loud", "c.txt · loud"]
    assert box.notes == ("skipped b.loud: is not a LOUD file, though its name says so",)


@pytest.mark.parametrize(
    ("name", "data", "suffix"),
    [
        ("a.txt", b"words", ".txt"),
        ("a", b"words", ".txt"),
        ("a.odd", b" <!DOCTYPE html><html>", ".html"),
        ("a.xhtml", b"words", ".html"),
        ("a.markdown", b"<html>", ".md"),  # a page in Markdown is Markdown
        ("a.md", b"%PDF-1.4", ".pdf"),
        ("a.txt", epub_bytes(["<p>x</p>"]), ".epub"),
    ],
)
def test_content_decides_before_the_name(name: str, data: bytes, suffix: str, tmp_path: Path) -> None:
    assert suffix in format_of(open_file(write(tmp_path / name, data))).suffixes


def test_every_file_comes_in_by_one_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that limits on what is read have one place to stand."""
    write(tmp_path / "box/a.txt", "one")
    write(tmp_path / "box/b.txt", "two")
    gate: list[str] = []
    monkeypatch.setattr(formats, "open_file", lambda path, limits: (gate.append(str(path)), open_file(path, limits))[1])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"three")))
    texts = [read_text(path).text for path in (tmp_path / "box", tmp_path / "box/b.txt", "-")]
    assert texts == ["one\n\ntwo", "two", "three"]
    assert gate == [str(tmp_path / "box/a.txt"), str(tmp_path / "box/b.txt"), str(tmp_path / "box/b.txt"), "-"]
