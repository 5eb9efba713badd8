"""Compile the buckets of several lengths side by side, before anyone waits for them.

One process compiles one graph at a time. So each bucket is compiled by a process of its own, with random weights, since
no graph depends on the model's; what it compiled stays in the compiler's cache, where the model finds it.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import torch

from vcc.errors import Failure, UsageError
from vcc.hosts.compile import CompiledGraphs, compile, length_bucket
from vcc.hosts.long_input import find_encoder


def warm_up(model: Any, lengths: Sequence[int], vips: int = 32, batch: int = 1, workers: int = 4) -> int:
    """Fill the compiler's cache for inputs of these lengths to a model that `vcc.compile` was called on, in the mode
    (training or not) that it is in. -> the number of graphs."""
    encoder = find_encoder(model)
    graphs = encoder.compiled_graphs
    if not isinstance(graphs, CompiledGraphs):
        raise UsageError("warm_up: the model is not compiled; call vcc.compile(model) first")
    buckets = sorted({length_bucket(n, encoder.vcc_settings.window) for n in lengths})
    first = next(model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        waiting = [
            json.dumps(
                {
                    "folder": folder,
                    "kind": type(model).__name__,
                    "dtype": str(first.dtype).removeprefix("torch."),
                    "device": str(first.device),
                    "training": model.training,
                    "whole": graphs.whole,
                    "batch": batch,
                    "length": n,
                    "vips": vips,
                    "threads": torch.get_num_threads(),  # code for a CPU is made for a number of threads
                }
            )
            for n in buckets
        ]
        while waiting:
            now, waiting = waiting[:workers], waiting[workers:]
            words = [sys.executable, "-m", "vcc.hosts.warm_up"]
            running = [subprocess.Popen([*words, job], stderr=subprocess.PIPE, text=True) for job in now]
            for process in running:
                _, said = process.communicate()
                if process.returncode:
                    raise Failure(f"a process that compiled ahead ended with {process.returncode}: {said[-2000:]}")
    return len(buckets)


def compile_ahead(
    folder: str,
    kind: str,
    dtype: str,
    device: str,
    training: bool,
    whole: bool | None,
    batch: int,
    length: int,
    vips: int,
    threads: int,
) -> None:
    """What each process does: one call of one bucket."""
    from transformers import AutoConfig

    from vcc.hosts import register

    torch.set_num_threads(threads)
    config = AutoConfig.from_pretrained(folder)
    model: Any = getattr(register, kind)(config).to(device, getattr(torch, dtype)).train(training)
    encoder: Any = find_encoder(compile(model, whole))
    ids = torch.ones(batch, length, dtype=torch.long, device=device)
    mask = (torch.arange(length, device=device) < vips).long().expand(batch, length)
    with torch.set_grad_enabled(training):
        hidden = encoder(input_ids=ids, attention_mask=torch.ones_like(ids), vip_mask=mask).last_hidden_state
        if training:
            hidden.sum().backward()


if __name__ == "__main__":
    compile_ahead(**json.loads(sys.argv[1]))
