"""Recorded passes: replayed only while the model is the one that was recorded, with the gradients of the model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vcc
from tests.hosts.models import REAL, build, difference, encoded, one
from vcc.errors import UsageError
from vcc.hosts import recorded
from vcc.hosts.compile import CompiledGraphs
from vcc.hosts.long_input import find_encoder
from vcc.hosts.pieces import Pieces
from vcc.hosts.recorded import Recorded, RecordedWithGradients, can_record, look


def test_a_model_that_is_left_alone_looks_the_same() -> None:
    encoder = find_encoder(vcc.wrap(build("bert"), REAL))
    before = look(encoder)
    with torch.no_grad():
        encoder(**one(45).arguments("bert"))
        next(encoder.parameters()).mul_(2)  # in place, as an optimiser does: a replay reads it
    assert look(encoder) == before


def test_other_tensors_or_modules_are_noticed() -> None:
    encoder = find_encoder(vcc.wrap(build("bert"), REAL))
    layer = encoder.host.layers[1]
    seen = {look(encoder)}
    layer.output.dense.weight = nn.Parameter(layer.output.dense.weight.detach().clone())
    seen.add(look(encoder))
    layer.intermediate.dense = nn.Linear(layer.intermediate.dense.in_features, layer.intermediate.dense.out_features)
    seen.add(look(encoder))
    layer.intermediate.intermediate_act_fn = nn.Tanh()
    seen.add(look(encoder))
    encoder.to(torch.float16)
    seen.add(look(encoder))
    assert len(seen) == 5


def test_modules_of_others_are_not_recorded() -> None:
    class Adapter(nn.Linear):
        switched_on = True

    encoder = find_encoder(vcc.wrap(build("bert"), REAL))
    assert can_record(encoder)
    encoder.host.layers[0].output.dense = Adapter(4, 4)
    assert not can_record(encoder)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_what_is_replayed_is_what_is_computed() -> None:
    plain = vcc.wrap(build("bert", dtype=torch.float32), REAL).cuda()
    fast = vcc.compile(vcc.wrap(build("bert", dtype=torch.float32), REAL).cuda(), whole=False)
    with torch.no_grad():
        for seed in range(4):
            if seed == 2:
                for model in (plain, fast):
                    for weights in model.parameters():
                        weights.mul_(1.1)
            if seed == 3:
                for model in (plain, fast):
                    dense = model.encoder.layer[1].output.dense
                    dense.weight = nn.Parameter(dense.weight * 2)
            batch = one(45, seed=seed)
            given = {name: value.cuda() for name, value in batch.arguments("bert").items()}
            actual, expected = (encoded(model(**given)) for model in (fast, plain))
            assert difference(actual, expected, batch.real.cuda()) < 1e-4


class Again:
    """What a CUDA graph does: the work is done again, into the same memory."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work, self.result, self.replays = work, work(), 0

    def replay(self) -> None:
        self.replays += 1
        with torch.enable_grad():
            found = self.work()
        for place, value in zip(self.result, found, strict=True):
            if place is not None:
                place.data.copy_(value)

    def pool(self) -> "Again":
        return self


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Again]:
    """All that is recorded; a CPU plays the graph's part."""
    found: list[Again] = []

    def record(work: Any, warm_ups: int = 1, pool: Again | None = None) -> tuple[Again, Any]:
        # A backward graph finds in memory what the last replay of its forward graph left there.
        found.append(Again(work if pool is None else lambda: work.func(pool.work()[1])))
        return found[-1], found[-1].result

    monkeypatch.setattr(recorded, "record", record)
    monkeypatch.setattr(recorded, "warm_up", lambda work, times: work())
    return found


def plain(encoder: Any, *given: Any) -> Any:
    """What the pieces compute, not compiled."""
    return encoder.encode_inputs(*given)


def learner(device: str = "cpu") -> Any:
    dtype = torch.float64 if device == "cpu" else torch.float32
    return vcc.wrap(build("bert", dtype=dtype), replace(REAL, explore=0.0)).to(device).eval()


def loss_of(model: Any, run: Any, seed: int) -> Tensor:
    encoder, batch = find_encoder(model), one(45, seed=seed)
    ids, real, vips = (part.to(model.device) for part in (batch.ids, batch.real != 0, batch.vips != 0))
    return run(encoder, {"input_ids": ids}, real, vips, encoder.vcc_settings)[1][real].square().sum()


def gradients(model: Any, run: Any, order: str) -> list[Tensor]:
    """After forward (f) and backward (b) passes over several texts; they add up."""
    model.zero_grad()
    waiting: list[Tensor] = []
    for number, what in enumerate(order):
        if what == "f":
            waiting.append(loss_of(model, run, number))
        else:
            waiting.pop(0).backward()
    return [weights.grad.clone() for weights in model.parameters() if weights.grad is not None]


def far(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    assert len(actual) == len(expected)
    largest = max(float(part.abs().max()) for part in expected)
    return max(float((a - b).abs().max()) for a, b in zip(actual, expected, strict=True)) / largest


ORDERS = ["fb", "fbfb", "ffbb", "ffb", "fbffbbfb"]


@pytest.mark.parametrize("order", ORDERS)
def test_gradients_of_replays_are_those_of_the_model(graphs: list[Again], order: str) -> None:
    """Also where a second call comes before the gradients of the first."""
    model = learner()
    expected = gradients(model, plain, order)
    run = RecordedWithGradients(plain)  # type: ignore[arg-type]
    for _ in range(2):
        assert far(gradients(model, run, order), expected) < 1e-12
    assert len(graphs) == 2 and graphs[1].replays > 1


def test_what_learns_is_noticed(graphs: list[Again]) -> None:
    model = learner()
    run = RecordedWithGradients(plain)  # type: ignore[arg-type]
    gradients(model, run, "fb")
    model.embeddings.requires_grad_(False)
    assert far(gradients(model, run, "fb"), gradients(model, plain, "fb")) < 1e-12
    assert len(graphs) == 4


def test_gradients_that_were_overwritten_are_refused(graphs: list[Again]) -> None:
    model = learner()
    run = RecordedWithGradients(plain)  # type: ignore[arg-type]
    first = loss_of(model, run, 0)
    first.backward(retain_graph=True)
    first.backward(retain_graph=True)
    loss_of(model, run, 1).backward()
    with pytest.raises(UsageError, match="overwritten"):
        first.backward()


@pytest.mark.parametrize("learning", [False, True])
def test_where_nothing_can_be_recorded_the_pieces_run(learning: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(*args: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(recorded, "record", record)
    monkeypatch.setattr(recorded, "warm_up", lambda work, times: work())
    model = learner()
    run = (RecordedWithGradients if learning else Recorded)(plain)  # type: ignore[arg-type]
    with torch.set_grad_enabled(learning):
        with pytest.warns(UserWarning, match="not permitted when stream is capturing"):
            first = loss_of(model, run, 0)
        assert torch.equal(first, loss_of(model, run, 0)) and torch.equal(first, loss_of(model, plain, 0))


def test_hooks_are_not_recorded() -> None:
    encoder = find_encoder(vcc.wrap(build("bert"), REAL))
    before = look(encoder)
    hook = encoder.host.layers[1].register_forward_hook(lambda *args: None)
    assert not can_record(encoder) and look(encoder) != before
    hook.remove()
    assert can_record(encoder) and look(encoder) == before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("order", ORDERS)
def test_gradients_of_a_cuda_graph(order: str) -> None:
    model = learner("cuda")
    expected = gradients(model, plain, order)
    run = RecordedWithGradients(Pieces("aot_eager"))
    for _ in range(2):
        assert far(gradients(model, run, order), expected) < 1e-4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_compiled_model_learns_as_the_plain_one() -> None:
    """Through all of `vcc.compile`, with an optimiser, gradients that add up, and an evaluation in between."""
    losses = []
    for model in (learner("cuda"), vcc.compile(learner("cuda"))):
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        found = []
        for step in range(6):
            given = {name: value.cuda() for name, value in one(45, seed=step % 2).arguments("bert").items()}
            if step % 2 == 0:
                optimizer.zero_grad()
            loss = encoded(model(**given)).square().mean()
            loss.backward()
            with torch.no_grad():
                found.append(float(loss) + float(encoded(model(**given)).mean()))
            if step % 2:
                optimizer.step()
        losses.append(found)
    assert torch.allclose(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-4)


def test_what_is_compiled_how(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded without gradients and where launching costs most; then all lengths share their memory."""
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: object())
    monkeypatch.setattr("vcc.hosts.compile.compiled", lambda *args, **kwargs: "whole")
    encoder = find_encoder(learner())

    def kinds(whole: bool | None, learning: bool) -> list[Any]:
        graphs = CompiledGraphs(whole)
        with torch.set_grad_enabled(learning):
            return [graphs.graph(encoder, launch_bound) for launch_bound in (True, True, False)]

    first, second, long = kinds(None, False)
    assert type(first) is type(second) is Recorded and first.memory is second.memory is not None and long == "whole"
    assert kinds(None, True) == kinds(True, True) == kinds(True, False) == ["whole"] * 3
    assert [type(one) for one in kinds(False, False)] == [Recorded, Recorded, Pieces]
    first, second, long = kinds(False, True)
    assert type(first) is type(second) is RecordedWithGradients and type(long) is Pieces
    assert first.memory is None, "another graph must not overwrite what its gradients need"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_lengths_by_turns() -> None:
    plain_model, fast = learner("cuda"), vcc.compile(learner("cuda"))
    with torch.no_grad():
        for n in (45, 70, 45, 70):
            batch = one(n, seed=n)
            given = {name: value.cuda() for name, value in batch.arguments("bert").items()}
            actual, expected = (encoded(model(**given)) for model in (fast, plain_model))
            assert difference(actual, expected, batch.real.cuda()) < 1e-4
