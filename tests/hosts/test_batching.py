"""Nothing leaks between the sequences of a batch: each row is what it is alone, to 1e-10, with real compression."""

from dataclasses import replace

import pytest
import torch

import vcc
from tests.hosts.models import (
    AFTER_PADDING,
    EVERY_HOST,
    PAD,
    REAL,
    RELATIVE,
    ROTARY,
    Batch,
    build,
    difference,
    encoded,
    one,
    ragged,
    states,
)

# BERT and its like, BART and Pegasus count positions from the first token of the batch, padding or not; in windows of
# their own, and in the other families, positions are counted from a sequence's own first token.
OWN_POSITIONS = AFTER_PADDING + ROTARY + RELATIVE


@pytest.mark.parametrize("vip_window", ["inline", "own"])
@pytest.mark.parametrize("budget", [(3, 4), (99, 999)])
@pytest.mark.parametrize("family", EVERY_HOST)
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
            # Hugging Face rounds rotations to float32, at places counted from the padding on.
            tolerance = 1e-6 if family in ROTARY and index == 1 else 1e-10
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


@pytest.mark.parametrize("family", EVERY_HOST)
def test_padding_is_never_seen(family: str) -> None:
    """Whatever stands there."""
    wrapped, batch = vcc.wrap(build(family), REAL), ragged()
    given = batch.arguments(family)
    if family in AFTER_PADDING:  # these read positions off the padding's id
        given["position_ids"] = torch.arange(45).expand(3, 45) + 1
    with torch.no_grad():
        expected = encoded(wrapped(**given))
        given["input_ids"] = batch.ids.masked_fill(batch.real == 0, 77)
        assert difference(encoded(wrapped(**given)), expected, batch.real) < 1e-12


@pytest.mark.parametrize("family", EVERY_HOST)
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


@pytest.mark.parametrize("dense_below", [40, "auto"])
@pytest.mark.parametrize("family", EVERY_HOST)
def test_whether_a_row_is_compressed_does_not_depend_on_its_neighbours(family: str, dense_below: int | str) -> None:
    """Rows of 19, 24 and 45 tokens: the first two are short alone, so they are in a batch."""
    config = replace(REAL, dense_below=dense_below, window=16)  # type: ignore[arg-type]
    wrapped, batch = vcc.wrap(build(family), config), ragged()
    batch.real[0, 19:], batch.real[1, :21] = 0, 0
    batch = Batch(batch.ids.masked_fill(batch.real == 0, PAD), batch.real, batch.vips * batch.real)
    if family not in OWN_POSITIONS:
        batch = Batch(batch.ids[::2], batch.real[::2], batch.vips[::2])
    compressed = []
    with torch.no_grad():
        together = wrapped(**batch.arguments(family), output_hidden_states=True)
        assert wrapped.vcc_share() == (1, len(batch.ids))
        assert {report.examples for report in wrapped.vcc_report()} == {(len(batch.ids) - 1,)}
        for index in range(len(batch.ids)):
            alone = wrapped(**batch.row(index).arguments(family), output_hidden_states=True)
            compressed.append(bool(wrapped.vcc_report()))
            kept = batch.real[index].bool()
            for ours, theirs in zip(states(together), states(alone), strict=True):
                assert difference(ours[index, kept], theirs[0]) < 1e-10
            assert difference(encoded(together)[index, kept], encoded(alone)[0]) < 1e-10
    assert compressed == [False] * (len(batch.ids) - 1) + [True]


@pytest.mark.parametrize("family", ["bert", "roberta", "t5"])
def test_gradients_of_a_row_do_not_depend_on_its_neighbours_either(family: str) -> None:
    wrapped, batch = vcc.wrap(build(family), replace(REAL, dense_below=40)), ragged()
    batch = Batch(batch.ids[::2], batch.real[::2], batch.vips[::2])
    found = []
    for parts in ([batch], [batch.row(0), batch.row(1)]):
        wrapped.zero_grad()
        for part in parts:
            (encoded(wrapped(**part.arguments(family))) * part.real[..., None]).square().sum().backward()
        found.append([p.grad.clone() for p in wrapped.parameters() if p.grad is not None])
    assert max(difference(*pair) for pair in zip(*found, strict=True)) < 1e-9


def test_short_rows_in_a_batch_wider_than_the_position_table_run_dense_all_the_same() -> None:
    wrapped, model = vcc.wrap(build("bert"), replace(REAL, dense_below=40)), build("bert")
    batch = one(30)
    wide = {name: torch.nn.functional.pad(value, (0, 70)) for name, value in batch.arguments("bert").items()}
    with torch.no_grad():
        assert difference(encoded(wrapped(**wide))[:, :30], encoded(model(**batch.inputs("bert")))) < 1e-10
    assert wrapped.vcc_share() == (0, 1)
