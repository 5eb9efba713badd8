"""Wrapped models whose encoder is stored in 8 bits load as ordinary ones: transformers' extension point for quantizers.

Such a model's configuration names METHOD. Before its file is loaded, every matrix gets room for its steps; after, it
is restored, and nothing is left that differs from a model stored in floats. Only these two hooks are used: how files
are converted while they load changes from release to release.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers.quantizers import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from vcc.hosts.eight_bit_weights import STEPS, WEIGHT, restore_rows
from vcc.hosts.load import in_head

METHOD = "vcc-int8"


@register_quantization_config(METHOD)
class EightBitFile(QuantizationConfigMixin):  # type: ignore[misc]
    """What a model's configuration says of its file."""

    dequantize = True  # transformers then forgets, after loading, how the weights were stored

    def __init__(self, quant_method: Any = METHOD) -> None:
        self.quant_method = quant_method


@register_quantizer(METHOD)
class RestoresFloats(HfQuantizer):  # type: ignore[misc]
    """Loads whole numbers and steps, and turns them into floats."""

    is_trainable = True
    wanted: dict[str, tuple[tuple[int, ...], torch.dtype]]  # of each weight

    def is_serializable(self) -> bool:
        return True

    def _process_model_before_weight_loading(self, model: Any, **more: Any) -> None:
        self.wanted = {name: (tuple(weight.shape), weight.dtype) for name, weight in model.named_parameters()}
        for _, module in matrices(model):
            room = torch.empty(len(module.weight), dtype=torch.float32, device="meta")
            module.register_parameter(STEPS, nn.Parameter(room, requires_grad=False))

    def _process_model_after_weight_loading(self, model: Any, **more: Any) -> None:
        for name, module in matrices(model):
            weight, steps = module.weight, module._parameters.pop(STEPS)
            assert steps is not None
            weight.data = restore_rows(name, weight.data, steps.data).to(self.wanted[name][1])  # tied ones stay tied
            weight.requires_grad_(True)
        for name, weight in model.named_parameters():
            shape = self.wanted[name][0]
            if weight.shape != shape:  # which transformers leaves to the quantizer
                raise ValueError(f"{name} is {tuple(weight.shape)}: its configuration needs {shape}")


def matrices(model: Any) -> Iterator[tuple[str, nn.Linear | nn.Embedding]]:
    """The modules of the encoder that hold a matrix, with its name; heads are stored in floats."""
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.Embedding)) and not in_head(model, name):
            yield f"{name}.{WEIGHT}", module
