"""Nothing leaks between the sequences of a batch: each row is what it is alone, to 1e-10, with real compression."""

from dataclasses import replace

import pytest
import torch

import vcc
from tests.hosts.models import FAMILIES, REAL, Batch, build, difference, encoded, ragged, states

# BERT, ELECTRA, BART and Pegasus count positions from the first token of the batch, padding or not; in windows of their
# own, and in the other families, positions are counted from a sequence's own first token.
OWN_POSITIONS = ("roberta", "xlm-roberta", "camembert", "roberta-prelayernorm", "modernbert", "t5", "t5-v1.1", "mt5")


@pytest.mark.parametrize("vip_window", ["inline", "own"])
@pytest.mark.parametrize("budget", [(3, 4), (99, 999)])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_of_a_batch_is_the_row_alone(family: str, budget: tuple[int, ...], vip_window: str) -> None:
    """Different lengths, padding on different sides, different numbers of VIPs: 7, 2 and 4."""
    config = replace(REAL, budget=budget, vip_window=vip_window)  # type: ignore[arg-type]
    wrapped, batch = vcc.wrap(build(family), config), ragged()
    if family not in OWN_POSITIONS and vip_window == "inline":
        batch = Batch(batch.ids[::2], batch.real[::2], batch.vips[::2])
    with torch.no_grad():
        together = wrapped(**batch.arguments(family), output_hidden_states=True)
        for index in range(len(batch.ids)):
            single = batch.row(index)
            alone = wrapped(**single.arguments(family), output_hidden_states=True)
            kept = batch.real[index].bool()
            # Hugging Face rounds ModernBERT's rotations to float32, at places counted from the padding on.
            tolerance = 1e-7 if family == "modernbert" and index == 1 else 1e-10
            assert difference(encoded(together)[index, kept], encoded(alone)[0]) < tolerance
            for ours, theirs in zip(states(together), states(alone), strict=True):
                assert difference(ours[index, kept], theirs[0]) < tolerance


@pytest.mark.parametrize("family", ["roberta", "modernbert", "t5"])
def test_other_rows_do_not_matter(family: str) -> None:
    """Not what they say, not how many VIPs they have, not even NaN."""
    wrapped, batch = vcc.wrap(build(family), REAL), ragged()
    embeds = wrapped.get_input_embeddings()(batch.ids).detach()
    given = {name: tensor for name, tensor in batch.arguments(family).items() if name != "input_ids"}
    with torch.no_grad():
        expected = encoded(wrapped(inputs_embeds=embeds, **given))
        embeds[1] = torch.nan
        given["vip_mask"] = given["vip_mask"].clone()
        given["vip_mask"][1] = 1
        actual = encoded(wrapped(inputs_embeds=embeds, **given))
    for index in (0, 2):
        kept = batch.real[index].bool()
        assert difference(actual[index, kept], expected[index, kept]) < 1e-10
    assert bool(actual[1][batch.real[1].bool()].isnan().all())


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_is_never_seen(family: str) -> None:
    """Whatever stands there."""
    wrapped, batch = vcc.wrap(build(family), REAL), ragged()
    given = batch.arguments(family)
    if "rob" in family or "cam" in family:  # these read positions off the padding's id
        given["position_ids"] = torch.arange(45).expand(3, 45) + 1
    with torch.no_grad():
        expected = encoded(wrapped(**given))
        given["input_ids"] = batch.ids.masked_fill(batch.real == 0, 77)
        assert difference(encoded(wrapped(**given)), expected, batch.real) < 1e-12


@pytest.mark.parametrize("family", FAMILIES)
def test_extreme_masks_are_read(family: str) -> None:
    """No VIPs, all VIPs, a sequence of nothing but padding."""
    wrapped, batch = vcc.wrap(build(family), REAL), ragged()
    real = batch.real.clone()
    real[1] = 0
    for vips in (torch.zeros_like(real), torch.ones_like(real)):
        with torch.no_grad():
            output = encoded(wrapped(**Batch(batch.ids, real, vips).arguments(family)))
        assert bool(output[real.bool()].isfinite().all())


@pytest.mark.parametrize("family", ["roberta", "t5"])
@pytest.mark.parametrize("n", [1, 2, 11, 12, 13, 47])
def test_odd_lengths_are_read(family: str, n: int) -> None:
    wrapped = vcc.wrap(build(family), REAL)
    ids = torch.arange(10, 10 + n)[None]
    batch = Batch(ids, torch.ones_like(ids), torch.zeros_like(ids))
    with torch.no_grad():
        assert encoded(wrapped(**batch.arguments(family))).shape == (1, n, 32)
