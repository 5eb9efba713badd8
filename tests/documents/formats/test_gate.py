"""What may come in: regular files, within limits, and nothing that links lead to outside a folder."""

import io
import os
import signal
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents.samples import epub_bytes, write
from vcc.documents.formats.gate import Archive, File, Limits, open_file
from vcc.documents.formats.read import read_data, read_text
from vcc.errors import DocumentError, UsageError

SMALL = Limits(file_bytes=1000, unpacked_bytes=3000, characters=500, nesting=5)


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """What waits for ever, or fills the memory, fails here instead."""
    signal.alarm(20)
    yield
    signal.alarm(0)


def test_a_file_over_a_limit_is_refused_with_its_size_the_limit_and_the_way_to_raise_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"x" * 1001)
    with pytest.raises(DocumentError, match=r"a\.txt: has 1,001 bytes or more, above the limit of 1,000: --max-size"):
        read_text(path, SMALL)
    assert len(read_text(path).text) == 1001
    assert len(read_text(path, SMALL.for_files_of(2100)).text) == 1001  # the limit on the text grows along
    with pytest.raises(DocumentError, match=r"600 characters or more, above the limit of 500: --max-size"):
        read_text(write(path, b"x" * 600), SMALL)


def test_standard_input_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/zero", "rb") as endless:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(endless))
        with pytest.raises(DocumentError, match="standard input: has .* above the limit"):
            read_text("-", Limits(file_bytes=5_000_000))


@pytest.mark.parametrize("name", ["file_bytes", "unpacked_bytes", "characters", "nesting"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, None])
def test_a_limit_is_a_whole_number(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"{name} is"):
        Limits(**{name: value})  # type: ignore[arg-type]


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    for name, rule in (("pipe.txt", "is a named pipe"), ("zero.txt", "is a device"), ("a\0b", "cannot be opened")):
        with pytest.raises(DocumentError, match=rule):
            read_text(tmp_path / name)
    with pytest.raises(DocumentError, match="is a folder"):
        open_file(tmp_path)
    write(tmp_path / "good.txt", "words")
    read = read_text(tmp_path)
    assert read.text == "words" and len(read.notes) == 2


def test_links_inside_a_folder_do_not_leave_it(tmp_path: Path) -> None:
    write(tmp_path / "secret/key.txt", "secret words")
    write(tmp_path / "box/a.txt", "own words")
    (tmp_path / "box/b.txt").symlink_to("a.txt")
    (tmp_path / "box/c.txt").symlink_to("../secret/key.txt")
    (tmp_path / "box/d").symlink_to("../secret")
    (tmp_path / "box/e.txt").symlink_to("e.txt")
    read = read_text(tmp_path / "box")
    assert read.text == "own words\n\nown words"
    assert [note.split(":")[0] for note in read.notes] == ["skipped c.txt", "skipped d", "skipped e.txt"]
    (tmp_path / "link").symlink_to("box")  # named by the user: followed
    assert read_text(tmp_path / "link").text == "own words\n\nown words"


def test_folders_nested_too_deep_are_noted_and_not_entered(tmp_path: Path) -> None:
    write(tmp_path / "box/a.txt", "words")
    here = os.getcwd()
    try:
        os.chdir(tmp_path / "box")
        for _ in range(400):  # a thousand would stop pytest as it cleans up
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(here)
    read = read_text(tmp_path / "box")
    assert read.text == "words" and "nested more than 200" in read.notes[0]
    deep = write(tmp_path / "deep/1/2/3/4/x.txt", "deep words")
    assert read_text(tmp_path / "deep", SMALL).text == "deep words" and deep.exists()
    with pytest.raises(DocumentError, match="--max-nesting"):
        read_text(tmp_path / "deep", Limits(nesting=4))


def bomb(size: int) -> bytes:
    """An EPUB with a page of `size` blanks."""
    buffer = io.BytesIO(epub_bytes(["<p>one</p>"]))
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as book:
        book.writestr("OEBPS/big.xhtml", b" " * size)
    return buffer.getvalue()


def test_an_archive_unpacks_to_the_limit_and_no_further() -> None:
    data = bomb(50_000_000)
    assert len(data) < 100_000
    with pytest.raises(DocumentError, match=r"unpacked bytes or more, above the limit of 3,000,000: --max-size"):
        Archive(File(data, "a.epub", limits=Limits(unpacked_bytes=3_000_000))).read("OEBPS/big.xhtml")
    assert read_data(data, "a.epub", Limits(unpacked_bytes=3_000_000)).text == "one"  # it is on no page of the book


def test_all_members_together_stay_under_the_limit() -> None:
    archive = Archive(File(epub_bytes(["x" * 700] * 4), "a.epub", limits=SMALL))
    with pytest.raises(DocumentError, match="above the limit of 3,000"):
        for page in range(4):
            archive.read(f"OEBPS/ch {page}.xhtml")


def test_sizes_that_an_archive_forges_are_not_believed() -> None:
    """It says ten bytes, with their right checksum, and holds fifty million."""
    true = bomb(50_000_000)
    size, crc = struct.pack("<I", 50_000_000), struct.pack("<I", zlib.crc32(b" " * 50_000_000))
    forged = true.replace(size, struct.pack("<I", 10)).replace(crc, struct.pack("<I", zlib.crc32(b" " * 10)))
    assert forged != true
    limits = Limits(unpacked_bytes=3_000_000)
    assert Archive(File(forged, "a.epub", limits=limits)).read("OEBPS/big.xhtml").data == b" " * 10


def test_a_page_listed_many_times_is_read_once() -> None:
    book = epub_bytes(["<p>one</p>"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(book)) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith(".opf"):
                data = data.replace(b'<itemref idref="c0"/>', b'<itemref idref="c0"/>' * 10_000)
            new.writestr(name, data)
    assert read_data(buffer.getvalue(), "a.epub").text == "one"


def test_xml_may_neither_nest_too_deep_nor_define_entities() -> None:
    def book(container: str) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as made:
            made.writestr("META-INF/container.xml", container)
        return buffer.getvalue()

    with pytest.raises(DocumentError, match="201 nested levels"):
        read_data(book("<a>" * 10_000), "a.epub")
    with pytest.raises(DocumentError, match="defines an XML entity"):
        read_data(book('<!DOCTYPE a [<!ENTITY b "words">]><a>&b;</a>'), "a.epub")
