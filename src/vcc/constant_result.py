"""A mark for torch's compiler that does not import it."""

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def constant_result(function: Function) -> Function:
    """Let a compiled graph call a function once, while it is traced, and keep the result.

    This is `torch.compiler.assume_constant_result`, which imports the whole compiler to set one attribute: that takes
    longer than a short text takes to be read and asked.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
