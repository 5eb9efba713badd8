"""Failures that a person can do something about. Their messages are what the person sees; no traceback is shown."""


class Failure(Exception):
    """It was asked rightly and did not work: exit code 1."""


class UsageError(Exception):
    """It was asked wrongly: exit code 2."""
