"""A wrapped model is stored and loaded as any Hugging Face model, under its host's own parameter names."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel

import vcc
from tests.deep import deep_but
from tests.hosts.models import (
    EVERY_HOST,
    FAMILIES,
    FEW,
    ONE_EACH,
    OPEN,
    REAL,
    Batch,
    build,
    difference,
    heads_of,
    ragged,
)
from vcc.hosts.forward.wrapped import Wrapped
from vcc.hosts.made_classes import CLASSES

EVERYTHING = [(family, head) for family in FAMILIES for head in heads_of(family)]
SOME = [(family, head) for family, head in EVERYTHING if family in ONE_EACH]
OF_FEW = [(family, head) for family, head in SOME if family in FEW]


def run(model: PreTrainedModel, family: str, head: str, batch: Batch) -> Any:
    given = batch.arguments(family, head) if isinstance(model, Wrapped) else batch.inputs(family, head)
    with torch.no_grad():
        return model(**given)


def stored_names(folder: Path) -> set[str]:
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return set(file.keys())


@pytest.mark.parametrize(("family", "head"), deep_but(SOME, EVERYTHING))
def test_a_wrapped_model_is_loaded_by_its_auto_class(family: str, head: str, tmp_path: Path) -> None:
    wrapped = vcc.wrap(build(family, head), REAL)
    wrapped.save_pretrained(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix != ".json") == ["model.safetensors"]
    stored = json.loads((tmp_path / "config.json").read_text())
    assert vcc.VccConfig.from_dict(stored["vcc"]) == REAL
    loaded = getattr(transformers, head).from_pretrained(tmp_path, dtype=torch.float64)
    assert type(loaded) is type(wrapped) is CLASSES[type(vcc.unwrap(wrapped))]
    assert loaded.vcc == wrapped.vcc == REAL
    batch = ragged()
    assert difference(run(loaded, family, head, batch), run(wrapped, family, head, batch)) == 0
    assert len(loaded.vcc_report()) == 3


@pytest.mark.parametrize(("family", "head"), deep_but(OF_FEW, SOME))
def test_names_are_the_hosts_own_and_both_classes_load_both_folders(family: str, head: str, tmp_path: Path) -> None:
    model, batch = build(family, head), ragged()
    wrapped = vcc.wrap(model, OPEN)
    model.save_pretrained(tmp_path / "plain")
    wrapped.save_pretrained(tmp_path / "wrapped")
    assert stored_names(tmp_path / "plain") == stored_names(tmp_path / "wrapped")
    assert dict(model.named_parameters()).keys() == dict(wrapped.named_parameters()).keys()

    plain, report = type(model).from_pretrained(tmp_path / "wrapped", dtype=torch.float64, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert difference(run(plain, family, head, batch), run(model, family, head, batch)) == 0

    ours, report = type(wrapped).from_pretrained(tmp_path / "plain", dtype=torch.float64, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert ours.vcc == vcc.VccConfig().resolved(3), "an untouched checkpoint says nothing: the defaults"
    assert difference(run(ours, family, head, batch), run(model, family, head, batch)) == 0, "short inputs run dense"


@pytest.mark.parametrize(("family", "head"), SOME)
def test_unwrap_undoes_wrap(family: str, head: str) -> None:
    model, batch = build(family, head), ragged()
    plain = vcc.unwrap(vcc.wrap(model, REAL))
    assert type(plain) is type(model) and [type(m) for m in plain.modules()] == [type(m) for m in model.modules()]
    assert plain.config.to_dict() == model.config.to_dict() and type(plain.config) is type(model.config)
    assert all(a is b for a, b in zip(plain.parameters(), model.parameters(), strict=True))
    assert difference(run(plain, family, head, batch), run(model, family, head, batch)) == 0
    assert vcc.unwrap(plain) is plain


@pytest.mark.parametrize(("family", "head"), deep_but(OF_FEW, SOME))
def test_wrap_leaves_the_model_as_it_is(family: str, head: str) -> None:
    model, batch = build(family, head), ragged()
    before = model.config.to_dict(), [type(module) for module in model.modules()], run(model, family, head, batch)
    wrapped = vcc.wrap(model, REAL, max_length=200)
    run(wrapped, family, head, batch)
    assert model.config.to_dict() == before[0]
    assert [type(module) for module in model.modules()] == before[1]
    assert difference(run(model, family, head, batch), before[2]) == 0


@pytest.mark.parametrize("family", EVERY_HOST)
def test_weights_are_shared_and_tied_weights_stay_tied(family: str, tmp_path: Path) -> None:
    head = "AutoModelForSeq2SeqLM" if "AutoModelForSeq2SeqLM" in heads_of(family) else "AutoModelForMaskedLM"
    model = build(family, head)
    wrapped = vcc.wrap(model, REAL)
    assert all(a is b for a, b in zip(wrapped.parameters(), model.parameters(), strict=True))

    def tied(model: PreTrainedModel) -> list[tuple[str, ...]]:
        names: dict[int, list[str]] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), []).append(name)
        return sorted(tuple(group) for group in names.values() if len(group) > 1)

    wrapped.save_pretrained(tmp_path)
    loaded = getattr(transformers, head).from_pretrained(tmp_path)
    assert tied(wrapped) == tied(model) == tied(loaded)
    assert tied(model), "every one of these ties its embeddings, at least encoder's and decoder's"


@pytest.mark.parametrize("family", ONE_EACH)
def test_wrapping_again_changes_the_settings(family: str) -> None:
    once = vcc.wrap(build(family), REAL)
    twice = vcc.wrap(once, OPEN)
    assert type(twice) is type(once)
    assert once.vcc == REAL and twice.vcc == OPEN
    assert twice.config.vcc == OPEN.to_dict() and once.config.vcc == REAL.to_dict()


@pytest.mark.parametrize("family", ONE_EACH)
def test_settings_are_resolved_once_and_stored(family: str, tmp_path: Path) -> None:
    wrapped = vcc.wrap(build(family), vcc.VccConfig())
    assert wrapped.vcc.window_layers == 1, "a third of 3 layers"
    wrapped.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).vcc["window_layers"] == 1


@pytest.mark.parametrize("family", ONE_EACH)
def test_an_unwrapped_model_is_stored_without_a_trace(family: str, tmp_path: Path) -> None:
    plain = vcc.unwrap(vcc.wrap(build(family), REAL))
    plain.save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    assert "vcc" not in stored and not stored["model_type"].startswith("vcc")
    assert stored["architectures"] == [type(build(family)).__name__]


@pytest.mark.parametrize("family", ONE_EACH)
def test_a_loaded_model_unwraps_to_hugging_faces_own_outputs(family: str, tmp_path: Path) -> None:
    """Also to its hidden states and attentions, which Hugging Face records by class."""
    vcc.wrap(build(family, attention="eager"), REAL).save_pretrained(tmp_path)
    loaded = transformers.AutoModel.from_pretrained(tmp_path, dtype=torch.float64, attn_implementation="eager")
    model, batch = build(family, attention="eager"), ragged()
    with torch.no_grad():
        extra = {"output_hidden_states": True, "output_attentions": True}
        expected = model(**batch.inputs(family), **extra)
        actual = vcc.unwrap(loaded)(**batch.inputs(family), **extra)
    assert list(actual.keys()) == list(expected.keys())
    assert difference(actual, expected) == 0 or family == "modernbert"  # eager ModernBERT is NaN on padding


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_a_tokenizer_saved_with_the_model_is_found(family: str, tmp_path: Path) -> None:
    vcc.wrap(build(family), REAL).save_pretrained(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "long", "input"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizer(vocab=str(tmp_path / "vocab.txt"))
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert type(loaded).__name__ == type(tokenizer).__name__
    assert loaded("long input").input_ids == tokenizer("long input").input_ids == [2, 5, 6, 3]


@pytest.mark.parametrize("family", ["roberta", "t5"])
def test_half_precision_and_state_dicts_survive(family: str, tmp_path: Path) -> None:
    wrapped = vcc.wrap(build(family, dtype=torch.bfloat16), REAL)
    wrapped.save_pretrained(tmp_path)
    loaded = transformers.AutoModel.from_pretrained(tmp_path)
    assert loaded.dtype == torch.bfloat16
    for (name, ours), (other, theirs) in zip(loaded.state_dict().items(), wrapped.state_dict().items(), strict=True):
        assert name == other and torch.equal(ours, theirs)
