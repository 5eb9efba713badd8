"""The short version of `make test-faults`: a few kills; damage and full disks are in test_checkpoint.py."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_killed_runs_resume_unaided_and_end_the_same() -> None:
    script = Path(__file__).parents[1] / "faults" / "kill_test.py"
    command = [sys.executable, str(script), "--kills", "4", "--only", "kill"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "4 passed, 0 failed" in done.stdout, done.stdout + done.stderr
