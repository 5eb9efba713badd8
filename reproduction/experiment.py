"""A table or figure: steps that write files, and a report made from the files that exist."""

import itertools
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from reproduction.report import Report
from reproduction.small.layout import PRESTART, SmallLayout
from reproduction.small.pack import pack as pack_small
from reproduction.small.settings import TABLE1, Small
from reproduction.small.variants import VARIANTS
from vcc.checkout import ROOT
from vcc.child_process import OwnProcess
from vcc.errors import Failure, UsageError
from vcc.tasks import TASKS

Scale = Literal["small", "paper"]
MOST_LINES = 60  # of a plan; longer ones are summarised by kind
OUT_OF_MEMORY = "OutOfMemoryError"  # torch's, of a device
SAVING = 20.0  # seconds that a stopped training has to save


@dataclass(frozen=True)
class Workspace:
    """The settings shared by all experiments."""

    scale: Scale
    out: Path  # shared by all tables and figures, which share models
    data: str | None  # folder of data sets; None: hub names
    model: str  # checkpoint that encoders start from
    t5: str  # checkpoint that encoder-decoders start from
    text: str  # corpus of continued pretraining
    small: Small

    @property
    def packed(self) -> Path:
        return self.out / "packed"

    @property
    def layout(self) -> SmallLayout:
        """The files of the small scale."""
        return SmallLayout(self.packed, self.out, self.small)


@dataclass(frozen=True)
class ProcessStep:
    """One process. It starts when the files it needs exist, beside others unless it must run alone."""

    shown: str
    command: tuple[str, ...]
    done: Path  # exists after success
    minutes: float  # a guess
    needs: tuple[Path, ...] = ()  # written by other steps
    alone: bool = False
    missing: tuple[str, ...] = ()
    marks: bool = False  # `done` is created by us after success, because the process writes no such file

    @property
    def log(self) -> Path:
        return self.done.with_name(self.done.name + ".log")


class Experiment(ABC):
    """A table or figure of the paper."""

    name: str
    title: str
    claim: str  # what the paper says with it

    @abstractmethod
    def steps(self, at: Workspace) -> list[ProcessStep]: ...

    @abstractmethod
    def report(self, at: Workspace) -> Report:
        """A report of what has been measured so far, beside the paper's numbers."""

    def pack(self, at: Workspace, megabytes: float) -> Path:
        """Pack data and weights into one folder for another machine, at most `megabytes` million tokens of text."""
        assert at.data is not None
        return pack_small(Path(at.data), given(at.model, "--model"), at.packed, questions_of(at.small), megabytes)

    def reads_text(self, at: Workspace) -> bool:
        """Whether something is pretrained on the packed text. From the packed weights to a reader nothing is."""
        pre_norm = any(name in VARIANTS and VARIANTS[name].start == PRESTART for name in at.small.models)
        return pre_norm or at.small.start_steps > 0 or not at.small.reader


def questions_of(small: Small) -> tuple[str, ...]:
    """Those of --tasks that have questions to answer: names of other experiments are ignored."""
    known = [task for task in small.tasks if task in TABLE1 or (task in TASKS and TASKS[task]().heads[0] != "text")]
    return tuple(known) or TABLE1


def chosen_models(at: Workspace, known: Iterable[str], whose: str) -> list[str]:
    """Those of --models that an experiment knows; names of others are ignored, unless all are. Empty: no names."""
    known = list(known)
    found = [name for name in at.small.models if name in known]
    if at.small.models and not found:
        raise UsageError(f"--models {','.join(at.small.models)}: {whose} has {', '.join(known)}")
    return found


def given(name: str, option: str) -> str:
    """The checkpoint to pack; raise if there is none."""
    if not name:
        raise UsageError(f"--pack needs {option}")
    return name


def unique(steps: Iterable[ProcessStep]) -> list[ProcessStep]:
    """The steps without duplicates: several cells, tables or figures may share one."""
    return list({(step.done, step.command): step for step in steps}.values())


def missing_packages(*names: str) -> tuple[str, ...]:
    return tuple(f"the package {name}" for name in names if find_spec(name) is None)


def plan(steps: Sequence[ProcessStep]) -> str:
    """The plan in words: steps, time, and what is missing."""
    lines = []
    for step in steps if len(steps) <= MOST_LINES else ():
        mark = "done" if step.done.exists() else f"{shown_minutes(step.minutes):>8}"
        lines.append(f"  {mark:>8}  {step.shown}")
    if len(steps) > MOST_LINES:
        kinds = sorted(steps, key=kind_of)
        for kind, several in itertools.groupby(kinds, kind_of):
            some = list(several)
            lines.append(f"  {shown_minutes(sum(step.minutes for step in some)):>8}  {len(some)} x {kind}")
    left = [step for step in steps if not step.done.exists()]
    lacking = sorted({one for step in left for one in step.missing})
    total = shown_minutes(sum(step.minutes for step in left))
    head = f"{len(steps)} steps, {len(steps) - len(left)} done; the others take about {total} sequentially"
    return "\n".join([head, *lines, *(f"missing: {one}" for one in lacking)])


def kind_of(step: ProcessStep) -> str:
    return step.shown.partition(" --")[0]


def shown_minutes(minutes: float) -> str:
    if minutes < 90:
        return f"{minutes:.1f} min"
    return f"{minutes / 60:,.0f} h" if minutes < 48 * 60 else f"{minutes / 1440:,.0f} days"


def run_steps(
    steps: Sequence[ProcessStep],
    together: int,
    minutes: float | None,
    say: Callable[[str], None],
    after: Callable[[], object],
) -> bool:
    """Run the remaining steps; return whether all are done. When the time is up, running steps are stopped; trainings
    save then, and the next call continues from there. A failed step only blocks those that need it; one that ran out of
    memory beside others is retried alone. `after` is called after every successful step.
    """
    end = None if minutes is None else time.monotonic() + 60 * minutes
    waiting = [step for step in steps if not step.done.exists()]
    lacking = sorted({one for step in waiting for one in step.missing})
    if lacking:
        raise Failure("missing: " + "; ".join(lacking))
    failed = 0
    running: dict[ProcessStep, OwnProcess] = {}
    try:
        while True:
            if end is not None and time.monotonic() > end:
                say(f"the time is up with {len(waiting) + len(running)} steps left; the same command continues")
                return False
            while len(running) < together and (step := next_of(waiting, running)):
                waiting.remove(step)
                say(f"starts: {step.shown}")
                running[step] = begin(step)
            if not running:
                break
            for step, process in list(running.items()):
                if process.code is None:
                    continue
                del running[step]
                if process.code == 0 and step.marks:
                    step.done.touch()
                if process.code == 0 and step.done.exists():
                    say(f"done: {step.shown}")
                    after()
                elif OUT_OF_MEMORY in tail(step.log) and not step.alone:
                    say(f"out of memory beside others: {step.shown}; it is retried alone, after them")
                    waiting.append(replace(step, alone=True))
                else:
                    failed += 1
                    say(f"failed: {step.shown} {process.how_it_ended()}; the end of {step.log}:\n{tail(step.log)}")
            time.sleep(0.2)
    finally:  # the time is up, or Ctrl-C
        for process in running.values():
            process.process.terminate()
        for process in running.values():
            process.finish(SAVING)
    if failed or waiting:
        held = f", and {len(waiting)} that need them were not begun" if waiting else ""
        raise Failure(f"{failed} steps failed{held}; finished work is kept, and the same command continues")
    return True


def next_of(waiting: Sequence[ProcessStep], running: Collection[ProcessStep]) -> ProcessStep | None:
    """The first step that may start now: one that must run alone waits for all others that can run."""
    unfinished = {step.done for step in running}  # its file may exist before it has ended
    ready = [step for step in waiting if all(need.exists() and need not in unfinished for need in step.needs)]
    beside = [step for step in ready if not step.alone]
    if running and any(step.alone for step in running):
        return None
    if beside:
        return beside[0]
    return ready[0] if ready and not running else None


def begin(step: ProcessStep) -> OwnProcess:
    step.log.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",  # its processes are forked
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),  # -m reproduction...
    }
    with step.log.open("ab") as log:
        return OwnProcess(step.command, stdout=log, stderr=log, environment=environment)


def tail(log: Path, lines: int = 12) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
