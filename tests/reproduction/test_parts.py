"""A packed folder in parts, put together again."""

import subprocess
from pathlib import Path

from reproduction.small.parts import cut_into_parts


def test_parts_are_small_and_give_back_the_folder(tmp_path: Path) -> None:
    """With the commands that the documentation names, not with our own code."""
    packed = tmp_path / "packed"
    (packed / "inner").mkdir(parents=True)
    contents = {"a": b"x" * 50_000, "inner/b": bytes(range(256)) * 400, "c": b""}
    for name, content in contents.items():
        (packed / name).write_bytes(content)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "part-99").write_bytes(b"of an older, larger folder")
    parts = cut_into_parts(packed, most=40_000)
    sizes = [part.stat().st_size for part in parts]
    assert len(parts) > 3 and max(sizes) <= 40_000 and set(sizes[:-1]) == {40_000}
    there = tmp_path / "there"
    there.mkdir()
    subprocess.run(f"cat {tmp_path}/parts/part-* | tar -x -C {there}", shell=True, check=True)
    found = {str(file.relative_to(there / "packed")): file.read_bytes() for file in there.rglob("*") if file.is_file()}
    assert found == contents
