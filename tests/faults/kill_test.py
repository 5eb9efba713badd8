"""Kill a training, damage its checkpoints, fill its disk; every time it must go on by itself and end the same.

    python tests/faults/kill_test.py [--kills 50] [--seed 0] [--only kill,damage,disk]

"The same" means byte for byte: final weights and loss curve equal those of a run that nobody touched. Everything heavy
is imported once; each training is a forked child, which starts in milliseconds and may be killed.
"""

import argparse
import hashlib
import json
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "src")]

import torch  # noqa: E402

from tests.train import marked  # noqa: E402
from vcc.cli import guarded  # noqa: E402
from vcc.train.checkpoint import MANIFEST, checkpoints, damage  # noqa: E402

torch.set_num_threads(1)  # threads do not survive a fork
STEPS = 12
Before = Callable[[], None]


@dataclass(frozen=True)
class Outcome:
    kind: str
    case: str
    ok: bool
    note: str


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (negative: the signal) and what it said."""

    code: int
    said: str


def start(out: Path, before: Before = lambda: None, **options: Any) -> tuple[int, Path]:
    """Fork a child that trains into `out`; its process id and the file it talks to."""
    log = out.with_suffix(".log")
    child = os.fork()
    if child:
        return child, log
    code = 70
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        before()
        code = guarded(lambda: marked.train(out, **{"resume": True, **options}))
        sys.stderr.flush()
    finally:
        os._exit(code)


def wait(child: int, log: Path) -> Ended:
    _, status = os.waitpid(child, 0)
    return Ended(os.waitstatus_to_exitcode(status), log.read_text() if log.exists() else "")


def run(out: Path, before: Before = lambda: None, **options: Any) -> Ended:
    return wait(*start(out, before, **options))


def result(out: Path) -> tuple[bytes, Any]:
    """What must be the same: the bytes of the final weights, and the loss curve."""
    last = out / f"checkpoint-{STEPS}"
    history = json.loads((last / "trainer_state.json").read_text())["log_history"]
    return (last / "model.safetensors").read_bytes(), history


def compare(out: Path, ended: Ended, wanted: tuple[bytes, Any]) -> str:
    """ "" if the run ended well and the same, else what is wrong."""
    if ended.code != 0:
        return f"exit code {ended.code}: {ended.said.strip().splitlines()[-1:]}"
    weights, history = result(out)
    if weights != wanted[0]:
        return "other weights"
    if history != wanted[1]:
        return "other loss curve"
    leftovers = [path.name for path in out.iterdir() if path.name.startswith(".writing")]
    return f"leftovers {leftovers}" if leftovers else ""


def wrong_start(ended: Ended, newest: Path | None) -> str:
    """Whether a run went on from another step than that of the newest checkpoint that was good: "" if not.

    A run that began again at step 0 would end the same, and all the work before would be lost in silence.
    """
    wanted = f"resuming from {newest}" if newest else "starting at step 0"
    said = [line for line in ended.said.splitlines() if "resuming from" in line or "starting at step 0" in line]
    return "" if said[:1] == [wanted] or (said and said[0].endswith(wanted)) else f"not {wanted!r}, but {said}"


# --- kills ------------------------------------------------------------------------------------------------------

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}


def die_at_event(out: Path, number: int) -> Before:
    """Arrange that the child kills itself at the n-th file operation on its checkpoints: in the middle of saving."""

    def before() -> None:
        seen = 0

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal seen
            if event in EVENTS and "checkpoint-" in str(arguments[0]):
                seen += 1
                if seen == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)

    return before


def count_events(out: Path) -> int:
    """How many file operations on checkpoints an untouched run makes."""
    note = out.with_suffix(".events")

    def before() -> None:
        seen = 0

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal seen
            if event in EVENTS and "checkpoint-" in str(arguments[0]):
                seen += 1
                os.truncate(descriptor, 0)
                os.pwrite(descriptor, str(seen).encode(), 0)

        descriptor = os.open(note, os.O_WRONLY | os.O_CREAT)
        sys.addaudithook(hook)

    assert run(out, before).code == 0
    return int(note.read_text())


def kill_after(out: Path, seconds: float) -> bool:
    """Start, kill after a while; whether it was still alive then."""
    child, log = start(out)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return wait(child, log).code == -signal.SIGKILL


def kills(folder: Path, wanted: tuple[bytes, Any], number: int, chance: random.Random, seconds: float) -> list[Outcome]:
    """Half of them at a random moment, half at a random file operation of a save; then one run killed ten times."""
    outcomes = []
    events = count_events(folder / "count")
    while len(outcomes) < number:
        i = len(outcomes)
        out = folder / f"kill-{i}"
        if i % 2:
            event = chance.randint(1, events)
            where, killed = f"at file operation {event} of {events}", run(out, die_at_event(out, event)).code == -9
        else:
            moment = chance.uniform(0.3 * seconds, seconds)  # before that nothing but starting up happens
            where, killed = f"after {moment:.2f} s", kill_after(out, moment)
        if not killed:  # it was faster than usual and had ended: that is no kill
            shutil.rmtree(out)
            continue
        held = [path.name for path in checkpoints(out)]
        broken = [path.name for path in checkpoints(out) if damage(path)]
        ended = run(out)
        problem = compare(out, ended, wanted) or (f"{broken} not whole" if broken else "")
        problem = problem or wrong_start(ended, out / held[0] if held else None)
        note = f"resumed from {held[0] if held else 'the start'}"
        outcomes.append(Outcome("kill", where, not problem, problem or note))
    if number < 10:
        return outcomes  # the short version
    out = folder / "often"
    for _ in range(10):
        kill_after(out, chance.uniform(0.2, seconds))
    held = checkpoints(out)
    ended = run(out)
    problem = compare(out, ended, wanted) or wrong_start(ended, held[0] if held else None)
    return [*outcomes, Outcome("kill", "ten times in a row", not problem, problem or "resumed")]


# --- damage -----------------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))  # what a power cut leaves of a file that was never forced to disk


def linked(path: Path) -> None:
    real = path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(real)


def swap(one: Path, other: Path) -> None:
    spare = one.with_name("spare")
    one.rename(spare)
    other.rename(one)
    spare.rename(other)


def edit_manifest(newest: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((newest / MANIFEST).read_text())
    change(manifest)
    (newest / MANIFEST).write_text(json.dumps(manifest))


def seal_manifest(newest: Path, **values: Any) -> None:
    """Edited with care: the manifest's own hash is right."""

    def change(manifest: dict[str, Any]) -> None:
        manifest.update(values)
        body = {key: value for key, value in manifest.items() if key != "sha256"}
        manifest["sha256"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()

    edit_manifest(newest, change)


def replace_with_own_hash(newest: Path) -> None:
    """Other weights, with their true hash put into the manifest."""
    import hashlib

    flip(newest / "model.safetensors")
    digest = hashlib.sha256((newest / "model.safetensors").read_bytes()).hexdigest()
    edit_manifest(newest, lambda manifest: manifest["files"].update({"model.safetensors": digest}))


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {os.environ['VCC_BOMB']}",)


def plant(path: Path) -> None:
    """A pickle that runs a command when it is loaded."""
    path.write_bytes(pickle.dumps(Bomb()))


def everything_damaged(newest: Path) -> None:
    for path in checkpoints(newest.parent):
        cut(path / "model.safetensors")


FILES = (
    "model.safetensors",
    "training_state.safetensors",
    "training_state.json",
    "trainer_state.json",
    "config.json",
    MANIFEST,
)


def damages(foreign: Path) -> dict[str, Callable[[Path], None]]:
    """Each kind of damage to the newest checkpoint. `foreign` is a whole checkpoint of the same step of another run."""
    kinds: dict[str, Callable[[Path], None]] = {}
    for name in FILES:
        kinds[f"{name} cut short"] = lambda new, name=name: cut(new / name)
        kinds[f"{name} with a flipped bit"] = lambda new, name=name: flip(new / name)
        kinds[f"{name} missing"] = lambda new, name=name: (new / name).unlink()
        kinds[f"{name} empty"] = lambda new, name=name: os.truncate(new / name, 0)
        kinds[f"{name} all zeros"] = lambda new, name=name: zeros(new / name)
    return kinds | {
        "empty folder": lambda new: [path.unlink() for path in new.iterdir()],
        "a file in place of the folder": lambda new: (shutil.rmtree(new), new.write_text("?")),
        "a file too many": lambda new: (new / "model-00002-of-00002.safetensors").write_bytes(b"?"),
        "a pickle planted beside": lambda new: plant(new / "optimizer.pt"),
        "a pickle in place of the state": lambda new: plant(new / "training_state.safetensors"),
        "a link in place of a file": lambda new: linked(new / "model.safetensors"),
        "weights swapped with the one before": lambda new: swap(
            new / "model.safetensors", new.with_name("checkpoint-6") / "model.safetensors"
        ),
        "state swapped with the one before": lambda new: swap(
            new / "training_state.safetensors", new.with_name("checkpoint-6") / "training_state.safetensors"
        ),
        "folders swapped": lambda new: swap(new, new.with_name("checkpoint-6")),
        "manifest: step edited": lambda new: edit_manifest(new, lambda m: m.update(step=8)),
        "manifest: settings edited": lambda new: edit_manifest(new, lambda m: m["run"].update(lr=1.0)),
        "manifest: hash edited with the file": replace_with_own_hash,
        "manifest: settings a list, hash right": lambda new: seal_manifest(new, run=[1]),
        "manifest: files a list, hash right": lambda new: seal_manifest(new, files=["a"]),
        "manifest: no list of files": lambda new: edit_manifest(new, lambda m: m.pop("files")),
        "manifest: another format": lambda new: edit_manifest(new, lambda m: m.update(format=99)),
        "a checkpoint of another run": lambda new: (shutil.rmtree(new), shutil.copytree(foreign, new)),
        "every checkpoint": everything_damaged,
    }


def damage_cases(folder: Path, wanted: tuple[bytes, Any]) -> list[Outcome]:
    def until_ninth(out: Path, **options: Any) -> None:
        """Checkpoints 6 and 9, as if killed just after the second."""
        from vcc.train.trainer import VccTrainer

        save = VccTrainer._save_checkpoint

        def before() -> None:
            def save_and_die(self: VccTrainer, *arguments: Any) -> None:
                save(self, *arguments)
                if self.state.global_step == 9:
                    os.kill(os.getpid(), signal.SIGKILL)

            VccTrainer._save_checkpoint = save_and_die  # type: ignore[method-assign]

        assert run(out, before, **options).code == -9

    until_ninth(folder / "template")
    until_ninth(folder / "other", seed=7)
    outcomes = []
    bomb = folder / "bomb-went-off"
    os.environ["VCC_BOMB"] = str(bomb)
    for i, (name, harm) in enumerate(damages(folder / "other" / "checkpoint-9").items()):
        out = folder / f"damage-{i}"
        shutil.copytree(folder / "template", out)
        harm(out / "checkpoint-9")
        ended = run(out)
        problem = compare(out, ended, wanted)
        reported = [line for line in ended.said.splitlines() if "is not usable" in line]
        both = name in (
            "every checkpoint",
            "weights swapped with the one before",
            "state swapped with the one before",
            "folders swapped",
        )
        if not problem and len(reported) != 1 + both:
            problem = f"{len(reported)} damaged checkpoints reported"
        if not problem:
            problem = wrong_start(ended, None if both else out / "checkpoint-6")
        if not problem and bomb.exists():
            problem = "code from the checkpoint was run"
        note = reported[0].partition("usable: ")[2][:70] if reported else ""
        outcomes.append(Outcome("damage", name, not problem, problem or note))
    return outcomes


# --- full disk --------------------------------------------------------------------------------------------------


def check_full(out: Path, full: Ended, names: tuple[str, ...]) -> str:
    if full.code != 1:
        return f"exit code {full.code}, not 1: {full.said[-200:]}"
    held = checkpoints(out)
    if any(damage(path) for path in held) or not held:
        return f"not intact: {[(path.name, damage(path)) for path in held]}"
    failed = out / f"checkpoint-{int(held[0].name.split('-')[1]) + 3}"
    if str(failed) not in full.said or str(held[0]) not in full.said:
        return f"the message does not name {failed} and {held[0]}: {full.said[-200:]}"
    return "" if any(name in full.said for name in names) else f"the message gives no reason: {full.said[-200:]}"


def limited(folder: Path, wanted: tuple[bytes, Any]) -> Outcome:
    """No file may grow beyond 40 KB once two checkpoints exist: the state of the optimizer does not fit."""
    from vcc.train.trainer import VccTrainer

    save = VccTrainer._save_checkpoint

    def before() -> None:
        def save_limited(self: VccTrainer, *arguments: Any) -> None:
            if self.state.global_step == 9:
                resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
            save(self, *arguments)

        VccTrainer._save_checkpoint = save_limited  # type: ignore[method-assign]

    out = folder / "limited"
    problem = check_full(out, run(out, before), ("File too large",)) or compare(out, run(out), wanted)
    return Outcome("disk", "a file may not grow (file size limit)", not problem, problem or "intact; then resumed")


def real_disk(folder: Path) -> Outcome:
    """A file system of 330 KB in a name space of our own: two checkpoints fit, the third does not."""
    name = "the disk is full (330 KB file system)"
    place = folder / "small"
    place.mkdir()
    command = [
        "unshare",
        "-rm",
        "sh",
        "-c",
        'mount -t tmpfs -o size=330k none "$0" && exec "$@"',
        str(place),
        sys.executable,
        __file__,
        "--inside",
        str(place),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except FileNotFoundError:
        return Outcome("disk", name, True, "SKIPPED: no `unshare` here")
    if "inside:" not in done.stdout:
        return Outcome("disk", name, True, f"SKIPPED: no file system of our own here ({done.stderr.strip()[-60:]})")
    problem = done.stdout.partition("inside:")[2].strip()
    return Outcome("disk", name, not problem, problem or "intact; the message names the path")


def inside(place: Path) -> None:
    out = place / "run"
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        (place / "run.log").symlink_to(log.name)  # the child's words must not need the full disk
        print("inside:", check_full(out, run(out), ("No space left",)))


# --- all of it --------------------------------------------------------------------------------------------------


def all_cases(number: int, seed: int, only: set[str], folder: Path) -> list[Outcome]:
    began = time.monotonic()
    assert run(folder / "whole").code == 0, (folder / "whole.log").read_text()
    seconds = time.monotonic() - began
    wanted = result(folder / "whole")
    outcomes: list[Outcome] = []
    if "kill" in only:
        outcomes += kills(folder, wanted, number, random.Random(seed), seconds)
    if "damage" in only:
        outcomes += damage_cases(folder, wanted)
    if "disk" in only:
        outcomes += [limited(folder, wanted), real_disk(folder)]
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="kill,damage,disk")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(Path(options.inside))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        outcomes = all_cases(options.kills, options.seed, set(options.only.split(",")), Path(folder))
    for outcome in outcomes:
        print(f"{'ok  ' if outcome.ok else 'FAIL'}  {outcome.kind:<7} {outcome.case:<48} {outcome.note}")
    for kind in dict.fromkeys(outcome.kind for outcome in outcomes):
        right = [outcome.ok for outcome in outcomes if outcome.kind == kind]
        print(f"{kind}: {sum(right)} of {len(right)} as they must be")
    failed = sum(not outcome.ok for outcome in outcomes)
    print(f"{len(outcomes) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
