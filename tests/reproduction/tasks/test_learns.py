"""Choices and tags can be learned in every way: a tiny model with a new head fits a few items."""

import numpy as np
import pytest
import torch

from reproduction.tasks.cell import by_item, read_passes
from reproduction.tasks.packed import LongItem
from reproduction.tasks.specs import LONG_TASKS, Kind
from tests.reproduction.tasks.test_passes import items, laying, reader

CASES = [
    pytest.param(kind, way, marks=pytest.mark.slow if way == "vcc-stretches" else [])
    for name, kind in (("choices", "choice"), ("tags", "tag"))
    for way in LONG_TASKS[name].ways
]


def right(item: LongItem, said: np.ndarray, kind: Kind, way: str) -> float:
    if kind == "choice":
        return float(said[0] == item.label)
    assert item.tags is not None
    read = 14 if way == "truncated" else item.length
    return float((said == item.tags)[:read].mean())


@pytest.mark.parametrize("kind, way", CASES)
def test_a_tiny_model_fits_a_few_items(kind: Kind, way: str) -> None:
    every, given = items(kind), laying(kind, way)
    model = reader(kind, way, given.vips)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    passes = given.passes(every)
    model.train()
    for _ in range(40):
        optimizer.zero_grad()
        for _, batch in passes:
            (model.loss(batch) / batch.number).backward()
        optimizer.step()
    best, _ = read_passes(model, passes, "cpu")
    said = by_item(best, passes, every, given)
    found = np.mean([right(item, one, kind, way) for item, one in zip(every, said, strict=True)])
    assert found > 0.9
