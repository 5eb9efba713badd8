"""`vcc reproduce`, which runs in a checkout: its options and all of its work are in the folder `reproduction/`."""

import functools
from typing import Any

from vcc.checkout import research

command = research("command", "vcc reproduce")


@functools.wraps(command.reproduce)
def reproduce(**given: Any) -> None:
    """Reproduce tables and figures of the paper: Markdown, JSON and a picture each, the paper's numbers beside ours."""
    command.reproduce(**given)
