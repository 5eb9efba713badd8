"""A small model, a text, and what the model keeps of most of it: fixtures of the benchmarks' tests."""

from typing import Any

import pytest
import torch

from benchmarks.decoder_texts import read_on
from tests.decoders.models import ids, tiny

N, NEW = 400, 12  # tokens of the prefix, and after it


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny("llama").float()


@pytest.fixture(scope="module")
def text() -> torch.Tensor:
    return ids(1, N + NEW)[0]


@pytest.fixture(scope="module")
def prefix(model: Any, text: torch.Tensor) -> Any:
    return read_on(model, text[:N], [])
