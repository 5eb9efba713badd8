"""The mechanism of all wrapping and unwrapping: a copy of a model around the same tensors, with other classes."""

import copy
from collections.abc import Callable
from itertools import chain
from typing import Any, TypeVar

from transformers import PreTrainedModel

from vcc.hosts.instance_forwards import check_forwards, put_on, put_there, take_off

Model = TypeVar("Model", bound=PreTrainedModel)


def changed_copy(model: Model, change: Callable[[Any], None]) -> Model:
    """A copy of a model whose parameters and buffers are the very same tensors, after `change` was applied to it.

    Hooks that accelerate has put on the model are put on the copy too, around the forwards that `change` leaves it.
    """
    check_forwards(model)
    tensors = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    copied = copy.deepcopy(model, tensors | put_there(model))
    hooks = take_off(copied)
    change(copied)
    put_on(hooks)
    return copied
