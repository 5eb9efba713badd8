"""How a model answers is kept with it, under one key."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, BertConfig

from tests.documents import small_model
from vcc.documents.asker import Asker
from vcc.documents.shipped import load_asker
from vcc.errors import ModelError
from vcc.qa.calibration import Calibration
from vcc.qa.settings import QaSettings, keep_settings, load_settings

GIVEN = QaSettings(
    calibration=Calibration(0.2, 0.1, -1.5),
    clause_calibration=Calibration(0.4),
    threshold=0.4,
    doubt=0.05,
    framed_windows=True,
    second_looks=12,
)


def test_settings_survive_saving_and_loading(tmp_path: Path) -> None:
    folder = small_model.saved(tmp_path)
    config = AutoConfig.from_pretrained(folder)
    keep_settings(config, GIVEN)
    config.save_pretrained(folder)
    kept = json.loads((tmp_path / "config.json").read_text())
    assert kept["qa"]["second_looks"] == 12
    assert load_asker(folder).qa.settings == GIVEN


def test_a_configuration_without_settings_has_the_defaults() -> None:
    config = BertConfig(second_looks=3)  # a key of another model's
    assert load_settings(config) == QaSettings()
    keep_settings(config, QaSettings(second_looks=4))
    assert load_settings(config) == QaSettings(second_looks=4)


@pytest.mark.parametrize(
    ("kept", "word"),
    [
        ({"calibration": {"lead": "much"}}, "calibration.lead='much'"),
        ({"calibration": {"margin": -1.0}}, "calibration.margin=-1.0"),
        ({"clause_calibration": {"slope": 1.0}}, "slope"),
        ({"threshold": 1.5}, "threshold=1.5"),
        ({"doubt": True}, "doubt=True"),
        ({"framed_windows": 1}, "framed_windows=1"),
        ({"second_looks": -1}, "second_looks=-1"),
        ({"candidates": 0}, "candidates=0"),
        ({"longest_answer": 2.5}, "longest_answer=2.5"),
        ({"nodes": 0}, "nodes=0"),
        ({"looks": 3}, "looks"),
        ("twelve", "cannot be used"),
    ],
)
def test_settings_that_cannot_be_used_say_why(kept: Any, word: str) -> None:
    model = small_model.model()
    model.config.qa = kept
    with pytest.raises(ModelError, match=word):
        Asker(model, small_model.tokenizer())


def test_settings_are_what_the_configuration_says_now() -> None:
    qa = small_model.asker().qa
    config = qa.model.config
    keep_settings(config, GIVEN)
    assert qa.settings == GIVEN
    config.qa["calibration"]["lead"] = 0.3  # changed in place
    assert qa.settings == replace(GIVEN, calibration=Calibration(0.3, 0.1, -1.5))
    config.qa["framed_windows"] = 1  # equal to what it was, and wrong
    with pytest.raises(ModelError, match="framed_windows=1"):
        _ = qa.settings
    config.qa = None
    assert qa.settings == QaSettings()


def test_a_copy_has_settings_of_its_own() -> None:
    qa = small_model.asker().qa
    other, shallow = copy.deepcopy(qa), copy.copy(qa)
    keep_settings(other.model.config, GIVEN)
    assert other.settings == GIVEN and qa.settings == shallow.settings != GIVEN
    assert replace(other, model=qa.model).settings == qa.settings
