"""DeBERTa's distances: Hugging Face's for tokens, rounded to whole tokens for segments."""

from typing import Any

import pytest
import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

import vcc
from tests.hosts.models import OPEN, REAL, build, config_of
from vcc.errors import ModelError
from vcc.hosts.families.deberta import log_bucket, rounded_to_float32
from vcc.hosts.forward.encoder import find_encoder


@pytest.mark.parametrize(("buckets", "most"), [(256, 512), (256, 1024), (8, 20), (32, 128), (64, 300)])
def test_buckets_equal_those_of_hugging_face(buckets: int, most: int) -> None:
    distance = torch.arange(-3 * most, 3 * most + 1)
    theirs = make_log_bucket_position(distance, buckets, most).long()
    ours = distance.sign() * log_bucket(distance.abs().float(), buckets // 2, most).long()
    # At the last distance that has a bucket of its own, both of Hugging Face's logarithms are equal but for rounding.
    border = distance.abs() == most - 1
    assert torch.equal(ours[~border], theirs[~border])
    assert torch.equal(ours[border].abs(), torch.full((2,), buckets - 1))


def distance_rows(family: str, asking: list[float], asked: list[float]) -> torch.Tensor:
    host: Any = find_encoder(vcc.wrap(build(family), REAL)).host
    attention = host.layers[0].attention.self
    return host.distance_rows(attention, torch.tensor([asking]), torch.tensor([asked]))


@pytest.mark.parametrize("family", ["deberta-v3", "deberta-v2"])
def test_the_distance_of_segments_is_that_of_their_middles_rounded_away_from_zero(family: str) -> None:
    halves = distance_rows(family, [10.0], [7.5, 9.5, 10.4, 10.5, 12.4, 30.5])
    whole = distance_rows(family, [10.0], [7.0, 9.0, 10.0, 11.0, 12.0, 31.0])
    assert torch.equal(halves, whole)
    assert len(set(whole.flatten().tolist())) > 4


@pytest.mark.parametrize("family", ["deberta-v3", "deberta-v2"])
def test_far_away_is_the_last_row_on_either_side(family: str) -> None:
    span = find_encoder(vcc.wrap(build(family), REAL)).host.layers[0].attention.self.pos_ebd_size  # type: ignore[attr-defined]
    assert distance_rows(family, [0.0, 1e6], [1e6, 0.0])[0].tolist() == [[0, span], [span, 2 * span - 1]]


@pytest.mark.parametrize("value", [3**0.5 * 8, 5.0, 13.856406460551018, 1 / 3])
def test_a_number_is_rounded_as_to_float32(value: float) -> None:
    assert rounded_to_float32(value) == torch.tensor(value, dtype=torch.float32).item()


def test_a_longer_table_of_positions_keeps_the_distances(tmp_path: Any) -> None:
    """Unless the configuration has it, the longest distance follows from the number of positions."""
    wrapped = vcc.wrap(build("deberta-v2"), OPEN, max_length=300)
    assert wrapped.config.max_relative_positions == 80 and wrapped.config.max_position_embeddings == 300
    wrapped.save_pretrained(tmp_path)
    loaded: Any = type(wrapped).from_pretrained(tmp_path)
    assert loaded.encoder.rel_embeddings.num_embeddings == 160
    assert loaded.embeddings.position_embeddings.num_embeddings == 300


def test_a_convolution_over_tokens_is_rejected() -> None:
    from transformers import DebertaV2Model

    model = DebertaV2Model(config_of("deberta-v3", conv_kernel_size=3))
    with pytest.raises(ModelError, match="conv_kernel_size is 3"):
        vcc.wrap(model, REAL)
