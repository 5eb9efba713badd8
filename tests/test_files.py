"""Files are written whole or not at all, and nothing but files is ever replaced."""

import os
from pathlib import Path

import pytest

from vcc.errors import UsageError
from vcc.files import write_whole


def test_a_file_and_a_link_are_replaced_and_what_the_link_names_stays(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("untouched")
    for place in (tmp_path / "new", tmp_path / "link"):
        if place.name == "link":
            place.symlink_to(other)
        for content in ("first", b"second"):
            write_whole(place, content)
        assert place.read_text() == "second" and not place.is_symlink()
    assert other.read_text() == "untouched" and sorted(os.listdir(tmp_path)) == ["link", "new", "other"]


def test_devices_pipes_and_folders_are_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to-device").symlink_to("/dev/null")
    kinds = {place: os.stat(place).st_mode for place in (Path("/dev/null"), *tmp_path.iterdir())}
    for place, kind in kinds.items():
        with pytest.raises(UsageError, match="not a regular file"):
            write_whole(place, "page")
        assert os.stat(place).st_mode == kind


def test_what_is_interrupted_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "page"
    write_whole(place, "before")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_whole(place, "after")
    assert place.read_text() == "before" and os.listdir(tmp_path) == ["page"]
