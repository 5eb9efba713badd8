"""`benchmarks/first_call.py` times what it says: every way to compile gives the numbers of the model."""

from typing import Any

import pytest
import torch

from benchmarks.first_call import WAYS, case, compile_in_way
from tests.hosts.compiled.test_compile import shallow
from tests.hosts.models import difference, encoded, ragged
from vcc.hosts.compiled.compile import CompiledGraphs, MovesGradients
from vcc.hosts.compiled.pieces import CompiledPieces
from vcc.hosts.forward.encoder import find_encoder


def graph_of(way: str) -> Any:
    encoder = find_encoder(shallow("bert"))
    compile_in_way(encoder, way)
    assert isinstance(encoder.vcc_state.graphs, CompiledGraphs)
    return encoder.vcc_state.graphs.graph(encoder, launch_bound=False)


def test_pieces_that_are_not_recorded_are_pieces() -> None:
    assert isinstance(graph_of("pieces-unrecorded"), CompiledPieces)
    with torch.enable_grad():
        assert isinstance(graph_of("pieces-cudagraphs"), MovesGradients)
    with torch.no_grad():
        assert not isinstance(graph_of("pieces-cudagraphs"), (MovesGradients, CompiledPieces))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS[2:])
def test_pieces_that_are_not_recorded_give_the_same_gradients(way: str) -> None:
    batch, found = ragged(), []
    for compiling in (False, True):
        torch._dynamo.reset()
        model = shallow("bert", dtype=torch.float32)
        if compiling:
            compile_in_way(model, way)
        for _ in range(2):  # gradients accumulate
            hidden = encoded(model(**batch.arguments("bert")))
            hidden[batch.real.bool()].square().mean().backward()
        found.append((hidden.detach(), [one.grad for one in model.parameters() if one.grad is not None]))
    (expected, gradients), (actual, same_gradients) = found
    assert difference(actual, expected, batch.real) < 1e-4 and len(gradients) == len(same_gradients)
    largest = max(float(one.abs().max()) for one in gradients)
    assert all(float((a - b).abs().max()) < 1e-4 * largest for a, b in zip(same_gradients, gradients, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["forward", "training"])
def test_the_compilers_own_cuda_graphs_are_timed_without_a_gpu(mode: str) -> None:
    found = case(512, mode, "pieces-cudagraphs", "tiny")
    assert found["first_s"] > 0 and found["call_ms"] > 0
