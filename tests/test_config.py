import json
from typing import Any

import pytest
import torch

from vcc import VccConfig, encode
from vcc.core.score import SCORES
from vcc.errors import UsageError
from vcc.testing import random_rows, tiny_host


def test_a_configuration_survives_json() -> None:
    config = VccConfig(
        scales=(256, 16, 1), budget=(40, 90), window_layers=2, vip_window="own", score="similarity", dense_below=0
    )
    assert VccConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_lists_are_taken_as_tuples() -> None:
    assert VccConfig(scales=[4, 1], budget=[3]) == VccConfig(scales=(4, 1), budget=(3,))  # type: ignore[arg-type]


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        VccConfig().window = 3  # type: ignore[misc]


BAD = [
    ("scales", (16, 2), "ending in 1"),
    ("scales", (1, 16), "coarse to fine"),
    ("scales", (6, 4, 1), "each a multiple of the next"),
    ("scales", (), "positive integers"),
    ("scales", (-16, 1), "positive integers"),
    ("scales", (16.0, 1), "positive integers"),
    ("scales", 16, "a tuple of whole numbers"),
    ("budget", 90, "a tuple of whole numbers"),
    ("budget", (), "one for each scale but the last"),
    ("budget", (40, 90), "one for each scale but the last"),
    ("budget", (-1,), "non-negative whole number"),
    ("budget", (2.5,), "non-negative whole number"),
    ("window", 0, "at least 1"),
    ("window", -512, "at least 1"),
    ("window", 1.5, "a whole number of tokens"),
    ("window_layers", -1, "at least 0"),
    ("window_layers", True, "a whole number of layers"),
    ("vip_window", "outside", '"inline", "own" or "every"'),
    ("mass", 0.0, "a share of the score, above 0 and at most 1"),
    ("mass", True, "a share of the score, above 0 and at most 1"),
    ("mean_norm", 1, "True or False"),
    ("gate_closed", "yes", "True or False"),
    ("reach", -1, "at least 0"),
    ("reach", 2.5, "a whole number of tokens"),
    ("score", "distance", '"attention" or "similarity"'),
    ("explore", -0.1, "from 0 to 1"),
    ("explore", 1.1, "from 0 to 1"),
    ("explore", float("nan"), "from 0 to 1"),
    ("explore", "0.1", "from 0 to 1"),
    ("dense_below", -1, "at least 0"),
    ("dense_below", "never", '"auto" or a whole number'),
    ("max_vips", -1, "at least 0"),
]


@pytest.mark.parametrize(("name", "value", "rule"), BAD)
def test_bad_settings_are_refused_with_value_and_rule(name: str, value: object, rule: str) -> None:
    with pytest.raises(ValueError) as error:
        VccConfig(**{name: value})  # type: ignore[arg-type]
    assert f"{name}={value!r}" in str(error.value) and rule in str(error.value)


def test_unknown_settings_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"unknown VCC settings \['scale'\]; the settings are \['budget'"):
        VccConfig.from_dict({"scale": (16, 1)})


def test_layers_on_windows_are_the_papers_for_its_sizes_and_else_a_third() -> None:
    assert [VccConfig().resolved(layers).window_layers for layers in (12, 24, 6, 2)] == [4, 6, 2, 0]
    assert VccConfig(window_layers=8).resolved(24).window_layers == 8


def test_more_window_layers_than_the_model_has_are_refused() -> None:
    with pytest.raises(ValueError, match="window_layers=9: this model has only 6 layers"):
        VccConfig(window_layers=9).resolved(6)


def test_a_new_score_is_a_row_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCORES, "place", lambda attention, vips, nodes: nodes.positions)
    config = VccConfig(scales=(4, 1), budget=(1,), window_layers=0, score="place")
    opened: list[list[list[int]]] = []
    encode(tiny_host(), random_rows(1, 16), torch.zeros(1, 16), config, lambda step: opened.append(step.cut.opened_nodes[0].tolist()))  # fmt: skip # noqa: E501
    assert opened == [[[3]]] * 3


@pytest.mark.parametrize("values", [[], "own", 3])
def test_settings_that_are_no_object_raise(values: Any) -> None:
    with pytest.raises(UsageError, match="must be an object"):
        VccConfig.from_dict(values)
