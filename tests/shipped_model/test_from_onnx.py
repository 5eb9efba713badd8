"""The weights that are read from an ONNX file are those of the model it was made from."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from transformers import AutoModelForQuestionAnswering, BertConfig, BertModel

from shipped_model.from_onnx import OnnxOptions, convert, weights_in
from vcc.errors import UsageError

SIZES = dict(vocab_size=40, hidden_size=16, num_attention_heads=2, intermediate_size=24, max_position_embeddings=32)


def bert() -> Any:
    torch.manual_seed(0)
    return BertModel(BertConfig(num_hidden_layers=2, **SIZES), add_pooling_layer=False).eval()


def rounded(weight: np.ndarray[Any, Any], by_column: bool) -> tuple[np.ndarray[Any, Any], ...]:
    """A matrix in unsigned 8 bits, its steps and its zero."""
    axis = 0 if by_column else None
    low, high = np.minimum(weight.min(axis), 0), np.maximum(weight.max(axis), 0)  # zero is exact
    step = (high - low) / 255
    zero = np.round(-low / step).astype(np.uint8)
    whole = np.clip(np.round(weight / step) + zero, 0, 255).astype(np.uint8)
    return whole, np.asarray(step, np.float32), zero


def exported(model: Any, file: Path, prefix: str, eight: bool, by_column: bool) -> dict[str, torch.Tensor]:
    """Write the model as exporters do, which drop the names of matrices; return the weights that the file holds."""
    nodes, constants, held = [], [], {}

    def constant(name: str, value: np.ndarray[Any, Any]) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def in_eight_bits(name: str, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        whole, step, zero = rounded(value, by_column)
        for part, end in ((whole, "_quantized"), (step, "_scale"), (zero, "_zero_point")):
            constant(name + end, part)
        return (whole.astype(np.float32) - zero.astype(np.float32)) * step

    for name, weight in model.state_dict().items():
        value = weight.numpy()
        if "embeddings" in name and value.ndim == 2:
            stored = in_eight_bits(prefix + name, value) if eight else value
            if not eight:
                constant(prefix + name, value)
        elif value.ndim == 2:
            matrix, bias = f"onnx::MatMul_{len(nodes)}", prefix + name.replace("weight", "bias")
            states = name.removesuffix(".weight")
            if eight:
                stored = in_eight_bits(matrix, value.T).T
                nodes.append(
                    helper.make_node("MatMulInteger", [f"{states}.in", matrix + "_quantized"], [f"{states}.a"])
                )
                nodes.append(helper.make_node("Cast", [f"{states}.a"], [f"{states}.b"], to=1))
                nodes.append(helper.make_node("Mul", [f"{states}.b", f"{states}.step"], [f"{states}.product"]))
            else:
                stored = value
                constant(matrix, value.T)
                nodes.append(helper.make_node("MatMul", [f"{states}.in", matrix], [f"{states}.product"]))
            nodes.append(helper.make_node("Add", [bias, f"{states}.product"], [f"{states}.out"]))
        else:
            stored = value
            constant(prefix + name, value)
        held[name] = torch.from_numpy(np.array(stored))
    nodes.append(helper.make_node("MatMul", ["query", "key"], ["scores"]))  # a product without a matrix
    onnx.save(helper.make_model(helper.make_graph(nodes, "bert", [], [], constants)), file)
    return held


@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize(("eight", "by_column"), [(False, False), (True, False), (True, True)])
def test_weights_are_those_in_the_file(prefix: str, eight: bool, by_column: bool, tmp_path: Path) -> None:
    model = bert()
    held = exported(model, tmp_path / "model.onnx", prefix, eight, by_column)
    found = weights_in(tmp_path / "model.onnx")
    assert found.keys() == held.keys()
    for name, weight in held.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=0)
        torch.testing.assert_close(found[name], model.state_dict()[name], rtol=0, atol=2e-3 if eight else 0)


def test_the_folder_computes_what_the_model_does(tmp_path: Path) -> None:
    model = bert().half().float()
    exported(model, tmp_path / "model.onnx", "", False, False)
    convert(OnnxOptions(tmp_path / "model.onnx", tmp_path / "start", heads=2))
    reader = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "start", dtype=torch.float32).eval()
    ids = torch.randint(40, (2, 9))
    with torch.no_grad():
        found, expected = reader.bert(ids).last_hidden_state, model(ids).last_hidden_state
    torch.testing.assert_close(found, expected)


def test_a_file_without_all_weights_is_refused(tmp_path: Path) -> None:
    model = bert()
    del model.encoder.layer[1].output.dense
    exported(model, tmp_path / "model.onnx", "", False, False)
    with pytest.raises(RuntimeError, match="Missing key.*layer.1.output.dense.weight"):
        convert(OnnxOptions(tmp_path / "model.onnx", tmp_path / "start", heads=2))
    with pytest.raises(UsageError, match="none.onnx does not exist"):
        convert(OnnxOptions(tmp_path / "none.onnx", tmp_path / "start"))
