"""A checkpoint is complete or absent, and every kind of damage to it is seen."""

import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from vcc.train.checkpoint import (
    MANIFEST,
    CheckpointError,
    checkpoints,
    damage,
    keep_newest,
    lock,
    newest_good,
    remove_leftovers,
    set_aside,
    write_checkpoint,
)

RUN = {"lr": 0.1, "scales": (16, 1)}


def fill(folder: Path) -> None:
    (folder / "weights").write_bytes(bytes(range(256)) * 4)
    (folder / "inner").mkdir()
    (folder / "inner" / "state.json").write_text("{}")


def write(root: Path, step: int, run: dict = RUN) -> Path:
    return write_checkpoint(root, step, run, fill)


def edited(path: Path, **changes: object) -> None:
    manifest = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps({**manifest, **changes}))


def sealed(path: Path, **changes: object) -> None:
    """Edited with care: the manifest's own hash is right."""
    edited(path, **changes)
    body = {key: value for key, value in json.loads((path / MANIFEST).read_text()).items() if key != "sha256"}
    edited(path, sha256=hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest())


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[7] ^= 1
    path.write_bytes(content)


def link(path: Path) -> None:
    target = path.rename(path.parent.parent / "target")
    path.symlink_to(target)


def forge(path: Path) -> None:
    """Other content with its true hash, but not the manifest's own."""
    flip(path / "weights")
    digest = hashlib.sha256((path / "weights").read_bytes()).hexdigest()
    edited(path, files={**json.loads((path / MANIFEST).read_text())["files"], "weights": digest})


HARM: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: os.truncate(path / "weights", 10),
    "longer": lambda path: (path / "weights").write_bytes((path / "weights").read_bytes() + b"x"),
    "flipped": lambda path: flip(path / "weights"),
    "flipped below": lambda path: (path / "inner" / "state.json").write_text("[]"),
    "missing": lambda path: (path / "weights").unlink(),
    "extra": lambda path: (path / "more").touch(),
    "link": lambda path: link(path / "weights"),
    "no manifest": lambda path: (path / MANIFEST).unlink(),
    "zero manifest": lambda path: (path / MANIFEST).write_bytes(bytes(100)),
    "not an object": lambda path: (path / MANIFEST).write_text("[]"),
    "nested too deep": lambda path: (path / MANIFEST).write_text("[" * 100_000),
    "step edited": lambda path: edited(path, step=5),
    "settings edited": lambda path: edited(path, run={}),
    "file and hash edited": forge,
    "hashes edited": lambda path: edited(path, files={}),
    "settings a list, hash right": lambda path: sealed(path, run=[1]),
    "files a list, hash right": lambda path: sealed(path, files=["weights"]),
    "step a list, hash right": lambda path: sealed(path, step=[6]),
    "a pipe": lambda path: ((path / MANIFEST).unlink(), os.mkfifo(path / MANIFEST)),
    "renamed": lambda path: path.rename(path.with_name("checkpoint-9")),
    "empty": lambda path: (shutil.rmtree(path), path.mkdir()),
    "a file": lambda path: (shutil.rmtree(path), path.touch()),
}


@pytest.mark.parametrize("name", HARM)
def test_every_damage_is_seen_and_passed_over(name: str, tmp_path: Path) -> None:
    good, bad = write(tmp_path, 3), write(tmp_path, 6)
    assert damage(good) is None and damage(bad) is None
    HARM[name](bad)
    found = newest_good(tmp_path, RUN)
    assert found.path == good
    assert len(found.rejected) == 1 and found.rejected[0][1]
    assert any("is not usable" in line for line in found.report())
    assert f"resuming from {good}" in found.report()


def test_newest_whole_checkpoint_is_taken(tmp_path: Path) -> None:
    write(tmp_path, 9), write(tmp_path, 10)
    assert newest_good(tmp_path, RUN).path == tmp_path / "checkpoint-10"  # by number, not by name


def test_a_failed_write_leaves_no_trace_and_names_what_is_intact(tmp_path: Path) -> None:
    before = write(tmp_path, 3)

    def full(folder: Path) -> None:
        fill(folder)
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError) as error:
        write_checkpoint(tmp_path, 6, RUN, full)
    for part in ("checkpoint-6", "No space left", str(before)):
        assert part in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]


def test_an_unfinished_write_is_not_a_checkpoint(tmp_path: Path) -> None:
    def killed(folder: Path) -> None:
        fill(folder)
        raise KeyboardInterrupt  # stands for SIGKILL: nothing is cleaned up

    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(tmp_path, 3, RUN, killed)
    assert len(list(tmp_path.iterdir())) == 1
    assert checkpoints(tmp_path) == []
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_continues_only_its_own_checkpoints(tmp_path: Path) -> None:
    own, other = write(tmp_path, 3), write(tmp_path, 6, {**RUN, "lr": 0.2})
    found = newest_good(tmp_path, RUN)
    assert found.path == own and found.rejected[0][0] == other
    assert "lr is 0.2 there and 0.1 here" in found.rejected[0][1]


def test_checkpoints_of_other_settings_only_are_an_error_not_a_new_start(tmp_path: Path) -> None:
    write(tmp_path, 3, {**RUN, "lr": 0.2})
    with pytest.raises(CheckpointError, match="lr is 0.2 there and 0.1 here"):
        newest_good(tmp_path, RUN)


def test_nothing_or_only_damage_means_the_start(tmp_path: Path) -> None:
    assert newest_good(tmp_path / "absent", RUN).path is None
    path = write(tmp_path, 3)
    flip(path / "weights")
    assert newest_good(tmp_path, RUN).path is None


def test_old_ones_are_removed_newest_kept(tmp_path: Path) -> None:
    for step in (1, 2, 10, 9):
        write(tmp_path, step)
    keep_newest(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-9"]


def test_a_rejected_checkpoint_is_kept_under_another_name_and_replaced(tmp_path: Path) -> None:
    path = write(tmp_path, 3)
    flip(path / "weights")
    assert set_aside(path).name == "checkpoint-3.rejected-1"
    set_aside(write(tmp_path, 3))
    flip(write(tmp_path, 3) / "weights")
    write(tmp_path, 3)  # over the damaged one
    assert damage(path) is None
    assert {p.name for p in tmp_path.iterdir()} == {"checkpoint-3", *(f"checkpoint-3.rejected-{i}" for i in (1, 2, 3))}


def test_two_runs_cannot_write_into_one_folder(tmp_path: Path) -> None:
    with lock(tmp_path), pytest.raises(CheckpointError, match="another run"), lock(tmp_path):
        pass
    with lock(tmp_path):
        pass


def test_processes_that_load_data_do_not_keep_the_lock_of_a_run_that_was_killed(tmp_path: Path) -> None:
    holder = os.fork()
    if holder == 0:
        with lock(tmp_path):
            if (loader := os.fork()) == 0:
                time.sleep(30)
                os._exit(0)
            (tmp_path / "loader").write_text(str(loader))
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(holder, 0)
    try:
        with lock(tmp_path):  # though the loader lives on
            pass
    finally:
        os.kill(int((tmp_path / "loader").read_text()), signal.SIGKILL)
