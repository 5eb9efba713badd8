"""All of `generate()`: open trees give the untouched model's tokens, closed ones the same however they are asked."""

import pytest
import torch
from transformers import DynamicCache
from transformers.generation.streamers import BaseStreamer

import vcc
from tests.decoders.models import CLOSED, OPEN, ids, tiny
from vcc.errors import UsageError

WAYS = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 20},
    "beams": {"do_sample": False, "num_beams": 3},
    "beam samples": {"do_sample": True, "num_beams": 2, "num_return_sequences": 2},
    "n-gram assistance": {"do_sample": False, "prompt_lookup_num_tokens": 4},
    "chunked prefill": {"do_sample": False, "prefill_chunk_size": 16},
}


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return tiny()


def generated(model: torch.nn.Module, text: torch.Tensor, **settings: object) -> torch.Tensor:
    torch.manual_seed(7)
    return model.generate(text, max_new_tokens=24, **settings)


@pytest.mark.parametrize("way", WAYS)
def test_open_trees_generate_what_the_untouched_model_does(model: torch.nn.Module, way: str) -> None:
    text = ids(1 if "assistance" in way else 2, 60)
    assert torch.equal(generated(vcc.wrap(model, OPEN), text, **WAYS[way]), generated(model, text, **WAYS[way]))


def test_assistance_does_not_change_what_closed_trees_say(model: torch.nn.Module) -> None:
    """Several tokens at once, some taken back: the same as one by one."""
    wrapped, text = vcc.wrap(model, CLOSED), ids(1, 60)
    alone = generated(wrapped, text, do_sample=False)
    assert torch.equal(generated(wrapped, text, do_sample=False, prompt_lookup_num_tokens=4), alone)
    assert torch.equal(generated(wrapped, text, do_sample=False, assistant_model=tiny(seed=3)), alone)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("settings", [OPEN, CLOSED], ids=["open", "closed"])
def test_a_prompt_in_a_padded_batch_gives_what_it_gives_alone(
    model: torch.nn.Module, settings: vcc.DecoderConfig, side: str
) -> None:
    wrapped = vcc.wrap(model, settings)
    prompts = [ids(1, n, seed=n)[0] for n in (70, 41, 9)]
    mask = torch.zeros(3, 70, dtype=torch.int64)
    batch = torch.zeros(3, 70, dtype=torch.int64)
    for i, prompt in enumerate(prompts):
        where = slice(70 - len(prompt), 70) if side == "left" else slice(0, len(prompt))
        batch[i, where], mask[i, where] = prompt, 1
    together, alone = [], []
    with torch.no_grad():
        places = mask.cumsum(1) - 1
        cache = wrapped(batch, attention_mask=mask, position_ids=places.clamp(min=0)).past_key_values
        for step in range(20):
            mask = torch.cat([mask, torch.ones(3, 1, dtype=torch.int64)], 1)
            token = ids(3, 1, seed=100 + step)
            places = mask.sum(1, keepdim=True) - 1
            logits = wrapped(token, attention_mask=mask, position_ids=places, past_key_values=cache).logits
            together.append(logits[:, -1])
        for i, prompt in enumerate(prompts):
            cache = wrapped(prompt[None]).past_key_values
            steps = [ids(3, 1, seed=100 + step)[i : i + 1] for step in range(20)]
            alone.append(torch.cat([wrapped(token, past_key_values=cache).logits[0] for token in steps]))
    torch.testing.assert_close(torch.stack(together, 1), torch.stack(alone), rtol=0, atol=1e-10)


def test_a_conversation_goes_on_in_its_cache(model: torch.nn.Module) -> None:
    text, turn = ids(1, 60), ids(1, 12, seed=5)
    results = []
    for each in (model, vcc.wrap(model, OPEN)):
        cache = each.new_cache() if each is not model else DynamicCache(config=model.config)
        first = each.generate(text, past_key_values=cache, max_new_tokens=10, do_sample=False)
        second = torch.cat([first, turn], 1)
        results.append(each.generate(second, past_key_values=cache, max_new_tokens=10, do_sample=False))
    assert torch.equal(*results)


def test_a_streamer_gets_every_token(model: torch.nn.Module) -> None:
    class Kept(BaseStreamer):
        def __init__(self) -> None:
            self.tokens: list[int] = []

        def put(self, value: torch.Tensor) -> None:
            self.tokens += value.flatten().tolist()

        def end(self) -> None:
            self.tokens.append(-1)

    streamer, text = Kept(), ids(1, 40)
    result = vcc.wrap(model, CLOSED).generate(text, max_new_tokens=8, do_sample=False, streamer=streamer)
    assert streamer.tokens == [*result[0].tolist(), -1]


def test_another_cache_is_read_densely(model: torch.nn.Module) -> None:
    text = ids(1, 60)
    wrapped = vcc.wrap(model, CLOSED)
    result = wrapped.generate(text, past_key_values=DynamicCache(), max_new_tokens=10, do_sample=False)
    assert torch.equal(result, model.generate(text, max_new_tokens=10, do_sample=False))


def test_a_tree_is_refused_by_models_that_cannot_read_it(model: torch.nn.Module) -> None:
    wrapped = vcc.wrap(model, CLOSED)
    cache = wrapped(ids(1, 60)).past_key_values
    with pytest.raises(UsageError, match=r"vcc\.wrap"):
        model(ids(1, 1), past_key_values=cache)
    other = tiny("qwen3")
    other.config.num_key_value_heads = 1
    with pytest.raises(UsageError, match="another model's"):
        vcc.wrap(other, CLOSED)(ids(1, 1), past_key_values=cache)
