"""Default VIPs, for callers that do not name them."""

from typing import Any

import torch
from torch import Tensor

from vcc.core.rows import running_count
from vcc.hosts.families import Family
from vcc.hosts.forward.special_ids import Kind, special_id

WORDS: dict[Kind, str] = {"mask": "mask token", "sep": "separator"}
ENDS = 32  # tokens at either end of a text


def vips_by_rule(rule: str | None, input_ids: Tensor | None, real: Tensor, config: Any, family: Family) -> Tensor:
    """The default VIPs (B, n) of a head: "first" (CLS), "mask", "separator" (all up to the first). Without a rule, the
    first and the last `ENDS` tokens, where tasks are named and texts summed up."""
    order = running_count(real)
    if rule is None:
        return real & ((order <= ENDS) | (order > real.sum(1, keepdim=True) - ENDS))
    if rule == "first":
        return real & (order == 1)
    kind: Kind = "mask" if rule == "mask" else "sep"
    if input_ids is None:
        raise missing(f"embeddings do not show the {WORDS[kind]}")
    token = special_id(kind, config, family)
    if token is None:
        raise missing(
            f"this model's {WORDS[kind]} is unknown: neither its configuration nor a tokenizer stored with it has it. "
            f"Set config.{kind}_token_id, or wrap with tokenizer="
        )
    found = required((input_ids == token) & real, f"no {WORDS[kind]} (id {token}) in some sequence")
    return found if kind == "mask" else real & (running_count(found) - found.long() == 0)


def first_tokens(number: int | Tensor, real: Tensor) -> Tensor:
    """The first `number` (one for all, or one per sequence) real tokens, (B, n)."""
    number = torch.as_tensor(number, device=real.device)
    return real & (running_count(real) <= (number[:, None] if number.ndim else number))


def own_places(vips: Tensor, real: Tensor) -> Tensor:
    """Places counted separately among VIPs and among the rest, independent of each other; -1 for padding."""
    rest = real & ~vips
    return torch.where(vips, running_count(vips) - 1, torch.where(rest, running_count(rest) - 1, -1))


def with_virtual_tokens(vip_mask: Tensor | None, embeds: Tensor | None) -> Tensor | None:
    """The mask for embeddings (B, more, D) to which prompt tuning has added virtual tokens in front: those are VIPs,
    and the mask (B, n) that the caller gave belongs to the tokens after them."""
    if vip_mask is None or embeds is None or vip_mask.ndim != 2 or vip_mask.shape[1] >= embeds.shape[1]:
        return vip_mask
    return torch.nn.functional.pad(vip_mask, (embeds.shape[1] - vip_mask.shape[1], 0), value=1)


def required(found: Tensor, problem: str) -> Tensor:
    """`found`, if every sequence has one; a compiled graph cannot check it."""
    if not torch.compiler.is_compiling() and not bool(found.any(1).all()):
        raise missing(problem)
    return found


def missing(problem: str) -> ValueError:
    return ValueError(
        f"the VIPs are unknown: {problem}. Pass vip_mask (batch, tokens; 1 for each token that matters most, such "
        "as the question), or vip_length, the number of tokens at the start that do"
    )
