"""Steps of an encoder-decoder that are recorded: they write what the others write. A CPU plays the graph's part."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vcc
from tests.decoders.test_cross import CLOSED, CONFIGS, WRITE, texts, tiny, written_logits
from vcc.decoders import recorded_step
from vcc.decoders.cross import CrossLayer, CrossTrees
from vcc.decoders.recorded_step import StepCache

ROOM = 20


class Again:
    """What a CUDA graph does: the work is done again into the same memory, but for what Python does."""

    def __init__(self, work: Callable[[], Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
        self.work, self.result, self.monkeypatch, self.replays = work, work(), monkeypatch, 0

    def replay(self) -> None:
        self.replays += 1
        with self.monkeypatch.context() as patch:
            patch.setattr(CrossLayer, "note_rows", lambda *args: None)
            self.result.copy_(self.work())


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Again]:
    """All that is recorded."""
    found: list[Again] = []

    def record(work: Callable[[], Tensor], warm_ups: int = 1) -> tuple[Again, Tensor]:
        work()
        found.append(Again(work, monkeypatch))
        return found[-1], found[-1].result

    monkeypatch.setattr(recorded_step, "record", record)
    monkeypatch.setattr(StepCache, "can_record", lambda self: True)
    return found


@pytest.mark.parametrize("family", CONFIGS)
def test_recorded_steps_write_what_the_others_write(family: str, graphs: list[Again]) -> None:
    wrapped: Any = vcc.wrap(tiny(family), CLOSED)
    tokens, logits = written_logits(wrapped, texts())
    report = wrapped.cross_report()
    assert not graphs
    again, again_logits = written_logits(wrapped, texts(), past_key_values=wrapped.new_cache(ROOM))
    assert torch.equal(tokens, again)
    torch.testing.assert_close(again_logits, logits, rtol=0, atol=1e-10)
    assert [graph.replays for graph in graphs] == [WRITE["max_new_tokens"] - 1], "all but the first, which builds trees"
    assert wrapped.cross_report() == pytest.approx(report)


def test_sampling_and_streams_of_several_texts_are_recorded_too(graphs: list[Again]) -> None:
    wrapped: Any = vcc.wrap(tiny("t5"), CLOSED)
    how: dict[str, Any] = {"do_sample": True, "top_k": 5, "num_return_sequences": 2, "max_new_tokens": 9}
    torch.manual_seed(3)
    wanted = wrapped.generate(**texts(), **how)
    torch.manual_seed(3)
    assert torch.equal(wrapped.generate(**texts(), **how, past_key_values=wrapped.new_cache(ROOM)), wanted)
    assert len(graphs) == 1


def test_a_call_that_asks_for_more_is_not_replayed(graphs: list[Again]) -> None:
    wrapped: Any = vcc.wrap(tiny("t5"), CLOSED)
    cache, inputs = wrapped.new_cache(ROOM), texts()
    step = {"decoder_input_ids": torch.zeros(2, 1, dtype=torch.int64), "past_key_values": cache}
    with torch.no_grad():
        wrapped(**inputs, **step)
        states = wrapped(**inputs, **step, output_hidden_states=True)
    assert states.decoder_hidden_states is not None and not graphs
    wrapped(**inputs, **step)  # with gradients
    assert not graphs
    with torch.no_grad():
        encoded = wrapped.get_encoder()(**inputs)
        wrapped(encoder_outputs=encoded, attention_mask=inputs["attention_mask"], **step)
    assert len(graphs) == 1


def test_where_nothing_can_be_recorded_the_text_is_written_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(work: Callable[[], Tensor], warm_ups: int = 1) -> None:
        work()
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(recorded_step, "record", record)
    monkeypatch.setattr(StepCache, "can_record", lambda self: True)
    wrapped: Any = vcc.wrap(tiny("t5"), CLOSED)
    wanted, logits = written_logits(wrapped, texts())
    report = wrapped.cross_report()
    with pytest.warns(UserWarning, match="not permitted when stream is capturing"):
        found, found_logits = written_logits(wrapped, texts(), past_key_values=wrapped.new_cache(ROOM))
    assert torch.equal(found, wanted) and torch.equal(found_logits, logits)
    assert wrapped.cross_report() == pytest.approx(report)


def test_room_is_made_where_tokens_come_one_by_one_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped: Any = vcc.wrap(tiny("bart"), CLOSED)
    assert wrapped.room({"max_new_tokens": 12}) is None
    monkeypatch.setattr(CrossTrees, "device", torch.device("cuda"), raising=False)
    assert wrapped.room({"max_new_tokens": 12}) == 13
    assert wrapped.room({"max_length": 30, "decoder_input_ids": torch.zeros(2, 5)}) == 35
    assert wrapped.room({"max_new_tokens": 12, "num_beams": 2}) is None
    assert wrapped.room({"max_new_tokens": 12, "assistant_model": wrapped}) is None
