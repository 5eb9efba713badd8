"""A checkpoint is complete or absent.

It is written under a temporary name, with a manifest of the SHA-256 of each file last, synced to disk, and renamed. If
this is interrupted, the folder of a run holds only valid checkpoints and leftovers that are recognised and removed.
Reading one never runs code: tensors are safetensors, the rest is JSON.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcc.errors import Failure
from vcc.files import force, one_at_a_time, sha256_of

MANIFEST = "manifest.json"
FORMAT = 1  # raised when old versions could not read it
NAME = re.compile(r"checkpoint-(\d+)")
ASIDE = ".writing-"  # prefix of a folder that is not a checkpoint yet, or no longer one


class CheckpointError(Failure):
    """A checkpoint could not be written, or none can be resumed from."""


@dataclass(frozen=True)
class Resumable:
    """The newest valid checkpoint, if any, and rejected ones with reasons."""

    path: Path | None
    rejected: tuple[tuple[Path, str], ...]

    def report(self) -> list[str]:
        lines = [f"checkpoint {path} is not usable: {reason}" for path, reason in self.rejected]
        going_on = f"resuming from {self.path}" if self.path else "no checkpoint to resume from: starting at step 0"
        return [*lines, going_on]


def step_of(path: Path) -> int:
    match = NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path} is not a checkpoint: its name must be checkpoint-STEP")
    return int(match[1])


def checkpoints(root: Path) -> list[Path]:
    """Everything in `root` that is named like a checkpoint, newest first."""
    if not root.is_dir():
        return []
    return sorted((path for path in root.iterdir() if NAME.fullmatch(path.name)), key=step_of, reverse=True)


def write_checkpoint(root: Path, step: int, run: Mapping[str, Any], fill: Callable[[Path], None]) -> Path:
    """Let `fill` write files into a folder, which becomes `root/checkpoint-STEP` completely or not at all.

    `run` is the resolved configuration: only a run with an equal one may continue from this checkpoint.
    """
    target = root / f"checkpoint-{step}"
    aside = root / f"{ASIDE}{target.name}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        remove(aside)
        aside.mkdir()
        fill(aside)
        digests = {path.relative_to(aside).as_posix(): sha256_of(path) for path in _files(aside)}
        body = {"format": FORMAT, "step": step, "run": as_json(run), "files": dict(sorted(digests.items()))}
        manifest = aside / MANIFEST
        manifest.write_text(json.dumps({**body, "sha256": _digest_of(body)}, indent=1))
        written = _files(aside)
        for path in (*written, *{path.parent for path in written}):
            force(path)
        if target.exists():  # a rejected one; os.rename does not replace a non-empty folder
            set_aside(target)
        os.rename(aside, target)
        force(root)
    except Exception as error:  # each library reports a full disk differently
        remove(aside)
        intact = [str(path) for path in checkpoints(root) if path != target and damage(path) is None]
        kept = f"the checkpoint before it is intact: {intact[0]}" if intact else "there is no earlier checkpoint"
        raise CheckpointError(f"could not write {target}: {error}; {kept}") from error
    return target


def damage(path: Path) -> str | None:
    """Why this folder is not a valid checkpoint; None if every byte is as written."""
    try:
        if path.is_symlink() or not path.is_dir():
            return "it is not a folder"
        if not any(path.iterdir()):
            return "the folder is empty"
        if not (path / MANIFEST).is_file():
            return f"it has no {MANIFEST}"
        manifest = _manifest(path)
        if manifest is None:
            return f"{MANIFEST} is not readable"
        body = {key: value for key, value in manifest.items() if key != "sha256"}
        if manifest.get("sha256") != _digest_of(body):
            return f"{MANIFEST} was changed"
        if body["format"] != FORMAT:
            return f"its format is {body['format']}, this version reads {FORMAT}"
        if f"checkpoint-{body['step']}" != path.name:
            return f"it was written at step {body['step']}"
        return _damage_of_files(path, body["files"])
    except OSError as error:
        return f"it cannot be read: {error}"


def _damage_of_files(path: Path, digests: dict[str, str]) -> str | None:
    present = {file.relative_to(path).as_posix() for file in _files(path)} - {MANIFEST}
    if missing := sorted(digests.keys() - present):
        return f"{', '.join(missing)} missing"
    if extra := sorted(present - digests.keys()):
        return f"{', '.join(extra)} does not belong to it"
    for name, digest in digests.items():
        if (path / name).is_symlink() or not (path / name).is_file():
            return f"{name} is not a regular file"
        if sha256_of(path / name) != digest:
            return f"{name} was changed or cut short"
    return None


def record_of(path: Path) -> dict[str, Any]:
    """The settings of the run that wrote this checkpoint; empty for other folders."""
    manifest = _manifest(path) if (path / MANIFEST).is_file() else None
    return dict((manifest or {}).get("run", {}))


def newest_good(root: Path, run: Mapping[str, Any]) -> Resumable:
    """The newest valid checkpoint of a run with this configuration.

    If all valid ones belong to other configurations, it raises: resuming with other settings would be another run, and
    starting from step 0 would discard the work.
    """
    rejected: list[tuple[Path, str]] = []
    foreign = False
    for path in checkpoints(root):
        reason = damage(path)
        if reason is None:
            there = (_manifest(path) or {})["run"]
            reason = differences(there, as_json(run))
            if reason is None:
                return Resumable(path, tuple(rejected))
            foreign = True
        rejected.append((path, reason))
    if foreign:
        lines = "\n".join(f"  {path}: {reason}" for path, reason in rejected)
        raise CheckpointError(
            f"no checkpoint in {root} was written by a run with these settings:\n{lines}\n"
            "Resume with the same settings, or start a new run from those weights: --model CHECKPOINT --out ELSEWHERE."
        )
    return Resumable(None, tuple(rejected))


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """How a checkpoint's configuration differs from ours; None if they are equal."""
    names = [name for name in sorted({*there, *here}) if there.get(name) != here.get(name)]
    if not names:
        return None
    said = ", ".join(f"{name} is {there.get(name)!r} there and {here.get(name)!r} here" for name in names)
    return f"it belongs to another run: {said}"


def keep_newest(root: Path, keep: int) -> None:
    """Remove all but the `keep` newest. They are renamed first: a half-removed one is never taken for a valid one."""
    for path in checkpoints(root)[keep:]:
        aside = root / f"{ASIDE}old-{path.name}"
        remove(aside)
        os.rename(path, aside)
        remove(aside)


def set_aside(path: Path) -> Path:
    """Rename a rejected checkpoint, to keep it for inspection."""
    number = 1
    while (target := path.with_name(f"{path.name}.rejected-{number}")).exists():
        number += 1
    os.rename(path, target)
    return target


@contextlib.contextmanager
def lock(root: Path) -> Iterator[None]:
    """Lock the folder: only one run may write into it."""
    root.mkdir(parents=True, exist_ok=True)
    refusal = CheckpointError(f"another run is writing into {root}: wait for it, or use another --out")
    with one_at_a_time(root / ".lock", refusal):
        yield


def remove_leftovers(root: Path) -> None:
    """Remove what a killed run left half-written or half-removed."""
    if root.is_dir():
        for path in root.iterdir():
            if path.name.startswith(ASIDE):
                remove(path)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def as_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as read back from JSON: tuples become lists."""
    return json.loads(json.dumps(value, sort_keys=True))


def _manifest(path: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
    except (ValueError, RecursionError):
        return None
    kinds = {"format": int, "step": int, "run": dict, "files": dict, "sha256": str}
    if not isinstance(manifest, dict) or manifest.keys() != kinds.keys():
        return None
    return manifest if all(isinstance(manifest[name], kind) for name, kind in kinds.items()) else None


def _digest_of(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _files(folder: Path) -> list[Path]:
    """All non-folders below a folder. Links are listed, not followed."""
    return [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
