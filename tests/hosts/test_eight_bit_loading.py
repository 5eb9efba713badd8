"""A model stored in 8 bits loads wherever another one does, as an ordinary model of the rounded weights."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForQuestionAnswering

import vcc
from shipped_model.in_eight_bits import StoreOptions, store
from tests.documents import small_model
from vcc.documents.shipped import load_asker
from vcc.errors import ModelError
from vcc.hosts.eight_bit_weights import restored, round_rows
from vcc.hosts.load import load_model
from vcc.hosts.plain_bert import load_plain_bert

WEIGHTS, CONFIG = "model.safetensors", "config.json"
WORDS, NORM = "bert.embeddings.word_embeddings", "bert.encoder.layer.1.output.LayerNorm.weight"
MATRIX = "bert.encoder.layer.1.intermediate.dense"


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(small_model.saved(tmp_path_factory.mktemp("floats")))


@pytest.fixture(scope="module")
def stored(floats: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "model"
    store(StoreOptions(floats, folder))
    return folder


def by_hand(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """What should be computed with, by NumPy: rows rounded to 127 steps on either side, but not those of a head."""
    found = {}
    for name, weight in weights.items():
        if weight.ndim == 2 and not name.startswith("qa_outputs"):
            steps = np.abs(weight.numpy()).max(1, keepdims=True).clip(1e-20) / np.float32(127)
            weight = torch.from_numpy(np.rint(weight.numpy() / steps) * steps)
        found[name] = weight
    return found


def test_rounding_is_off_by_at_most_half_a_step_and_happens_once() -> None:
    matrix = torch.randn(9, 40) * torch.logspace(-6, 6, 9)[:, None]
    matrix[3] = 0.0
    values, steps = round_rows(matrix)
    back = restored({"a.weight": values, "a.steps": steps})["a.weight"]
    assert (back - matrix).abs().le(matrix.abs().amax(1, keepdim=True) / 253).all()
    again = round_rows(back)
    assert torch.equal(again[0], values) and torch.allclose(again[1], steps, rtol=1e-6)


def test_every_loader_gives_the_rounded_weights(floats: Path, stored: Path, tmp_path: Path) -> None:
    expected = by_hand(load_file(floats / WEIGHTS))
    assert (stored / WEIGHTS).stat().st_size < 0.6 * (floats / WEIGHTS).stat().st_size
    loaded = {
        "load_model": load_model(stored, AutoModelForQuestionAnswering)[0],
        "transformers": AutoModelForQuestionAnswering.from_pretrained(stored),
        "documents": load_asker(str(stored)).model.cpu().float(),
    }
    for model in loaded.values():
        assert model.state_dict().keys() == expected.keys()
        for name, weight in model.state_dict().items():
            torch.testing.assert_close(weight, expected[name], rtol=1e-6, atol=0)
    encoder = AutoModel.from_pretrained(stored)  # whose names lack "bert.", and whose pooler is new
    torch.testing.assert_close(encoder.embeddings.word_embeddings.weight, expected[f"{WORDS}.weight"])
    assert encoder.pooler.dense.weight.dtype == torch.float32
    config = json.loads((stored / CONFIG).read_text()) | {"position_embedding_type": "absolute"}
    shutil.copytree(stored, tmp_path / "bundled")
    (tmp_path / "bundled" / CONFIG).write_text(json.dumps(config))
    for name, weight in load_plain_bert(tmp_path / "bundled").state_dict().items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_a_loaded_model_is_an_ordinary_one(dtype: torch.dtype, stored: Path, tmp_path: Path) -> None:
    """It trains, unwraps, and is saved in floats."""
    model = AutoModelForQuestionAnswering.from_pretrained(stored, dtype=dtype)
    assert {weight.dtype for weight in model.parameters()} == {dtype}
    assert all(weight.requires_grad for weight in model.parameters())
    model.save_pretrained(tmp_path / "again")
    assert "quantization_config" not in json.loads((tmp_path / "again" / CONFIG).read_text())
    again = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "again")
    for one in (again, vcc.unwrap(model)):
        assert all(torch.equal(weight, model.state_dict()[name]) for name, weight in one.state_dict().items())
    if dtype == torch.float32:
        vcc.unwrap(model).train()(input_ids=torch.randint(5, 60, (1, 40))).start_logits.sum().backward()
        assert model.bert.embeddings.word_embeddings.weight.grad.any()


def test_tied_weights_stay_tied(stored: Path) -> None:
    model, new = load_model(stored, AutoModelForMaskedLM, new_head=True)
    words = model.bert.embeddings.word_embeddings.weight
    assert model.cls.predictions.decoder.weight is words and words.dtype == torch.float32
    assert not [name for name in new if name.startswith("bert.")]


Change = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def without(key: str) -> Change:
    return lambda held: {name: weight for name, weight in held.items() if name != key}


def with_one(key: str, change: Callable[[Tensor], Tensor]) -> Change:
    return lambda held: {**held, key: change(held[key])}


BROKEN: dict[str, Change] = {
    "steps missing": without(f"{MATRIX}.steps"),
    "steps missing of words": without(f"{WORDS}.steps"),
    "numbers missing": without(f"{MATRIX}.weight"),
    "numbers in floats": with_one(f"{MATRIX}.weight", lambda weight: weight.float()),
    "all in floats": lambda held: restored(held),
    "a step missing": with_one(f"{MATRIX}.steps", lambda steps: steps[:-1].clone()),
    "one step for all": with_one(f"{MATRIX}.steps", lambda steps: steps[:1].clone()),
    "NaN for a step": with_one(f"{MATRIX}.steps", lambda steps: steps * torch.nan),
    "a column missing": with_one(f"{MATRIX}.weight", lambda weight: weight[:, :-1].clone()),
    "a norm that is too short": with_one(NORM, lambda weight: weight[:-1].clone()),
    "a norm missing": without(NORM),
    "steps of a norm": lambda held: {**held, NORM.replace("weight", "steps"): torch.ones(16)},
    "a layer too many": lambda held: {
        **held,
        MATRIX.replace("1", "7") + ".weight": torch.ones(16, 16, dtype=torch.int8),
    },
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_refused_in_one_line_that_names_it(kind: str, stored: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(stored, folder)
    save_file(BROKEN[kind](load_file(stored / WEIGHTS)), folder / WEIGHTS, {"format": "pt"})
    config = json.loads((stored / CONFIG).read_text()) | {"position_embedding_type": "absolute"}
    (folder / CONFIG).write_text(json.dumps(config))
    readers: list[Callable[[], object]] = [lambda: load_asker(str(folder))]
    if kind != "all in floats":  # which the bundled model may be: its reader asks the file, not the configuration
        readers.append(lambda: load_plain_bert(folder))
    for load in readers:
        with pytest.raises(ModelError) as told:
            load()
        print(told.value)
        assert str(folder) in str(told.value) and len(str(told.value)) < 1000 and "\n" not in str(told.value)


@pytest.mark.parametrize("method", [None, "vcc-int4"])
def test_whole_numbers_are_not_taken_for_weights(method: str | None, stored: Path, tmp_path: Path) -> None:
    """Where the configuration does not say that they are stored in 8 bits."""
    folder = tmp_path / "model"
    shutil.copytree(stored, folder)
    config = json.loads((stored / CONFIG).read_text())
    del config["quantization_config"]
    (folder / CONFIG).write_text(
        json.dumps(config | ({"quantization_config": {"quant_method": method}} if method else {}))
    )
    with pytest.raises(ModelError, match="steps"):
        load_asker(str(folder))
