"""Multiple choice in one sequence, as in the paper: question, all choices and document are read once, and each choice
is scored by the state of the token that closes it.

Hugging Face's heads score one sequence per choice, by the state of its first token. Here the head is given one state
per choice as if it were such a sequence, of one token: its code, its weights and their names stay as they are.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def score_choices(
    model: Any, head: Callable[..., Any], inputs: Mapping[str, Any], choice_tokens: Tensor, vips: Mapping[str, Any]
) -> Any:
    """The output of a multiple-choice model, its logits (B, C), for inputs (B, n) that hold all choices.

    `choice_tokens` (B, C) are the places of the tokens that close each choice; where an example has fewer choices, any
    place, and a score that means nothing. `head` is the model's own forward, `vips` what its encoder takes besides.
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
    """(B, n) the question and the choices: all up to the last token that closes one, without padding."""
    tokens = inputs["input_ids"] if inputs.get("input_ids") is not None else inputs["inputs_embeds"]
    found = torch.arange(tokens.shape[1], device=tokens.device) <= choice_tokens.amax(1, keepdim=True)
    mask = inputs.get("attention_mask")
    return found if mask is None else found & (mask != 0)


def at(values: Tensor, places: Tensor) -> Tensor:
    """Of (B, n, ...) those at places (B, C): (B, C, ...)."""
    return values[torch.arange(len(places), device=places.device)[:, None], places]


def pooled(base: Any, states: Tensor) -> Tensor:
    """(B, D) what the model makes of the first states of (B, m, D). The poolers of ALBERT and BigBird are matrices."""
    if isinstance(base.pooler, nn.Linear):
        activation = base._modules.get("pooler_activation") or base.activation
        return activation(base.pooler(states[:, 0]))
    return base.pooler(states)


@contextmanager
def answering(module: nn.Module, output: Any) -> Iterator[None]:
    """Within the block, calls of this module return this output."""
    own = module.__dict__.get("forward")
    module.forward = lambda *_, **__: output  # type: ignore[method-assign]
    try:
        yield
    finally:
        del module.__dict__["forward"]
        if own is not None:
            module.__dict__["forward"] = own


class OneSequence:
    """Mixed into a multiple-choice model that is not wrapped, for `choice_tokens`."""

    def forward(self, *args: Any, choice_tokens: Tensor | None = None, **inputs: Any) -> Any:
        plain = super().forward  # type: ignore[misc]
        if choice_tokens is None:
            return plain(*args, **inputs)
        return score_choices(self, plain, inputs, choice_tokens, {})


def in_one_sequence(model: Any) -> Any:
    """The model itself, which now also takes all choices in one sequence; it is saved as before."""
    kind = type(model)
    if not issubclass(kind, OneSequence):
        own = {"__doc__": kind.__doc__, "__module__": kind.__module__}
        model.__class__ = type(kind.__name__, (OneSequence, kind), own)
    return model
