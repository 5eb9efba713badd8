"""The separator and the mask token of a model.

Models of one family differ: BERT's separator is 102, SciBERT's 103, that of multilingual MiniLM, a BERT too, 2. A wrong
one silently finds wrong VIPs, so nothing is taken from the family: it is the configuration's, or that of the tokenizer
stored with the model, or the caller's.
"""

from typing import Any, Literal

import torch

from vcc.hosts.families import Family
from vcc.hosts.quiet import quietly

Kind = Literal["mask", "sep"]


def special_id(kind: Kind, config: Any, family: Family) -> int | None:
    """The id of the model's mask token or separator, or None if unknown. It is cached in `config`."""
    known = getattr(config, f"{kind}_token_id", None)
    if known is None and not torch.compiler.is_compiling():  # a compiled graph cannot read files
        tokenizer = own_tokenizer(getattr(config, "name_or_path", ""))
        if tokenizer is not None:
            note_special_ids(config, tokenizer)
            known = getattr(config, f"{kind}_token_id", None)
    if known is None and kind == "sep" and family.ends_with_separator:
        known = getattr(config, "eos_token_id", None)
    return known if isinstance(known, int) and 0 <= known < config.vocab_size else None


def note_special_ids(config: Any, tokenizer: Any) -> None:
    """Enter a tokenizer's mask token and separator into the configuration, which is stored with the model."""
    for name in ("mask_token_id", "sep_token_id"):
        token = getattr(tokenizer, name, None)
        if token is not None:
            setattr(config, name, token)


def own_tokenizer(name: str) -> Any:
    """The tokenizer from the folder or name that a model was loaded from, if it is on this machine."""
    from transformers import AutoTokenizer

    if not name:
        return None
    try:
        with quietly():
            return AutoTokenizer.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError, ImportError):
        return None  # missing, or its dependencies are
