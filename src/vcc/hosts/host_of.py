"""The host of a model: wrapped, or bundled and loaded without transformers."""

import sys
from typing import Any

from vcc.errors import ModelError
from vcc.hosts.families.host import FamilyHost
from vcc.hosts.plain_bert import PlainBert


def host_of(model: Any) -> FamilyHost:
    """Return the adapter around a model's encoder. Raises a `ModelError` if the model has none: it is not wrapped."""
    if isinstance(model, PlainBert):
        return model.bert.host
    if "transformers" in sys.modules:  # or nothing can be wrapped
        from vcc.hosts.forward.encoder import find_encoder
        from vcc.hosts.forward.wrapped import Wrapped

        if isinstance(model, Wrapped):
            return find_encoder(model).host
    raise ModelError(f"{type(model).__name__} is not wrapped: wrap it with vcc.wrap and save it")
