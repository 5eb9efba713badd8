"""sentence-transformers: a `SentenceTransformer` or `CrossEncoder` that reads texts beyond its 512 tokens.

The model's encoder is wrapped, and nothing else changes: it trains, saves and loads as before. A saved one needs
`import vcc` before it is loaded, and no trust_remote_code.
"""

from typing import TypeVar

from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.modules.transformer import Transformer

from vcc.config import VccConfig
from vcc.errors import ModelError, UsageError
from vcc.wrapping import wrap

Model = TypeVar("Model", bound=BaseModel)
DEFAULT = VccConfig()


def read_long(model: Model, max_length: int, config: VccConfig = DEFAULT) -> Model:
    """Wrap the encoder of `model` in place, and let it read texts of up to `max_length` tokens; returns `model`.

    In a CrossEncoder the first text of a pair, the query, is the VIPs. A SentenceTransformer has no query: the first
    and the last tokens are. Train before you rely on a budget.
    """
    if max_length < 1:
        raise UsageError(f"max_length is {max_length}: it must be at least 1")
    first = model[0] if len(model) else None
    if not isinstance(first, Transformer):
        raise ModelError(f"the first module is {type(first).__name__}: it must be a Transformer of Hugging Face")
    first.model = wrap(first.model, config, max_length, first.tokenizer)  # a saved model is cut to its positions
    model.max_seq_length = max_length
    return model
