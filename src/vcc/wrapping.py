"""`vcc.wrap` and `vcc.unwrap`, for encoders, decoders and cross-attention: the type of the settings decides."""

from typing import Any, TypeVar

from transformers import PreTrainedModel

from vcc.config import VccConfig
from vcc.decoders.config import DecoderConfig
from vcc.decoders.cross import is_encoder_decoder, unwrap_cross, wrap_cross
from vcc.decoders.wrap import is_decoder, unwrap_decoder, wrap_decoder
from vcc.errors import UsageError
from vcc.hosts.wrap import unwrap as unwrap_encoder
from vcc.hosts.wrap import wrap as wrap_encoder

Model = TypeVar("Model", bound=PreTrainedModel)


def wrap(
    model: Model, config: VccConfig | DecoderConfig, max_length: int | None = None, tokenizer: Any = None
) -> Model:
    """Return a model that reads long inputs and shares its weights with `model`, which is not changed.

    With a `VccConfig`, an encoder is compressed (see `vcc.hosts.wrap` for `max_length` and `tokenizer`). With a
    `DecoderConfig`, a causal language model keeps its keys and values in trees; an encoder-decoder, with its encoder
    compressed or not, keeps those of its cross-attention in trees.
    """
    if isinstance(config, DecoderConfig):
        if max_length is not None or tokenizer is not None:
            raise UsageError("max_length and tokenizer are for encoders; a decoder takes only a DecoderConfig")
        return wrap_cross(model, config) if is_encoder_decoder(model) else wrap_decoder(model, config)
    if is_decoder(model):
        raise UsageError(
            f"{type(model).__name__} is a causal language model: its settings must be a vcc.DecoderConfig, not a "
            f"{type(config).__name__}, as in vcc.wrap(model, vcc.DecoderConfig())"
        )
    return wrap_encoder(model, config, max_length, tokenizer)


def unwrap(model: Model) -> Model:
    """Return the untouched Hugging Face model, which shares its weights; other models are returned as they are."""
    return unwrap_encoder(unwrap_decoder(unwrap_cross(model)))
