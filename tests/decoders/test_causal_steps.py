"""Recorded steps of a causal model write what unrecorded ones write. A CPU plays the graph's part."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vcc
from tests.decoders.models import CLOSED, SMALL, ids, tiny
from tests.deep import deep_but
from vcc.decoders import recorded_step
from vcc.decoders.causal_steps import PATIENCE, CausalSteps

WAIT = 1 + PATIENCE  # forwards that are not replayed: the prompt's, and the first steps
ROOMY = vcc.DecoderConfig(**SMALL | {"piece": 128}, budget=3)  # trees grow in place for long
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 20},
    "beams": {"do_sample": False, "num_beams": 3},
    "beam samples": {"do_sample": True, "num_beams": 2, "num_return_sequences": 2},
}


class Again:
    """What a CUDA graph does: the same work into the same memory. The work sees only what was made when it was
    recorded: what Python has counted since then does not reach it."""

    def __init__(self, work: Callable[[], Tensor]) -> None:
        self.work, self.result, self.replays = work, work(), 0

    def replay(self) -> None:
        self.replays += 1
        self.result.copy_(self.work())


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Again]:
    """All that is recorded."""
    found: list[Again] = []

    def record(work: Callable[[], Tensor], warm_ups: int = 1) -> tuple[Again, Tensor]:
        work()
        found.append(Again(work))
        return found[-1], found[-1].result

    monkeypatch.setattr(recorded_step, "record", record)
    monkeypatch.setattr(CausalSteps, "can_record", lambda self, layers: True)
    return found


def written(model: Any, text: Tensor, record: bool, new: int = 50, **how: Any) -> tuple[Tensor, tuple[Any, ...]]:
    torch.manual_seed(7)
    how.setdefault("past_key_values", model.new_cache(record=record))
    return model.generate(text, max_new_tokens=new, **how), model.vcc_report()


def same(found: tuple[Tensor, tuple[Any, ...]], expected: tuple[Tensor, tuple[Any, ...]]) -> bool:
    reports = [(report.rows, report.keys) for report in found[1]]
    wanted = [(report.rows, report.keys) for report in expected[1]]
    return torch.equal(found[0], expected[0]) and reports == [pytest.approx(each) for each in wanted]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("way", WAYS)
def test_recorded_steps_write_what_the_others_write(way: str, batch: int, graphs: list[Again]) -> None:
    """Over several pieces: the trees' storage becomes too small and is made anew."""
    wrapped, text = vcc.wrap(tiny(), CLOSED), ids(batch, 60)
    expected = written(wrapped, text, False, **WAYS[way])
    assert not graphs
    assert same(written(wrapped, text, True, **WAYS[way]), expected)
    assert sum(graph.replays for graph in graphs) == 50 - WAIT
    assert 1 < len(graphs) <= 5


def test_a_tree_grows_without_recording_anew(graphs: list[Again]) -> None:
    wrapped, text = vcc.wrap(tiny(), ROOMY), ids(2, 60)
    assert same(written(wrapped, text, True), written(wrapped, text, False))
    assert [graph.replays for graph in graphs] == [50 - WAIT]


@pytest.mark.parametrize("family", deep_but(["qwen3"], ["mistral", "qwen2", "qwen3"]))
def test_other_families_are_recorded_too(family: str, graphs: list[Again]) -> None:
    wrapped, text = vcc.wrap(tiny(family), ROOMY), ids(2, 60)
    assert same(written(wrapped, text, True), written(wrapped, text, False))
    assert len(graphs) == 1


def test_sliding_windows_are_not_recorded(graphs: list[Again]) -> None:
    wrapped, text = vcc.wrap(tiny("gemma3"), ROOMY), ids(2, 60)
    assert same(written(wrapped, text, True), written(wrapped, text, False))
    assert not graphs


@pytest.mark.parametrize("settings", [CLOSED, ROOMY], ids=["small pieces", "large piece"])
def test_a_padded_batch_is_recorded(settings: vcc.DecoderConfig, graphs: list[Again]) -> None:
    wrapped, text = vcc.wrap(tiny(), settings), ids(3, 70)
    mask = (torch.arange(70) >= torch.tensor([0, 29, 15])[:, None]).long()
    mask[0, 30:40] = 0  # a hole
    expected = written(wrapped, text, False, attention_mask=mask)
    assert same(written(wrapped, text, True, attention_mask=mask), expected)
    assert sum(graph.replays for graph in graphs) == 50 - WAIT


def test_steps_and_all_else_take_turns(graphs: list[Again]) -> None:
    """Single tokens, several, some taken back, sequences chosen, a step with padding."""
    wrapped, text = vcc.wrap(tiny(), ROOMY), ids(2, 60)

    def logits(record: bool) -> list[Tensor]:
        found, cache = [], wrapped.new_cache(record=record)

        def give(n: int, seed: int, **how: Any) -> None:
            batch = 2 if cache.get_seq_length() == 0 else len(cache.layers[0].counts.tokens)
            tokens = text if seed == 0 else ids(batch, n, seed=seed)
            found.append(wrapped(tokens, past_key_values=cache, **how).logits[:, -1:])

        with torch.no_grad():
            give(60, 0)
            for seed in range(1, 12):
                give(1, seed)
            give(5, 20)
            give(1, 21)
            cache.crop(-9)
            for seed in range(30, 45):
                give(1, seed)
            cache.reorder_cache(torch.tensor([1, 0]))
            give(1, 50)
            mask = torch.ones(2, cache.get_seq_length() + 1, dtype=torch.int64)
            mask[1, -1] = 0
            give(1, 51, attention_mask=mask)
            for seed in range(60, 75):
                give(1, seed)
            cache.batch_select_indices(torch.tensor([1]))
            give(1, 80)
            cache.batch_repeat_interleave(3)
            for seed in range(90, 100):
                give(1, seed)
            cache.crop(-cache.get_seq_length() + 30)
            give(1, 110)
        return found

    for one, other in zip(logits(True), logits(False), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    assert sum(graph.replays for graph in graphs) > 30


def test_an_assistant_and_prompt_lookup(graphs: list[Again]) -> None:
    wrapped, text = vcc.wrap(tiny(), ROOMY), ids(1, 60)
    alone = written(wrapped, text, False)[0]
    assert torch.equal(written(wrapped, text, True, prompt_lookup_num_tokens=4)[0], alone)
    helper: Any = vcc.wrap(tiny(), CLOSED)  # guesses right for a while
    helper.generation_config.update(num_assistant_tokens=12, num_assistant_tokens_schedule="constant")
    helper.generation_config.assistant_confidence_threshold = 0.0
    assert torch.equal(written(wrapped, text, True, assistant_model=helper)[0], alone)
    assert sum(graph.replays for graph in graphs) > 5


def test_questions_to_a_document_are_recorded_and_do_not_change_it(graphs: list[Again]) -> None:
    settings = vcc.DecoderConfig(**SMALL, budget=3)  # what is written joins the tree, a piece at a time
    document = vcc.wrap(tiny(), settings).read(ids(1, 75))
    how: dict[str, Any] = {"max_new_tokens": 60, "do_sample": False}
    questions = [ids(1, n, seed=n)[0] for n in (5, 9, 2)]
    recorded = document.ask(questions, **how)
    assert sum(graph.replays for graph in graphs) == 60 - WAIT
    assert torch.equal(document.ask(questions, **how), recorded)
    document.cache.steps.wanted = False
    assert torch.equal(document.ask(questions, **how), recorded)


def test_rows_outside_the_tree_get_more_room(graphs: list[Again], monkeypatch: pytest.MonkeyPatch) -> None:
    from vcc.decoders import outside

    monkeypatch.setattr(outside, "LEAST_ROOM", 16)
    document = vcc.wrap(tiny(), ROOMY).read(ids(1, 75))
    recorded = document.ask(ids(2, 3), max_new_tokens=70, do_sample=False)
    assert len(graphs) > 1 and sum(graph.replays for graph in graphs) == 70 - WAIT
    document.cache.steps.wanted = False
    assert torch.equal(document.ask(ids(2, 3), max_new_tokens=70, do_sample=False), recorded)


def test_a_graph_is_of_one_model(graphs: list[Any]) -> None:
    """Another model of the same shape may go on with the cache: it must not replay the weights of the first."""
    one, other = vcc.wrap(tiny(), ROOMY), vcc.wrap(tiny(seed=5), ROOMY)
    token = ids(1, 1, seed=9)

    def logits(record: bool) -> Tensor:
        with torch.no_grad():
            cache = one.new_cache(record=record)
            one(ids(1, 60), past_key_values=cache)
            for i in range(7):  # some after the trees have grown
                one(ids(1, 1, seed=i), past_key_values=cache)
            return other(token, past_key_values=cache).logits

    torch.testing.assert_close(logits(True), logits(False), rtol=0, atol=1e-10)
    assert len(graphs) == 2


def test_a_copied_cache_goes_its_own_way(graphs: list[Again]) -> None:
    wrapped = vcc.wrap(tiny(), ROOMY)
    with torch.no_grad():
        cache = wrapped(ids(1, 60)).past_key_values
        for i in range(5):
            wrapped(ids(1, 1, seed=i), past_key_values=cache)
        assert len(graphs) == 1
        twin = copy.deepcopy(cache)
        expected = [wrapped(ids(1, 1, seed=i), past_key_values=cache).logits for i in range(20)]
        for i in range(20):
            found = wrapped(ids(1, 1, seed=i), past_key_values=twin).logits
            torch.testing.assert_close(found, expected[i], rtol=0, atol=1e-10)


def test_a_call_that_asks_for_more_is_not_replayed(graphs: list[Again]) -> None:
    wrapped = vcc.wrap(tiny(), ROOMY)
    token = ids(1, 1)
    with torch.no_grad():
        cache = wrapped(ids(1, 60)).past_key_values
        assert wrapped(token, past_key_values=cache, output_hidden_states=True).hidden_states is not None
        assert isinstance(wrapped(token, past_key_values=cache, return_dict=False), tuple)
        assert wrapped(token, past_key_values=cache, labels=token).loss is not None
    assert wrapped(token, past_key_values=cache).logits.requires_grad
    assert not graphs
    with torch.no_grad():
        for _ in range(WAIT):
            wrapped(token, past_key_values=cache)
    assert len(graphs) == 1


def test_where_nothing_can_be_recorded_the_text_is_written_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(work: Callable[[], Tensor], warm_ups: int = 1) -> None:
        work()
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(recorded_step, "record", record)
    monkeypatch.setattr(CausalSteps, "can_record", lambda self, layers: True)
    wrapped, text = vcc.wrap(tiny(), CLOSED), ids(2, 60)
    expected = written(wrapped, text, False)
    with pytest.warns(UserWarning, match="not permitted when stream is capturing"):
        assert same(written(wrapped, text, True), expected)


def test_on_a_cpu_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(*args: Any) -> None:
        raise AssertionError("recorded on a CPU")

    monkeypatch.setattr(recorded_step, "record", record)
    written(vcc.wrap(tiny(), CLOSED), ids(1, 60), True)
