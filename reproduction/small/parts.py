"""A packed folder in parts, for a machine that takes few megabytes at a time.

cat parts/part-* | tar -x -C OUT      # makes OUT/packed
"""

import io
import tarfile
from pathlib import Path
from typing import Any

PART = 40 * 2**20  # bytes


class PartWriter(io.RawIOBase):
    """Writes one stream as files of at most `most` bytes, part-01, part-02, ..."""

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self.most, self.number, self.room = folder, most, 0, 0
        self.file: Any = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while len(left):
            if not self.room:
                self.begin()
            some = left[: self.room]
            self.file.write(some)
            self.room -= len(some)
            left = left[len(some) :]
        return size

    def begin(self) -> None:
        if self.file is not None:
            self.file.close()
        self.number += 1
        self.file, self.room = (self.folder / f"part-{self.number:02}").open("wb"), self.most

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
        super().close()


def cut_into_parts(packed: Path, most: int = PART) -> list[Path]:
    """Write the folder beside itself as parts of one tar archive; older parts are removed."""
    folder = packed.with_name("parts")
    folder.mkdir(exist_ok=True)
    for old in folder.glob("part-*"):
        old.unlink()
    with PartWriter(folder, most) as stream, tarfile.open(fileobj=stream, mode="w|") as archive:  # type: ignore[call-overload]
        for file in sorted(path for path in packed.rglob("*") if path.is_file()):
            archive.add(file, f"{packed.name}/{file.relative_to(packed)}")
    return sorted(folder.glob("part-*"))
