"""The weights that are read from ONNX files are those of the model they were made from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import Tensor
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    BertConfig,
    BertModel,
    T5Config,
    T5ForConditionalGeneration,
)

from reproduction.from_onnx import OnnxOptions, convert, weights_in
from vcc.errors import UsageError
from vcc.hosts import load

Array = np.ndarray[Any, Any]
KINDS = [(False, False), (True, False), (True, True)]  # in 8 bits, with a step for each column


def bert() -> Any:
    torch.manual_seed(0)
    sizes = dict(vocab_size=40, hidden_size=32, intermediate_size=24, max_position_embeddings=32)
    config = BertConfig(num_hidden_layers=2, num_attention_heads=1, **sizes)
    return BertModel(config, add_pooling_layer=False).eval()


def t5() -> Any:
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=40, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_decoder_layers=3, num_heads=3,
        relative_attention_num_buckets=10, feed_forward_proj="gated-gelu", decoder_start_token_id=0,
        tie_word_embeddings=False,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    model.lm_head.weight = torch.nn.Parameter(torch.randn(40, 16))
    return model.eval()


def is_table(name: str) -> bool:
    return any(part in name for part in ("embed", "shared", "relative_attention_bias"))


def rounded(weight: Array, by_column: bool) -> tuple[Array, Array, Array]:
    """A matrix in unsigned 8 bits, its steps and its zero."""
    axis = 0 if by_column else None
    low, high = np.minimum(weight.min(axis), 0), np.maximum(weight.max(axis), 0)  # zero is exact
    step = (high - low) / 255
    zero = np.round(-low / step).astype(np.uint8)
    whole = np.clip(np.round(weight / step) + zero, 0, 255).astype(np.uint8)
    return whole, np.asarray(step, np.float32), zero


class Exported:
    """A file as exporters write it: matrices lose their names, tables and vectors keep them."""

    def __init__(self, weights: dict[str, Tensor], scoped: Callable[[str], str], named: bool, kind: tuple[bool, bool]):
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.eight, self.by_column = kind
        self.held: dict[str, Tensor] = {}
        for name, weight in weights.items():
            value = weight.detach().numpy()
            if value.ndim < 2:
                self.constant(scoped(name), value)
            elif is_table(name):
                value = self.stored(scoped(name), value)
            else:
                value = self.product(scoped(name), value, named)
            self.held[name] = torch.from_numpy(np.array(value))
        self.nodes.append(helper.make_node("MatMul", ["query", "key"], ["scores"]))  # a product without a matrix

    def constant(self, name: str, value: Array) -> None:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))

    def stored(self, name: str, value: Array) -> Array:
        """Add a matrix, and return what it is in the file."""
        if not self.eight:
            self.constant(name, value)
            return value
        parts = rounded(value, self.by_column)
        for part, end in zip(parts, ("_quantized", "_scale", "_zero_point"), strict=True):
            self.constant(name + end, part)
        whole, step, zero = parts
        return (whole.astype(np.float32) - zero.astype(np.float32)) * step

    def product(self, name: str, value: Array, named: bool) -> Array:
        """Add a product; without a name of its own, the bias that is added to it tells which one it is."""
        place, matrix = name.removesuffix(".weight"), f"onnx::MatMul_{len(self.nodes)}"
        stored = self.stored(matrix, value.T).T
        node = f"/{place.replace('.', '/')}/MatMul" if named else f"node_{len(self.nodes)}"
        if self.eight:
            given = [f"{place}.in", f"{matrix}_quantized"]
            self.nodes.append(helper.make_node("MatMulInteger", given, [f"{place}.a"], f"{node}_quant"))
            self.nodes.append(helper.make_node("Cast", [f"{place}.a"], [f"{place}.b"], to=1))
            self.nodes.append(helper.make_node("Mul", [f"{place}.b", f"{place}.step"], [f"{place}.product"]))
        else:
            self.nodes.append(helper.make_node("MatMul", [f"{place}.in", matrix], [f"{place}.product"], node))
        self.nodes.append(helper.make_node("Add", [f"{place}.bias", f"{place}.product"], [f"{place}.out"]))
        return stored

    def save(self, file: Path) -> None:
        onnx.save(helper.make_model(helper.make_graph(self.nodes, "model", [], [], self.constants)), file)


def export_bert(model: Any, file: Path, scope: str = "", kind: tuple[bool, bool] = KINDS[0]) -> dict[str, Tensor]:
    made = Exported(dict(model.named_parameters()), lambda name: scope + name, False, kind)
    made.constant(scope + "pooler.dense.bias", np.zeros(4, np.float32))  # for another task
    made.save(file)
    return made.held


@pytest.mark.parametrize("scope", ["", "bert."])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_in_the_file(scope: str, kind: tuple[bool, bool], tmp_path: Path) -> None:
    model = bert()
    held = export_bert(model, tmp_path / "model.onnx", scope, kind)
    found = weights_in(tmp_path / "model.onnx")
    assert found.keys() == held.keys() | {"pooler.dense.bias"}
    for name, weight in held.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=0)
        torch.testing.assert_close(found[name], model.state_dict()[name], rtol=0, atol=2e-3 if kind[0] else 0)


def test_a_berts_folder_computes_what_the_bert_does(tmp_path: Path) -> None:
    model = bert().half().float()
    export_bert(model, tmp_path / "model.onnx")
    convert(OnnxOptions((tmp_path / "model.onnx",), tmp_path / "start"))
    reader = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "start", dtype=torch.float32).eval()
    ids = torch.randint(40, (2, 9))
    with torch.no_grad():
        found, expected = reader.bert(ids).last_hidden_state, model(ids).last_hidden_state
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_t5s_folder_computes_what_the_t5_does(kind: tuple[bool, bool], tmp_path: Path) -> None:
    """Encoder and decoder are two files with scopes of their own, and both hold the words."""
    model = t5().half().float()
    weights = dict(model.named_parameters())
    encoder = {name: one for name, one in weights.items() if name.startswith(("encoder.", "shared."))}
    decoder = {name: one for name, one in weights.items() if not name.startswith("encoder.")}
    one = Exported(encoder, lambda n: n.replace("encoder.", "enc.").replace("shared.", "enc.embed_tokens."), True, kind)
    two = Exported(decoder, lambda n: f"m.{n}", True, kind)
    one.save(tmp_path / "encoder.onnx")
    two.save(tmp_path / "decoder.onnx")
    convert(OnnxOptions((tmp_path / "encoder.onnx", tmp_path / "decoder.onnx"), tmp_path / "t5"))
    made: Any
    made, _ = load.load_model(tmp_path / "t5", AutoModelForSeq2SeqLM, local=True)
    model.load_state_dict({name: value.half() for name, value in (one.held | two.held).items()}, strict=False)
    given = {"input_ids": torch.randint(40, (2, 9)), "decoder_input_ids": torch.randint(40, (2, 5))}
    with torch.no_grad():
        torch.testing.assert_close(made.float().eval()(**given).logits, model(**given).logits)


def test_a_file_without_all_weights_is_refused(tmp_path: Path) -> None:
    model = bert()
    del model.encoder.layer[1].output.dense
    export_bert(model, tmp_path / "model.onnx")
    with pytest.raises(UsageError, match="2 weights of BertModel are not in the files, such as encoder.layer.1.output"):
        convert(OnnxOptions((tmp_path / "model.onnx",), tmp_path / "start"))
    with pytest.raises(UsageError, match="none.onnx does not exist"):
        convert(OnnxOptions((tmp_path / "none.onnx",), tmp_path / "start"))
