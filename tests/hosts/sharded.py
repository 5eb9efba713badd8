"""Two processes, every encoder layer sharded on its own (FSDP2): the same loss and gradients as one process.

torchrun --nproc-per-node 2 tests/hosts/sharded.py
"""

import copy
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import vcc
from tests.hosts.models import REAL, build, heads_of, ragged
from tests.hosts.test_training import dropouts, language_model
from vcc.hosts.forward.encoder import find_encoder

FAMILIES = ("roberta", "t5", "modernbert", "bart")


def loss_of(model: Any, family: str, rank: int) -> Tensor:
    """Each process has a batch of its own."""
    batch = ragged(seed=rank)
    labels = batch.ids[:, :7].contiguous() if "AutoModelForSeq2SeqLM" in heads_of(family) else batch.ids
    return model(input_ids=batch.ids, attention_mask=batch.real, vip_mask=batch.vips, labels=labels).loss


def whole(gradient: Any) -> Tensor:
    return gradient.full_tensor() if isinstance(gradient, dist.tensor.DTensor) else gradient


def check(family: str, checkpointing: bool) -> None:
    alone = vcc.wrap(build(family, language_model(family), **dropouts(family, 0.0)), REAL).train()
    shared = copy.deepcopy(alone)
    losses = [loss_of(alone, family, rank) for rank in range(2)]
    (sum(losses) / 2).backward()  # FSDP takes the mean over processes

    mesh = init_device_mesh("cpu", (2,))
    for layer in find_encoder(shared).host.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(shared, mesh=mesh)
    if checkpointing:
        shared.gradient_checkpointing_enable({"use_reentrant": False})
    loss = loss_of(shared, family, dist.get_rank())
    loss.backward()
    assert len(shared.vcc_report()) == 3, "the compressed path ran"
    torch.testing.assert_close(loss, losses[dist.get_rank()], atol=1e-12, rtol=1e-12)
    expected = {name: p.grad for name, p in alone.named_parameters()}
    actual = {name: None if p.grad is None else whole(p.grad) for name, p in shared.named_parameters()}
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        assert (gradient is None) == (actual[name] is None), name
        if gradient is not None:
            torch.testing.assert_close(actual[name], gradient, atol=1e-10, rtol=1e-10, msg=f"{family}: {name}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for family in FAMILIES:
        for checkpointing in (False, True):
            check(family, checkpointing)
            if dist.get_rank() == 0:
                print("equal:", family, checkpointing, flush=True)
    dist.destroy_process_group()
