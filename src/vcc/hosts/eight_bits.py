"""BERT's layers with their matrix products in 8 bits, for CPUs that have instructions for it.

Weights are rounded once, per output feature. Inputs are rounded in each product, per token: few tokens have features
far above all others, and steps that cover those are too coarse for the rest. So a text gives the same numbers alone and
in a batch, and padding is left out. Attention, norms and sums stay in 32 bits, and so do the scores
that choose a cut. `eight_bit_products` has the kernels. Elsewhere, and with gradients, the plain host runs.
"""

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vcc.attention.attend import attend
from vcc.attention.scoring import Scoring
from vcc.core.rows import Rows
from vcc.errors import UsageError
from vcc.hosts.eight_bit_products import fast_here, product_with
from vcc.hosts.eight_bit_weights import round_rows
from vcc.hosts.families.bert import BertHost
from vcc.hosts.families.host import merge_heads, split_heads

SETTING = "VCC_PRECISION"
PRECISIONS = ("auto", "float32", "int8")
LEVELS = 255  # of an input
MIDDLE, NEAR_BOTTOM = 128, 16  # levels that stand for 0; a GELU is never below -0.17
SMOOTHING = 0.5  # the share of a feature's size that is moved into the weights, as an exponent
CLOSE = 0.05  # the largest relative error of a product that is taken for rounding


class Rounded(NamedTuple):
    """Numbers (n, D) in 8 bits: steps * (values - zero)."""

    values: Tensor
    steps: Tensor  # (n, 1)


def rounded(hidden: Tensor, zero: int) -> Rounded:
    """Round each row of hidden states (n, D) to steps that cover its range. `zero` is the level of 0."""
    high, low = hidden.amax(1, keepdim=True), hidden.amin(1, keepdim=True)
    steps = torch.maximum(high.div_(LEVELS - zero), low.div_(-zero)).clamp_(min=1e-20)
    values = hidden.mul(steps.reciprocal()).add_(zero + 0.5)  # conversion cuts the fraction off
    return Rounded(values.to(torch.uint8), steps)


class EightBitLinear:
    """A linear layer, or several side by side, with weights in 8 bits.

    Where its input comes from a layer norm (`after`), some features are far larger than the others, which would share
    few of the steps. The norm's weights say which: their size is moved from the input into the weights, in part.
    Inputs are about as far above 0 as below it, unless they come from a GELU (`after_gelu`).
    """

    def __init__(self, *parts: nn.Linear, after: nn.LayerNorm | None = None, after_gelu: bool = False) -> None:
        self.zero = NEAR_BOTTOM if after_gelu else MIDDLE
        weight = torch.cat([part.weight.detach().float() for part in parts])
        self.bias = torch.cat([part.bias.detach().float() for part in parts])
        self.shrink: Tensor | None = None  # (D,) what an input is multiplied by
        if after is not None:
            sizes = 3 * after.weight.detach().abs() + after.bias.detach().abs()
            sizes = (sizes / sizes.mean()).clamp(min=1e-3) ** SMOOTHING
            self.shrink, weight = 1 / sizes, weight * sizes
        self.product = product_with(*round_rows(weight))

    def __call__(self, hidden: Tensor) -> Tensor:
        """(n, D) -> (n, E) in 32 bits."""
        given = rounded(hidden if self.shrink is None else hidden * self.shrink, self.zero)
        return torch.addcmul(self.bias, self.product(given.values, self.zero), given.steps)


class EightBitLayer:
    """One of BERT's layers; its input comes from the layer norm `before`, if any."""

    def __init__(self, layer: Any, before: nn.LayerNorm | None) -> None:
        attention = layer.attention.self
        self.head_size = attention.attention_head_size
        self.first_norm, self.second_norm = layer.attention.output.LayerNorm, layer.output.LayerNorm
        self.projections = EightBitLinear(attention.query, attention.key, attention.value, after=before)
        self.output = EightBitLinear(layer.attention.output.dense)
        self.widen = EightBitLinear(layer.intermediate.dense, after=self.first_norm)
        self.narrow = EightBitLinear(layer.output.dense, after_gelu=True)

    def __call__(self, rows: Rows, single: bool) -> Tensor:
        """The hidden states (1, n, D) of one text after this layer; `single`: every row is one token, no padding."""
        hidden = rows.hidden[0]
        parts = self.projections(hidden)[None].chunk(3, -1)
        q, k, v = (split_heads(part, self.head_size) for part in parts)
        attended = F.scaled_dot_product_attention(q, k, v) if single else attend(q, k, v, rows, Scoring())
        hidden = self.first_norm(self.output(merge_heads(attended)[0]).add_(hidden))
        return self.second_norm(self.narrow(F.gelu(self.widen(hidden))).add_(hidden))[None]


@dataclass(frozen=True)
class EightBitHost(BertHost):
    """BERT with matrix products in 8 bits, without gradients."""

    @cached_property
    def packed(self) -> tuple[EightBitLayer, ...]:
        projected = "embeddings_project" in self.model._modules  # ELECTRA
        model: Any = self.model
        norms = [None if projected else model.embeddings.LayerNorm]
        norms += [layer.output.LayerNorm for layer in model.encoder.layer]
        return tuple(EightBitLayer(layer, norm) for layer, norm in zip(self.layers, norms, strict=False))

    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        if torch.is_grad_enabled() or not rows.hidden.numel():
            return super().layer(index, rows, consecutive)
        after = torch.zeros_like(rows.hidden)
        for number, real in enumerate(rows.counts > 0):
            one = slice(number, number + 1)
            single = consecutive and bool(real.all())
            end = len(real)
            if consecutive and not single and (end := int(real.sum())):
                single = bool(real[:end].all())  # padding is at the end
                end = end if single else len(real)
            if end:
                some = Rows(rows.hidden[one, :end], rows.counts[one, :end], rows.positions[one, :end])
                after[one, :end] = self.packed[index](some, single)
        return after


def wanted_precision() -> str:
    """The setting in the environment: "auto" (the default: 8 bits where they are faster), "float32" or "int8"."""
    wanted = os.environ.get(SETTING, "auto")
    if wanted not in PRECISIONS:
        raise UsageError(f"{SETTING} is {wanted!r}: it must be one of {', '.join(PRECISIONS)}")
    return wanted


def eight_bit_host(host: Any, wanted: str = "auto") -> EightBitHost | None:
    """The same model in 8 bits, if it has such layers and this machine is fast at them; None otherwise.

    With "int8", the speed does not matter.
    """
    if wanted == "float32" or not has_such_layers(host) or (wanted == "auto" and not fast_here()):
        return None
    made = EightBitHost(host.model, host.family)
    return made if works(made) else None


def has_such_layers(host: Any) -> bool:
    """Whether a host is that of a plain BERT in 32 bits on a CPU, with GELU between its feed-forward layers."""
    if type(host) is not BertHost or host.family.pre_norm or host.training:
        return False
    first: Any = host.layers[0]
    linear = all(type(one) is nn.Linear for one in first.modules() if isinstance(one, nn.Linear))
    weight = first.output.dense.weight
    return (
        linear
        and is_gelu(first.intermediate.intermediate_act_fn)
        and weight.dtype == torch.float32
        and weight.device.type == "cpu"
    )


def is_gelu(activation: Any) -> bool:
    """Whether an activation is the exact GELU, under whatever name."""
    given = torch.linspace(-4, 4, 64)
    return torch.allclose(activation(given), F.gelu(given), atol=1e-6)


@torch.inference_mode()
def works(host: EightBitHost) -> bool:
    """Whether the kernels are there, and give what the plain product gives up to rounding."""
    first: Any = host.layers[0]
    try:
        exact = first.output.dense
        given = torch.linspace(-1, 1, 8 * exact.in_features).sin().view(8, -1)
        found, expected = EightBitLinear(exact)(given), exact(given)
        return bool((found - expected).norm() <= CLOSE * expected.norm())
    except (ImportError, RuntimeError, AttributeError, NotImplementedError, TypeError):
        return False
