"""The mean of models is that of each weight, and only of models that can be averaged."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from shipped_model.average import AverageOptions, average
from vcc.errors import UsageError
from vcc.qa.verdicts import FILE as VERDICTS


def saved(folder: Path, value: float, width: int = 3) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    save_file({"a": torch.full((2, width), value, dtype=torch.float16)}, folder / "model.safetensors")
    save_file({"weight": torch.full((3,), 10 * value)}, folder / VERDICTS)
    return folder


def test_each_weight_of_the_reader_and_of_the_verdicts_is_the_mean(tmp_path: Path) -> None:
    models = (saved(tmp_path / "one", 1.0), saved(tmp_path / "two", 2.0), saved(tmp_path / "three", 6.0))
    average(AverageOptions(models, tmp_path / "out"))
    mean = load_file(tmp_path / "out" / "model.safetensors")["a"]
    assert mean.dtype == torch.float16 and mean.eq(3.0).all()
    assert load_file(tmp_path / "out" / VERDICTS)["weight"].eq(30.0).all()
    assert (tmp_path / "out" / "config.json").read_text() == "{}"


@pytest.mark.parametrize("number", [0, 1])
def test_a_mean_needs_two_models(tmp_path: Path, number: int) -> None:
    with pytest.raises(UsageError, match=f"--models has {number}"):
        average(AverageOptions((saved(tmp_path / "one", 1.0),)[:number], tmp_path / "out"))


def test_models_of_other_shapes_leave_nothing_behind(tmp_path: Path) -> None:
    models = (saved(tmp_path / "one", 1.0), saved(tmp_path / "two", 2.0, width=4))
    with pytest.raises(UsageError, match="a differs"):
        average(AverageOptions(models, tmp_path / "out"))
    assert not (tmp_path / "out").exists()
