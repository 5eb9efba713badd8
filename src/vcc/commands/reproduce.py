"""`vcc reproduce`: runs in a checkout; its code is in `reproduction/`."""

import functools
from typing import Any

from vcc.checkout import research

command = research("command", "vcc reproduce")


@functools.wraps(command.reproduce)
def reproduce(**given: Any) -> None:
    """Reproduce the paper's tables and figures as Markdown, JSON and pictures, with the paper's numbers beside ours."""
    command.reproduce(**given)
