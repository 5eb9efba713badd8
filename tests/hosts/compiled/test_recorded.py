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
from vcc.hosts.compiled import recorded, recorded_training
from vcc.hosts.compiled.compile import CompiledGraphs, MovesGradients
from vcc.hosts.compiled.pieces import CompiledPieces
from vcc.hosts.compiled.recorded import Recorded, can_record, look
from vcc.hosts.compiled.recorded_training import RecordedWithGradients, TrainingMemory, slots, views
from vcc.hosts.forward.encoder import find_encoder
from vcc.hosts.forward.request import LongInput
from vcc.hosts.forward.wrapped import state_of


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


@pytest.mark.gpu
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

    for module in (recorded, recorded_training):
        monkeypatch.setattr(module, "record", record)
    monkeypatch.setattr(recorded_training, "warm_up", lambda work, times: work())
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
    given = LongInput({"input_ids": ids}, real, vips)
    return run(encoder, given, encoder.vcc_state.settings)[1][real].square().sum()


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
    run = RecordedWithGradients(plain, TrainingMemory())
    for _ in range(2):
        assert far(gradients(model, run, order), expected) < 1e-12
    assert len(graphs) == 2 and graphs[1].replays > 1


def test_weights_that_become_trainable_or_not_are_noticed(graphs: list[Again]) -> None:
    model = learner()
    run = RecordedWithGradients(plain, TrainingMemory())
    gradients(model, run, "fb")
    model.embeddings.requires_grad_(False)
    assert far(gradients(model, run, "fb"), gradients(model, plain, "fb")) < 1e-12
    assert len(graphs) == 4


def test_embeddings_that_begin_to_require_grad_get_their_gradients(
    graphs: list[Again], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was recorded for embeddings without gradients cannot give them."""
    record_training = lambda *_: RecordedWithGradients(plain, TrainingMemory())
    monkeypatch.setattr(CompiledGraphs, "graph", record_training)
    fast, untouched, batch = learner(), learner(), one(45)
    state_of(fast).graphs = CompiledGraphs()
    embeds, found = untouched.embeddings.word_embeddings(batch.ids).detach(), []
    for requires_grad in (False, True):
        found.clear()
        for model in (fast, untouched):
            given = embeds.clone().requires_grad_(requires_grad)
            encoded(model(inputs_embeds=given, vip_mask=batch.vips)).square().sum().backward()
            found.append(given.grad)
    actual, expected = found
    assert expected is not None and actual is not None and far([actual], [expected]) < 1e-12


def test_gradients_that_were_overwritten_are_refused(graphs: list[Again]) -> None:
    model = learner()
    run = RecordedWithGradients(plain, TrainingMemory())
    first = loss_of(model, run, 0)
    first.backward(retain_graph=True)
    with pytest.raises(UsageError, match="overwritten"):  # by the backward pass itself, which uses the memory again
        first.backward(retain_graph=True)
    loss_of(model, run, 1).backward()
    with pytest.raises(UsageError, match="overwritten"):
        first.backward()


@pytest.mark.parametrize("training", [False, True])
def test_where_nothing_can_be_recorded_the_pieces_run(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(*args: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    for module in (recorded, recorded_training):
        monkeypatch.setattr(module, "record", record)
    monkeypatch.setattr(recorded_training, "warm_up", lambda work, times: work())
    model = learner()
    run = RecordedWithGradients(plain, TrainingMemory()) if training else Recorded(plain)
    with torch.set_grad_enabled(training):
        with pytest.warns(UserWarning, match="not permitted when stream is capturing"):
            first = loss_of(model, run, 0)
        assert torch.equal(first, loss_of(model, run, 0)) and torch.equal(first, loss_of(model, plain, 0))


@pytest.mark.parametrize("training", [False, True])
def test_where_nothing_can_be_recorded_a_whole_graph_takes_the_place(
    training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once made, and only where pieces were not asked for."""

    def record(*args: Any) -> None:
        raise RuntimeError("out of memory")

    made: list[Any] = []

    def whole(*args: Any, **kwargs: Any) -> Any:
        made.append(args)
        return plain

    for module in (recorded, recorded_training):
        monkeypatch.setattr(module, "record", record)
    monkeypatch.setattr(recorded_training, "warm_up", lambda work, times: work())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: object())
    monkeypatch.setattr("vcc.hosts.compiled.compile.compiled", whole)
    model = learner()
    for asked, expected in ((None, 1), (False, 0)):
        made.clear()
        with torch.set_grad_enabled(training):
            run = CompiledGraphs(asked).graph(find_encoder(model), launch_bound=True)
            run.pieces = plain
            with pytest.warns(UserWarning, match="out of memory"):
                first = loss_of(model, run, 0)
            assert torch.equal(first, loss_of(model, run, 0)) and torch.equal(first, loss_of(model, plain, 0))
        assert len(made) == expected


def test_hooks_are_not_recorded() -> None:
    encoder = find_encoder(vcc.wrap(build("bert"), REAL))
    before = look(encoder)
    hook = encoder.host.layers[1].register_forward_hook(lambda *args: None)
    assert not can_record(encoder) and look(encoder) != before
    hook.remove()
    assert can_record(encoder) and look(encoder) == before


@pytest.mark.gpu
@pytest.mark.parametrize("order", ORDERS)
def test_gradients_of_a_cuda_graph(order: str) -> None:
    model = learner("cuda")
    expected = gradients(model, plain, order)
    run = RecordedWithGradients(CompiledPieces("aot_eager"), TrainingMemory(torch.cuda.graph_pool_handle()))
    for _ in range(2):
        assert far(gradients(model, run, order), expected) < 1e-4


@pytest.mark.gpu
@pytest.mark.parametrize("whole", [None, True])
def test_a_compiled_model_learns_as_the_plain_one(whole: bool | None) -> None:
    """Through all of `vcc.compile`, with an optimiser, gradients that add up, and an evaluation in between."""
    losses = []
    for model in (learner("cuda"), vcc.compile(learner("cuda"), whole)):
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
    """Recorded where launching costs most; then all lengths share their memory."""
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: object())
    monkeypatch.setattr("vcc.hosts.compiled.compile.compiled", lambda *args, **kwargs: "whole")
    encoder = find_encoder(learner())

    def kinds(whole: bool | None, training: bool) -> list[Any]:
        graphs = CompiledGraphs(whole)
        with torch.set_grad_enabled(training):
            return [graphs.graph(encoder, launch_bound) for launch_bound in (True, True, False)]

    first, second, long = kinds(None, False)
    assert type(first) is type(second) is Recorded and first.memory is second.memory is not None and long == "whole"
    assert kinds(True, False) == ["whole"] * 3
    assert [type(one) for one in kinds(True, True)] == [MovesGradients, MovesGradients, str]
    assert [type(one) for one in kinds(False, False)] == [Recorded, Recorded, CompiledPieces]
    assert kinds(None, True)[2] == "whole" and type(kinds(False, True)[2]) is CompiledPieces
    for whole in (None, False):
        first, second, _ = kinds(whole, True)
        assert type(first) is type(second) is RecordedWithGradients
        assert first.shared is second.shared and first.memory is second.memory is not None


def test_lengths_share_their_memory(graphs: list[Again]) -> None:
    """Graphs that share memory: while one waits for its gradients, another is not replayed."""
    model, shared = learner(), TrainingMemory()
    runs = [RecordedWithGradients(plain, shared) for _ in range(2)]
    for run in runs:
        gradients(model, run, "fb")
    model.zero_grad()
    replays = [graph.replays for graph in graphs]
    losses = [loss_of(model, run, seed) for seed, run in enumerate(runs)]
    assert [graph.replays - before for graph, before in zip(graphs, replays, strict=True)] == [1, 0, 0, 0]
    for loss in losses:
        loss.backward()
    found = [weights.grad.clone() for weights in model.parameters() if weights.grad is not None]
    assert far(found, gradients(model, plain, "ffbb")) < 1e-12
    assert runs[0].buffer[torch.float64] is runs[1].buffer[torch.float64], "gradients have one place"


def test_slots_of_each_dtype_follow_each_other() -> None:
    like = [torch.zeros(2, 3), torch.zeros(4, dtype=torch.float64), torch.zeros(())]
    flat = {torch.float32: torch.arange(7.0), torch.float64: torch.arange(4, dtype=torch.float64)}
    found = views(flat, slots(like))
    assert [part.tolist() for part in found] == [[[0, 1, 2], [3, 4, 5]], [0, 1, 2, 3], 6]
    assert [part.dtype for part in found] == [one.dtype for one in like]


def test_gradients_that_add_up_are_moved_before_the_next_call() -> None:
    layer = nn.Linear(3, 2)
    place = torch.ones(2, 3)  # where a graph of the compiler's writes gradients, call after call

    def graph(_: Any) -> None:
        place.fill_(float("nan"))

    run = MovesGradients(graph)
    run(layer)
    place.fill_(1)
    layer.weight.grad = place
    run(layer)
    moved = layer.weight.grad
    assert moved.eq(1).all()
    moved += 1
    run(layer)
    assert layer.weight.grad is moved and moved.eq(2).all()
    layer.zero_grad()
    run(layer)
    assert layer.weight.grad is None


@pytest.mark.gpu
def test_every_replay_drops_others() -> None:
    given = {name: value.cuda() for name, value in one(45).arguments("bert").items()}
    fast = vcc.compile(vcc.wrap(build("bert", hidden_dropout_prob=0.5), replace(REAL, explore=0.0)).cuda().train())
    losses = []
    for _ in range(6):
        loss = encoded(fast(**given)).square().mean()
        loss.backward()
        losses.append(float(loss))
    (graph,) = find_encoder(fast).vcc_state.graphs.graphs.values()
    assert graph.seen is not None, "it was recorded"
    assert len(set(losses)) == len(losses)


@pytest.mark.gpu
def test_lengths_by_turns() -> None:
    plain_model, fast = learner("cuda"), vcc.compile(learner("cuda"))
    with torch.no_grad():
        for n in (45, 70, 45, 70):
            batch = one(n, seed=n)
            given = {name: value.cuda() for name, value in batch.arguments("bert").items()}
            actual, expected = (encoded(model(**given)) for model in (fast, plain_model))
            assert difference(actual, expected, batch.real.cuda()) < 1e-4
