"""One loader for every command: broken models are refused with one kind of error, good ones load as they were saved."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    BertConfig,
    BertModel,
    BertTokenizerFast,
)

from tests.documents import small_model
from vcc.documents.shipped import load_asker
from vcc.errors import ModelError
from vcc.hosts.load import load_config, load_model, load_tokenizer, new_model

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(small_model.saved(tmp_path_factory.mktemp("model")))


def weights(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Path], None]:
    return lambda folder: save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS, {"format": "pt"})


def content(name: str, data: bytes | str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)  # type: ignore


def setting(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        held = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps({**held, **values}))

    return change


def cut(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])


def pickled(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": 1}))


def no_tokenizer(folder: Path) -> None:
    (folder / TOKENIZER).unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')


def one(key: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], None]:
    return weights(lambda held: {**held, key: change(held[key])})


def bad_number(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.clone()
        tensor.view(-1)[-1] = value
        return tensor

    return change


NORM = "bert.encoder.layer.1.output.LayerNorm.weight"
BROKEN: dict[str, Callable[[Path], None]] = {
    "all keys renamed": weights(lambda held: {"x." + key: value for key, value in held.items()}),
    "one tensor only": weights(lambda held: {NORM: held[NORM]}),
    "one tensor missing": weights(lambda held: {key: value for key, value in held.items() if key != NORM}),
    "head missing": weights(lambda held: {key: value for key, value in held.items() if "qa_outputs" not in key}),
    "a layer too many": weights(lambda held: {**held, NORM.replace("1", "7"): held[NORM].clone()}),
    "NaN": one(NORM, bad_number(float("nan"))),
    "infinite": one("qa_outputs.bias", bad_number(float("inf"))),
    "wrong shape": one(NORM, lambda tensor: tensor[:-1].clone()),
    "no layers": setting(num_hidden_layers=0),
    "fewer than no layers": setting(num_hidden_layers=-1),
    "one layer less": setting(num_hidden_layers=2),
    "a word for a number": setting(num_hidden_layers="three"),
    "heads do not divide": setting(num_attention_heads=3),
    "a larger vocabulary": setting(vocab_size=99),
    "unknown type": setting(model_type="unheard-of"),
    "settings that are a list": setting(vcc=[1, 2]),
    "cut": cut,
    "empty weights": content(WEIGHTS, b""),
    "garbage weights": content(WEIGHTS, b"\xff" * 500),
    "a page in place of the weights": content(WEIGHTS, "<html>not found</html>"),
    "no weights": lambda folder: (folder / WEIGHTS).unlink(),
    "a pickle": pickled,
    "no tokenizer": no_tokenizer,
    "a tokenizer that maps words to nothing": content(
        TOKENIZER,
        '{"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {}, "unk_token": "x"}}',
    ),
    **{
        f"{name} is {shown}": content(name, data)
        for name in (CONFIG, TOKENIZER, "tokenizer_config.json")
        for shown, data in (
            ("a list", "[1]"),
            ("null", "null"),
            ("a number", "7"),
            ("deep", "[" * 100_000),
            ("deep inside", '{"a":' * 5000 + "1" + "}" * 5000),
            ("empty", ""),
            ("no UTF-8", b"\xff\xfe{"),
        )
    },
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_model_is_refused_with_one_typed_error(kind: str, good: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    BROKEN[kind](folder)
    with pytest.raises(ModelError) as asked:
        load_asker(str(folder))
    assert str(folder) in str(asked.value) or "tokenizer" in str(asked.value) or "settings" in str(asked.value)
    assert len(str(asked.value)) < 1000
    with pytest.raises(ModelError):  # what evaluate does
        load_tokenizer(folder)
        model, _ = load_model(folder, AutoModelForQuestionAnswering)
        if kind == "settings that are a list":  # a matter of the settings, told by whoever reads them
            raise ModelError("later")


def test_a_good_model_loads_as_it_was_saved(good: Path) -> None:
    model, new = load_model(good, AutoModelForQuestionAnswering)
    saved = load_file(good / WEIGHTS)
    assert new == () and all(torch.equal(model.state_dict()[key], value) for key, value in saved.items())


def test_a_new_head_is_made_where_training_makes_one_and_named(tmp_path: Path) -> None:
    config = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
    for auto_class, named in (
        (AutoModelForQuestionAnswering, ("qa_outputs.bias", "qa_outputs.weight")),
        (
            AutoModelForMultipleChoice,  # takes the pooler, too, which the other head has no use for
            ("bert.pooler.dense.bias", "bert.pooler.dense.weight", "classifier.bias", "classifier.weight"),
        ),
        (AutoModelForMaskedLM, ()),
    ):
        assert load_model(tmp_path, auto_class, new_head=True)[1] == named
        if named:
            with pytest.raises(ModelError, match=named[-1]):
                load_model(tmp_path, auto_class)
    BertModel(config).save_pretrained(tmp_path)  # no head, and names without "bert."
    assert load_model(tmp_path, AutoModelForQuestionAnswering, new_head=True)[1] == named_head()
    held = load_file(tmp_path / WEIGHTS)
    save_file({key: held[key] for key in held if "LayerNorm" not in key}, tmp_path / WEIGHTS, {"format": "pt"})
    with pytest.raises(ModelError, match="no weights .*LayerNorm"):
        load_model(tmp_path, AutoModelForQuestionAnswering, new_head=True)


def named_head() -> tuple[str, ...]:
    return ("qa_outputs.bias", "qa_outputs.weight")


def test_weights_of_layers_that_a_bare_model_does_not_have_are_refused(tmp_path: Path) -> None:
    sizes = dict(vocab_size=9, hidden_size=8, num_attention_heads=2, intermediate_size=8)
    BertModel(BertConfig(num_hidden_layers=2, **sizes)).save_pretrained(tmp_path)
    BertConfig(num_hidden_layers=1, **sizes).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="does not have"):
        load_model(tmp_path, AutoModelForQuestionAnswering, new_head=True)


def test_a_configuration_that_makes_no_model_is_refused_before_random_weights_are_made(tmp_path: Path) -> None:
    BertConfig(num_hidden_layers=-1).save_pretrained(tmp_path)
    for load in (load_config, lambda folder: new_model(folder, AutoModelForMaskedLM)):
        with pytest.raises(ModelError, match="num_hidden_layers is -1"):
            load(tmp_path)


def test_a_tokenizer_that_knows_words_passes_and_one_that_knows_none_does_not(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n##s\n")
    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "good")
    BertConfig().save_pretrained(tmp_path / "good")
    assert len(load_tokenizer(tmp_path / "good")) == 7
    BertConfig().save_pretrained(tmp_path / "bare")  # a plain BERT folder without tokenizer files
    with pytest.raises(ModelError):
        load_tokenizer(tmp_path / "bare")
