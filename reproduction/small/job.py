"""One job in a process of its own: `python -m reproduction.small.job PACKED OUT SETTINGS WHAT ARGUMENTS`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from reproduction.small import jobs
from reproduction.small.settings import Small
from vcc.hosts.quiet import quiet

WORK: dict[str, Callable[..., None]] = {
    "begin": jobs.begin,
    "pretrain": jobs.pretrain,
    "answer": jobs.answer,
    "tune": jobs.tune,
    "score": jobs.score,
    "time": jobs.time_alone,
}


def main(packed: str, out: str, settings: str, what: str, arguments: str) -> None:
    quiet()
    small = Small(**json.loads(settings))
    if small.device == "cuda":
        torch.set_float32_matmul_precision("high")
    WORK[what](jobs.Bench(Path(packed), Path(out), small), **json.loads(arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
