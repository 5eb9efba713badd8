"""Shard one model over the processes (FSDP2), with or without VCC.

A layer's parameters are gathered whenever the layer is called. A compressed layer is called once for its rows and once
for the scores of each scale, so the layers of a wrapped encoder are gathered with the root, once per step; all other
layers, such as a decoder's, are gathered one at a time. It also works on a CPU, where Accelerate has no FSDP.
"""

import os

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from transformers import PreTrainedModel

from vcc.errors import UsageError
from vcc.hosts.forward.encoder import LongInputEncoder
from vcc.train.processes import world_size


def shard(model: PreTrainedModel) -> None:
    """Split the parameters into one shard per process, in place."""
    mesh = init_device_mesh(model.device.type, (world_size(),))
    for layer in separate_layers(model):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if model.can_generate():  # it calls the encoder without the model's own forward
        register_fsdp_forward_method(model, "generate")


def separate_layers(model: PreTrainedModel) -> list[nn.Module]:
    """The layers that are called as a whole."""
    compressed = {id(part) for own in model.modules() if isinstance(own, LongInputEncoder) for part in own.modules()}
    names = model._no_split_modules or ()
    return [part for part in model.modules() if type(part).__name__ in names and id(part) not in compressed]


def check_launch(fsdp: bool) -> None:
    if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true":
        raise UsageError(
            "this command shards the model itself: launch without Accelerate's FSDP "
            "(accelerate launch --multi_gpu, or torchrun) and give --fsdp"
        )
    if fsdp and world_size() < 2:
        raise UsageError("--fsdp needs several processes: launch with torchrun or accelerate")
