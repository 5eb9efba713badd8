"""One call of a wrapped encoder as a value: `Request` is what the caller passed, `LongInput` what is compressed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vcc.core.vips import check_mask
from vcc.errors import UsageError
from vcc.hosts.families.host import Inputs
from vcc.hosts.forward.mixed import pick, some_rows
from vcc.hosts.forward.vip_rules import with_virtual_tokens


@dataclass(frozen=True)
class Request:
    """The arguments of one forward call of an encoder."""

    inputs: Inputs  # of Hugging Face's forward, by name
    tokens: Tensor  # (B, n), an entry for each token: its id, or the first feature of its embedding
    vip_mask: Tensor | None = None  # (B, n)
    vip_length: int | Tensor | None = None
    vip_rule: str | None = None  # of the head

    @classmethod
    def of(
        cls, inputs: Inputs, vip_mask: Tensor | None, vip_length: int | Tensor | None, vip_rule: str | None
    ) -> "Request":
        if vip_mask is not None and vip_length is not None:
            raise ValueError("vip_mask and vip_length are both given; pass one of them")
        ids = inputs.get("input_ids")
        tokens = inputs["inputs_embeds"][..., 0] if ids is None else ids
        vip_mask = with_virtual_tokens(vip_mask, inputs.get("inputs_embeds"))
        if vip_mask is not None:
            check_mask(vip_mask, tokens, "vip_mask")
        return cls(inputs, tokens, vip_mask, vip_length, vip_rule)

    def real_tokens(self) -> Tensor:
        """(B, n) which tokens are not padding. Raises if the batch cannot be compressed."""
        if self.inputs.get("past_key_values") is not None:
            raise ValueError(
                "past_key_values is not supported: a compressed encoder cannot read keys and values that prefix "
                "tuning adds before its input; prompt tuning and P-tuning work"
            )
        if exporting() and not isinstance(self.tokens.shape[1], int):
            raise UsageError(
                "torch.export: the length of the input cannot be dynamic, because it determines the shape of the "
                "tree; export one program for each length that inputs are padded to. The batch can be dynamic"
            )
        mask = self.inputs.get("attention_mask")
        if mask is None:
            return torch.ones_like(self.tokens, dtype=torch.bool)
        check_mask(mask, self.tokens, "attention_mask")
        return mask != 0

    def rows(self, rows: Tensor) -> "Request":
        """The same request for some rows (b,) of the batch."""
        shape = self.tokens.shape
        return Request(
            some_rows(self.inputs, rows, shape),
            self.tokens[rows],
            pick(self.vip_mask, rows, shape),
            pick(self.vip_length, rows, shape),
            self.vip_rule,
        )


@dataclass(frozen=True)
class LongInput:
    """A batch that is compressed as a whole."""

    inputs: Inputs  # of the embeddings
    real: Tensor  # (B, n) bool: False for padding
    vips: Tensor  # (B, n) bool

    def map(self, change: Callable[[Tensor], Tensor]) -> "LongInput":
        """The same batch with every tensor changed."""
        inputs = {name: change(value) if isinstance(value, Tensor) else value for name, value in self.inputs.items()}
        return LongInput(inputs, change(self.real), change(self.vips))

    def copy_(self, other: "LongInput") -> None:
        """Write the tensors of another batch of the same shapes into this one's."""
        for name, value in self.inputs.items():
            if isinstance(value, Tensor):
                value.copy_(other.inputs[name])
        self.real.copy_(other.real)
        self.vips.copy_(other.vips)

    @property
    def grad_names(self) -> list[str]:
        """The inputs that require grad."""
        return [name for name, value in self.inputs.items() if isinstance(value, Tensor) and value.requires_grad]


def exporting() -> bool:
    """Whether `torch.export` is running with its default `strict=False`. torch 2.11 also reports exporting while it
    compiles."""
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


def named(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments of a forward, by these parameter names."""
    return {**dict(zip(names, args, strict=False)), **kwargs}
