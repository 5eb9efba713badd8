"""Kernels of one step: all calls are counted, the busiest are named."""

import pytest
import torch

from vcc.bench import kernels
from vcc.bench.kernels import busiest

CPU = torch.device("cpu")


def step() -> None:
    x = torch.ones(64, 64)
    for _ in range(3):
        x = (x @ x).sin()


def test_calls_of_one_step_are_counted_and_sorted_by_time() -> None:
    found = busiest(step, CPU)
    calls = {kernel.name: kernel.calls for kernel in found}
    assert calls["aten::mm"] == calls["aten::sin"] == 3
    assert len(calls) == len(found)
    assert [k.ms for k in found] == sorted((k.ms for k in found), reverse=True)
    assert min(kernel.ms for kernel in found) > 0


def test_what_is_not_named_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    every = sum(kernel.calls for kernel in busiest(step, CPU))
    monkeypatch.setattr(kernels, "TOP", 2)
    found = busiest(step, CPU)
    assert len(found) == 3 and found[-1].name == "all others"
    assert sum(kernel.calls for kernel in found) == every


def test_a_step_without_kernels_says_so() -> None:
    (kernel,) = busiest(lambda: None, CPU)
    assert kernel.name.startswith("none") and kernel.ms == 0
