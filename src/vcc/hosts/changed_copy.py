"""The mechanism of wrapping and unwrapping: a copy of a model around the same tensors, with other classes."""

import copy
from collections.abc import Callable
from itertools import chain
from typing import Any, TypeVar

from transformers import PreTrainedModel

from vcc.hosts.instance_forwards import check_forwards, put_on, put_there, take_off

Model = TypeVar("Model", bound=PreTrainedModel)


def changed_copy(model: Model, change: Callable[[Any], None]) -> Model:
    """A copy of a model that shares its parameters and buffers, changed by `change`.

    Accelerate's hooks on the model are applied to the copy too, around its new forwards.
    """
    check_forwards(model)
    tensors = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    copied = copy.deepcopy(model, tensors | put_there(model))
    hooks = take_off(copied)
    change(copied)
    put_on(hooks)
    return copied
