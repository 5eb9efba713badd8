"""Property tests try 60 cases, or 10,000 with HYPOTHESIS_PROFILE=deep; kernels run interpreted without a GPU."""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

# Triton reads this when it is first imported, which transformers does.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# No deadline: on a shared machine a slow case says nothing about the code.
quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("quick", max_examples=60, deadline=None, suppress_health_check=quiet)
settings.register_profile("deep", max_examples=10_000, deadline=None, suppress_health_check=quiet)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `gpu` are skipped without a CUDA device; `make test-gpu` runs only these."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture
def exact_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes in 32 bits, for tests that compare a product answer with the model's own numbers."""
    from vcc.documents import packed_tree

    monkeypatch.setattr(packed_tree, "pack", lambda vectors: (vectors.float(), vectors.new_zeros(len(vectors))))
    monkeypatch.setattr(packed_tree, "unpack", lambda values, steps, width: values)
    monkeypatch.setattr(packed_tree.PackedTree, "__post_init__", lambda self: None)
