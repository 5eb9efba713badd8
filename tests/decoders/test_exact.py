"""With every node open a wrapped model is the untouched one, whatever asks it."""

import pytest
import torch

import vcc
from tests.decoders.models import CLOSED, CONFIGS, OPEN, ids, tiny


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", CONFIGS)
def test_open_tree_equals_untouched_model(family: str, attention: str, each_way: str) -> None:
    model, text = tiny(family, attention), ids(2, 90)
    wrapped = vcc.wrap(model, OPEN)
    with torch.no_grad():
        expected = model(text).logits
        cache = wrapped.new_cache()
        parts = [wrapped(part, past_key_values=cache).logits for part in text.split([50, 1, 1, 30, 8], 1)]
    in_float32 = attention == "eager"  # transformers' softmax there, which rounds by the shape of its input
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=0, atol=1e-6 if in_float32 else 1e-10)
    greedy = {"max_new_tokens": 30, "do_sample": False}
    assert torch.equal(wrapped.generate(text, **greedy), model.generate(text, **greedy))


@pytest.mark.parametrize("family", CONFIGS)
def test_closed_tree_is_no_longer_the_untouched_model(family: str) -> None:
    model, text = tiny(family), ids(2, 90)
    wrapped = vcc.wrap(model, CLOSED)
    with torch.no_grad():
        cache = wrapped(text[:, :83]).past_key_values
        assert not torch.allclose(wrapped(text[:, 83:], past_key_values=cache).logits, model(text).logits[:, 83:])
    assert all(report.share < 0.6 for report in wrapped.vcc_report())
