"""All of `generate()`: open trees give the untouched model's tokens, closed ones the same however they are asked."""

import threading

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache, Qwen2Config
from transformers.generation.streamers import BaseStreamer

import vcc
from tests.decoders.models import CLOSED, OPEN, SIZES, SMALL, ids, tiny
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
def test_open_trees_generate_what_the_untouched_model_does(model: torch.nn.Module, way: str, each_way: str) -> None:
    text = ids(1 if "assistance" in way else 2, 60)
    assert torch.equal(generated(vcc.wrap(model, OPEN), text, **WAYS[way]), generated(model, text, **WAYS[way]))


def test_assistance_does_not_change_what_closed_trees_say(model: torch.nn.Module) -> None:
    """Several tokens at once, some taken back: the same as one by one."""
    wrapped, text = vcc.wrap(model, CLOSED), ids(1, 60)
    alone = generated(wrapped, text, do_sample=False)
    assert torch.equal(generated(wrapped, text, do_sample=False, prompt_lookup_num_tokens=4), alone)
    assert torch.equal(generated(wrapped, text, do_sample=False, assistant_model=tiny(seed=3)), alone)


@pytest.mark.parametrize("family", ["gemma3", "qwen2"])
def test_a_model_with_sliding_windows_assists(family: str, each_way: str) -> None:
    """Its guesses are taken back, beyond the window too."""
    model, text = windowed(family), ids(1, 60)
    alone = generated(model, text, do_sample=False)
    helper = vcc.wrap(windowed(family, seed=3), CLOSED)
    assert torch.equal(generated(model, text, do_sample=False, assistant_model=helper), alone)
    wrapped = vcc.wrap(model, OPEN)
    assert torch.equal(generated(wrapped, text, do_sample=False, assistant_model=helper), alone)
    same = vcc.wrap(windowed(family), OPEN)  # all of its guesses are right
    assert torch.equal(generated(wrapped, text, do_sample=False, assistant_model=same), alone)


def windowed(family: str, seed: int = 0) -> torch.nn.Module:
    if family != "qwen2":
        return tiny(family, seed=seed)
    model = tiny(family, seed=seed)
    kinds = ["full_attention", "sliding_attention", "full_attention"]
    torch.manual_seed(seed)
    config = Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=24, layer_types=kinds)
    other = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").double().eval()
    other.load_state_dict(model.state_dict())
    return other


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


def test_a_cache_of_other_settings_is_rejected_with_those_that_differ(model: torch.nn.Module) -> None:
    cache = vcc.wrap(model, CLOSED)(ids(1, 60)).past_key_values
    other_budget = vcc.wrap(model, vcc.DecoderConfig(**SMALL, budget=5))
    with pytest.raises(UsageError, match=r"budget=\(3,\), this model has budget=\(5,\).*with_settings"):
        other_budget(ids(1, 1), past_key_values=cache)
    other_scales = vcc.wrap(model, vcc.DecoderConfig(**SMALL | {"scales": (8, 1)}, budget=3))
    with pytest.raises(UsageError, match=r"scales=\(4, 1\), this model has scales=\(8, 1\).*Read the text again"):
        other_scales(ids(1, 1), past_key_values=cache)
    with pytest.raises(UsageError, match="scales differ"):
        cache.with_settings(other_scales.vcc)


def test_a_cache_is_read_with_another_budget_if_asked(model: torch.nn.Module) -> None:
    text, token = ids(2, 60), ids(2, 1, seed=4)
    cache = vcc.wrap(model, CLOSED)(text).past_key_values
    opened = vcc.wrap(model, OPEN)
    expected = opened(token, past_key_values=opened(text).past_key_values).logits
    again = cache.with_settings(OPEN)
    torch.testing.assert_close(opened(token, past_key_values=again).logits, expected, rtol=0, atol=1e-12)
    assert (cache.get_seq_length(), again.get_seq_length()) == (60, 61)


def test_threads_read_their_own_caches(model: torch.nn.Module) -> None:
    """The attention function finds the cache of the forward it is in."""
    wrapped = vcc.wrap(model, CLOSED)
    texts = [ids(1, 50 + 7 * i, seed=i) for i in range(4)]
    expected = [generated(wrapped, text, do_sample=False) for text in texts]
    found: dict[int, torch.Tensor] = {}

    def work(i: int) -> None:
        found[i] = wrapped.generate(texts[i], max_new_tokens=24, do_sample=False)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[i], expected[i]) for i in range(4))


def test_a_forward_that_was_interrupted_leaves_a_cache_that_says_so(model: torch.nn.Module) -> None:
    wrapped = vcc.wrap(model, CLOSED)
    cache = wrapped(ids(1, 60)).past_key_values

    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    last = wrapped.model.layers[1].self_attn.o_proj
    handle = last.register_forward_pre_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        wrapped(ids(1, 12), past_key_values=cache)
    handle.remove()
    lengths = {layer.get_seq_length() for layer in cache.layers}
    assert lengths == {60, 72}
    with pytest.raises(UsageError, match="differ in length"):
        wrapped(ids(1, 1), past_key_values=cache)


def test_the_model_inside_a_wrapped_one_cannot_read_a_tree(model: torch.nn.Module) -> None:
    wrapped = vcc.wrap(model, CLOSED)
    cache = wrapped(ids(1, 60)).past_key_values
    with pytest.raises(UsageError, match=r"vcc\.wrap"):
        wrapped.model(ids(1, 1), past_key_values=cache)


def test_what_is_read_in_inference_mode_is_continued_outside_of_it(model: torch.nn.Module) -> None:
    wrapped, text = vcc.wrap(model, CLOSED), ids(1, 90)
    parts = text.split([60, *[1] * 30], 1)
    expected, found = wrapped.new_cache(), wrapped.new_cache()
    for i, part in enumerate(parts):
        with torch.no_grad():
            wanted = wrapped(part, past_key_values=expected).logits
        with torch.inference_mode(i % 3 == 0), torch.no_grad():
            assert torch.equal(wrapped(part, past_key_values=found).logits, wanted)
