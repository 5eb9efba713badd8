"""Evaluation: what is answered, scored, counted and said."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForMultipleChoice

from tests.train import small
from vcc.cli import main
from vcc.train.predict import Predictor


def run(model: str, data: Path, out: Path, *options: str) -> int:
    return main(
        [
            "evaluate",
            "quality",
            "--model",
            model,
            "--fresh",
            "--data",
            small.stories(data),
            "--length",
            "50",
            "--device",
            "cpu",
            "--out",
            str(out),
            *options,
        ]
    )


def test_a_split_without_references_is_answered_and_not_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = small.encoder(tmp_path / "model")
    small.stories(tmp_path)
    hidden = (tmp_path / "validation.jsonl").read_text().replace('"gold_label"', '"unknown"')
    data = tmp_path / "hidden"
    data.mkdir()
    (data / "test.jsonl").write_text(hidden)
    assert (
        main(
            [
                "evaluate",
                "quality",
                "--split",
                "test",
                "--model",
                model,
                "--fresh",
                "--data",
                str(data),
                "--length",
                "50",
                "--device",
                "cpu",
                "--out",
                str(tmp_path / "out"),
            ]
        )
        == 0
    )
    assert "not scored" in capsys.readouterr().err
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["metrics"] == {}
    assert len((tmp_path / "out" / "predictions.jsonl").read_text().splitlines()) == 6


@pytest.mark.parametrize("batch, tries", [(4, "--batch-size 2, or --length 25"), (1, "Try --length 25")])
def test_out_of_memory_says_what_did_not_fit_and_what_to_try(
    batch: int, tries: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Predictor, "answer", full)
    assert run(small.encoder(tmp_path / "model"), tmp_path, tmp_path / "out", "--batch-size", str(batch)) == 1
    said = capsys.readouterr().err
    assert f"length 50 with {batch} examples at a time did not fit" in said and tries in said


def test_a_model_whose_weights_are_not_in_its_file_is_not_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(small.encoder(tmp_path / "model"))
    config = AutoConfig.from_pretrained(folder)
    start = ["evaluate", "quality", "--model", str(folder), "--data", small.stories(tmp_path), "--length", "50"]
    more = ["--device", "cpu", "--out", str(tmp_path / "out"), "--vcc", "false"]
    AutoModelForMultipleChoice.from_config(config).save_pretrained(folder)
    assert main([*start, *more]) == 0
    held = load_file(folder / "model.safetensors")
    headless = {key: value for key, value in held.items() if not key.startswith("classifier")}
    renamed = {f"x.{key}": value for key, value in held.items()}
    for weights in (renamed, headless):
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        capsys.readouterr()
        assert main([*start, *more]) == 2
        assert "has no weights" in capsys.readouterr().err
