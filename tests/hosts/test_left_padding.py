"""Padding on the left, in random cases: a row of a batch is the row alone, where its tokens keep their positions.

BERT and its like, BART and Pegasus count positions from the first column of the batch, padding or not. So a left-padded
row is, in Hugging Face's own models, another input than the row without its padding: theirs is the yardstick here.
"""

import random

import pytest
import torch

import vcc
from tests.hosts.models import build, difference

FAMILIES = ("bert", "electra", "distilbert", "albert", "deberta-v2", "bart", "pegasus")
CASES = 5  # of each family


def encoder(model):  # type: ignore[no-untyped-def]
    return model.get_encoder() if model.config.is_encoder_decoder else model


def random_case(family: str, number: int):  # type: ignore[no-untyped-def]
    """Settings, and a left-padded batch (B, n): ids, which are real, which are VIPs."""
    rng = random.Random(f"{family} {number}")
    scales = rng.choice([(2, 1), (4, 1), (8, 2, 1), (16, 4, 1)])
    config = vcc.VccConfig(
        scales=scales,
        budget=tuple(rng.randint(0, 6) for _ in scales[1:]),
        window=rng.choice([8, 16, 33]),
        window_layers=rng.choice([0, 1, 2]),
        vip_window=rng.choice(["inline", "own"]),  # type: ignore[arg-type]
        dense_below=0,  # else a row that is short alone would not be compressed
        explore=0.0,
    )
    n, generator = rng.randint(6, 60), torch.Generator().manual_seed(number)
    lengths = torch.tensor([rng.randint(1, n) for _ in range(3)])
    real = (torch.arange(n) >= n - lengths[:, None]).long()
    vips = (torch.rand(3, n, generator=generator) < rng.choice([0.0, 0.1, 0.5, 1.0])).long() * real
    return config, torch.randint(5, 40, (3, n), generator=generator), real, vips


@pytest.mark.parametrize("family", FAMILIES)
def test_a_left_padded_row_of_a_batch_is_the_row_alone(family: str) -> None:
    model = build(family)
    for number in range(CASES):
        config, ids, real, vips = random_case(family, number)
        reader = encoder(vcc.wrap(model, config))
        with torch.no_grad():
            together = reader(input_ids=ids, attention_mask=real, vip_mask=vips).last_hidden_state
            for row in range(len(ids)):
                kept, one = real[row].bool(), slice(row, row + 1)
                alone = reader(input_ids=ids[one], attention_mask=real[one], vip_mask=vips[one]).last_hidden_state
                assert difference(together[row, kept], alone[0, kept]) < 1e-10
                if family not in ("bart", "pegasus"):  # the others take the positions that the tokens had
                    cut = reader(
                        input_ids=ids[one, kept],
                        attention_mask=real[one, kept],
                        vip_mask=vips[one, kept],
                        position_ids=torch.arange(ids.shape[1])[None, kept],
                    ).last_hidden_state
                    assert difference(together[row, kept], cut[0]) < 1e-10


@pytest.mark.parametrize("family", FAMILIES)
def test_without_its_padding_a_left_padded_row_is_another_input_in_hugging_faces_own_model(family: str) -> None:
    """And ours differs from it where theirs does: with every node open, by the same numbers."""
    model = build(family)
    _, ids, real, _ = random_case(family, 1)
    row = int(real.sum(1).argmin())
    kept, one = real[row].bool(), slice(row, row + 1)
    assert not kept[0], "the row has no padding"
    everything = vcc.VccConfig(scales=(4, 1), budget=(999,), window_layers=0, dense_below=0, explore=0.0)
    found = []
    with torch.no_grad():
        for wrapped, vips in ((model, {}), (vcc.wrap(model, everything), {"vip_length": 1})):
            reader = encoder(wrapped)
            padded = reader(input_ids=ids[one], attention_mask=real[one], **vips).last_hidden_state[0, kept]
            cut = reader(input_ids=ids[one, kept], attention_mask=real[one, kept], **vips).last_hidden_state[0]
            assert difference(padded, cut) > 1e-3
            found.append(padded - cut)
    assert difference(*found) < 1e-10
