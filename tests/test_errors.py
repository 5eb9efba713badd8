"""What a person can mend is told from what is a bug."""

import pytest
import torch

from vcc.errors import DataError, DocumentError, Failure, ModelError, UsageError, is_out_of_memory


def test_what_was_asked_wrongly_is_a_value_error_and_a_failure_is_not() -> None:
    for kind in (DataError, ModelError, DocumentError):
        assert issubclass(kind, UsageError) and issubclass(kind, ValueError)
    assert not issubclass(Failure, ValueError)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("full"),
        RuntimeError("CUDA error: out of\n memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        RuntimeError("DefaultCPUAllocator: not enough memory"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("CUDNN_STATUS_ALLOC_FAILED"),
    ],
    ids=repr,
)
def test_memory_that_ran_out_is_known_however_it_is_said(error: Exception) -> None:
    assert is_out_of_memory(error)


def test_other_errors_are_not_taken_for_memory() -> None:
    assert not is_out_of_memory(RuntimeError("shapes do not match")) and not is_out_of_memory(ValueError())
