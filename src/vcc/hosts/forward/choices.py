"""Multiple choice in one sequence, as in the paper: question, choices and document are read once, and each choice is
scored by the state of its closing token.

Hugging Face's heads score one sequence per choice, by the state of its first token. Here the head gets one state per
choice as a sequence of one token: its code, weights and their names do not change.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def score_choices(
    model: Any, head: Callable[..., Any], inputs: Mapping[str, Any], choice_tokens: Tensor, vips: Mapping[str, Any]
) -> Any:
    """The output of a multiple-choice model, with logits (B, C), for inputs (B, n) that contain all choices.

    `choice_tokens` (B, C) are the places of the closing tokens; with fewer choices, any place and a
    meaningless score. `head` is the model's own forward, `vips` are the encoder's VIP arguments.
    """
    given = {name: value for name, value in inputs.items() if isinstance(value, Tensor) and name != "labels"}
    options = {name: value for name, value in inputs.items() if name not in given}
    read = model.base_model(**given, **vips, return_dict=True)
    states = at(read.last_hidden_state, choice_tokens).flatten(0, 1)[:, None]  # (B * C, 1, D)
    changed = {"last_hidden_state": states}
    if "pooler_output" in read:
        changed["pooler_output"] = pooled(model.base_model, states)
    seen = {name: at(value, choice_tokens)[:, :, None] for name, value in given.items()}
    with answering(model.base_model, type(read)(**{**read, **changed})):
        return head(**seen, **options)


def before_document(choice_tokens: Tensor, inputs: Mapping[str, Any]) -> Tensor:
    """(B, n) the question and the choices: all up to the last closing token, without padding."""
    tokens = inputs["input_ids"] if inputs.get("input_ids") is not None else inputs["inputs_embeds"]
    found = torch.arange(tokens.shape[1], device=tokens.device) <= choice_tokens.amax(1, keepdim=True)
    mask = inputs.get("attention_mask")
    return found if mask is None else found & (mask != 0)


def at(values: Tensor, places: Tensor) -> Tensor:
    """The entries of (B, n, ...) at places (B, C): (B, C, ...)."""
    return values[torch.arange(len(places), device=places.device)[:, None], places]


def pooled(base: Any, states: Tensor) -> Tensor:
    """(B, D) the pooled first states of (B, m, D). The poolers of ALBERT and BigBird are only linear layers."""
    if isinstance(base.pooler, nn.Linear):
        activation = base._modules.get("pooler_activation") or base.activation
        return activation(base.pooler(states[:, 0]))
    return base.pooler(states)


@contextmanager
def answering(module: nn.Module, output: Any) -> Iterator[None]:
    """Inside the block, the module returns this output."""
    own = module.__dict__.get("forward")
    module.forward = lambda *_, **__: output  # type: ignore[method-assign]
    try:
        yield
    finally:
        del module.__dict__["forward"]
        if own is not None:
            module.__dict__["forward"] = own


class OneSequence:
    """Mixed into an unwrapped multiple-choice model, for `choice_tokens`."""

    def forward(self, *args: Any, choice_tokens: Tensor | None = None, **inputs: Any) -> Any:
        plain = super().forward  # type: ignore[misc]
        if choice_tokens is None:
            return plain(*args, **inputs)
        return score_choices(self, plain, inputs, choice_tokens, {})


def in_one_sequence(model: Any) -> Any:
    """Change the model to also take all choices in one sequence; saved files do not change."""
    kind = type(model)
    if not issubclass(kind, OneSequence):
        own = {"__doc__": kind.__doc__, "__module__": kind.__module__}
        model.__class__ = type(kind.__name__, (OneSequence, kind), own)
    return model
