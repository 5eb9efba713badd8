"""A document of 128K tokens saved by one process, loaded by another and asked there: the same tokens, and how soon.

    python -m benchmarks.decoder_document --layers 8

The model has random weights, so its keys and values are put into the cache as they are: reading 128K tokens exactly on
a CPU takes minutes and tells nothing more. The second process is a new one each time; the file may be in the system's
cache of files, as it is when a document is asked again.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import vcc
from vcc.commands.options import call
from vcc.decoders.cache import TreeCache
from vcc.decoders.document import KeptDocument
from vcc.decoders.layer import TreeLayer

QUESTION = list(range(5, 25))
WRITTEN = 16


def model_of(layers: int, kv_heads: int, width: int) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=2 * kv_heads * width,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=2 * kv_heads,
        num_key_value_heads=kv_heads,
        head_dim=width,
        max_position_embeddings=2**20,
        eos_token_id=None,
    )
    return vcc.wrap(LlamaForCausalLM(config).eval(), vcc.DecoderConfig(budget=32))


def filled(model: Any, tokens: int) -> KeptDocument:
    """A document of random keys and values."""
    config, draw = model.config, torch.Generator().manual_seed(1)
    shape = (1, config.num_key_value_heads, tokens, config.head_dim)
    layers = [
        TreeLayer.filled(model.vcc, *(torch.randn(shape, generator=draw) for _ in range(2)))
        for _ in range(config.num_hidden_layers)
    ]
    ids = torch.randint(0, 1000, (1, tokens), generator=draw)
    return KeptDocument(model, ids, TreeCache(layers))


def asked(document: KeptDocument) -> list[int]:
    return document.ask(QUESTION, max_new_tokens=WRITTEN, do_sample=False)[0].tolist()


def decoder_document(
    tokens: Annotated[int, "of the document"] = 131_072,
    layers: Annotated[int, "of the model"] = 8,
    kv_heads: Annotated[int, "of a layer"] = 3,
    width: Annotated[int, "of a head"] = 64,
    rounds: Annotated[int, "new processes"] = 3,
    load: Annotated[Path | None, "what the new processes are told"] = None,
) -> None:
    """Save, load in a new process, ask again."""
    model = model_of(layers, kv_heads, width)
    if load is not None:
        start = time.perf_counter()
        document = model.load_document(load)
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "tokens": asked(document)}))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "document.safetensors"
        document = filled(model, tokens)
        wanted = asked(document)
        document.save(file)
        size = file.stat().st_size
        shape = ["--layers", layers, "--kv-heads", kv_heads, "--width", width, "--load", file]
        command = [sys.executable, "-m", "benchmarks.decoder_document", *map(str, shape)]
        lines = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(rounds)]
    found = [json.loads(line.splitlines()[-1]) for line in lines]
    same = all(one["tokens"] == wanted for one in found)
    seconds = statistics.median(one["seconds"] for one in found)
    print(f"{tokens:,} tokens, {layers} layers, {size / 1e6:,.0f} MB: loaded in {seconds:.2f} s, same tokens: {same}")


if __name__ == "__main__":
    sys.exit(call(decoder_document, sys.argv[1:], "decoder_document"))
