"""VIPs without thinking: which tokens matter when the user does not say."""

from typing import Any

import torch
from torch import Tensor

from vcc.core.rows import running_count
from vcc.hosts.families import Family


def vips_by_rule(rule: str | None, input_ids: Tensor | None, real: Tensor, config: Any, family: Family) -> Tensor:
    """The default VIPs (B, n) of a head: "first" (CLS), "mask", "separator" (all up to the first), or none."""
    order = running_count(real)
    if rule == "first":
        return real & (order == 1)
    if rule == "mask" and input_ids is not None:
        token = mask_id(config, family)
        if token is not None:
            return required((input_ids == token) & real, f"no mask token (id {token}) in some sequence")
        raise missing("this model's configuration does not tell its mask token; set config.mask_token_id")
    if rule == "separator" and input_ids is not None:
        token = separator_id(config, family)
        if token is not None:
            found = (input_ids == token) & real
            required(found, f"no separator (id {token}) in some sequence")
            return real & (running_count(found) - found.long() == 0)
        raise missing("this model's configuration does not tell its separator; set config.sep_token_id")
    raise missing("this model has no default for them")


def first_tokens(number: int | Tensor, real: Tensor) -> Tensor:
    """The first `number` (one for all, or one per sequence) real tokens, (B, n)."""
    number = torch.as_tensor(number, device=real.device)
    return real & (running_count(real) <= (number[:, None] if number.ndim else number))


def mask_id(config: Any, family: Family) -> int | None:
    known = getattr(config, "mask_token_id", None)
    if known is None:
        known = config.vocab_size - 1 if family.mask_id == "last" else family.mask_id
    return known if known is not None and known < config.vocab_size else None


def separator_id(config: Any, family: Family) -> int | None:
    known = getattr(config, "sep_token_id", None)
    if known is None:
        known = getattr(config, "eos_token_id", None) if family.separator_id is None else family.separator_id
    return known if isinstance(known, int) and known < config.vocab_size else None


def required(found: Tensor, problem: str) -> Tensor:
    """`found`, if every sequence has one; a compiled graph cannot look and takes it as it is."""
    if not torch.compiler.is_compiling() and not bool(found.any(1).all()):
        raise missing(problem)
    return found


def missing(problem: str) -> ValueError:
    return ValueError(
        f"which tokens are the VIPs? {problem}. Pass vip_mask (batch, tokens; 1 for each token that matters most, such "
        "as the question), or vip_length, the number of tokens at the start that do"
    )
