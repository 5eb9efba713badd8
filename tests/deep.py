"""Parameters of tests that are in the deep run only."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def deep_but(quick: Container[Any], every: Iterable[Any]) -> list[Any]:
    """The parameters of a test, of which every run has those in `quick`; the others are in the deep one."""
    return [
        one if one in quick else pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=pytest.mark.slow)
        for one in every
    ]
