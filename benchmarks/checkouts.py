"""A script's process in a checkout of another commit, which answers one line of JSON with another."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
Process = subprocess.Popen[str]


def started(script: str, checkout: Path, *words: str, **env: str) -> Process:
    """Start `script --serve` with the package of a checkout."""
    paths = os.pathsep.join([str(checkout / "src"), str(HERE)])
    given = [sys.executable, script, "--serve", *words]
    return subprocess.Popen(
        given, env={**os.environ, "PYTHONPATH": paths, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def reply(process: Process, request: Any) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a process has ended with exit code {process.wait()}")
    return json.loads(line)
