"""Load saved models and tokenizers as they were saved, or raise a `ModelError`.

transformers fills weights that a file lacks with random numbers and only logs it. Here that is an error, unless
training asks for a new head.
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel

from vcc.errors import ModelError, is_out_of_memory
from vcc.hosts.quiet import quietly

SIZES = ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
JSON = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
)
SAMPLE = 200  # words of a vocabulary that are checked


def load_config(name: str | Path, *, local: bool = False) -> Any:
    """The configuration in a folder or, unless `local`, on the hub."""
    check_files(name)
    if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
        raise ModelError(f"{name} is not the folder of a saved model: it has no config.json")
    with refusing("model", name):
        config = AutoConfig.from_pretrained(name, local_files_only=local, trust_remote_code=False)
    for size in SIZES:
        value = getattr(config, size, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(f"{name} is not a model: its {size} is {value!r}: it must be a whole number above 0")
    return config


def load_tokenizer(name: str | Path, *, local: bool = False) -> Any:
    """The tokenizer in a folder or on the hub. Raises if it knows no words: it would read nothing."""
    check_files(name)
    with refusing("tokenizer", name):
        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local, trust_remote_code=False)
        if not knows_a_word(tokenizer):
            raise ModelError(
                f"the tokenizer of {name} knows no words: its {len(tokenizer)} tokens are special, or never produced "
                "from text; check the files in its folder"
            )
    return tokenizer


def load_model(
    name: str | Path, auto_class: Any, *, local: bool = False, new_head: bool = False
) -> tuple[PreTrainedModel, tuple[str, ...]]:
    """A model in 32 bits, and the names of its new weights, which only `new_head` allows.

    All other weights come from the file, with the right shapes and finite values. Pickles are not loaded.
    """
    config = load_config(name, local=local)
    with refusing("model", name):
        model, info = auto_class.from_pretrained(
            name,
            config=config,
            local_files_only=local,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
        )
    missing = sorted(info["missing_keys"])
    lost = missing if not new_head else [key for key in missing if not in_head(model, key)]
    if lost:
        raise ModelError(f"{name} is not {auto_name(auto_class)}: its file has no weights {several(lost)}")
    strange = sorted(key for key in info["unexpected_keys"] if not in_head(model, key))
    if strange:
        raise ModelError(
            f"{name} does not match its configuration: its file has weights that {type(model).__name__} does "
            f"not have: {several(strange)}"
        )
    check_finite(name, model)
    return model, tuple(missing)


def new_model(name: str | Path, auto_class: Any, *, local: bool = False) -> PreTrainedModel:
    """A model with the configuration in a folder, or of the hub, and random weights."""
    config = load_config(name, local=local)
    with refusing("model", name):
        return auto_class.from_config(config)


def check_vocabulary(model: PreTrainedModel, tokenizer: Any) -> None:
    """Raise if the model lacks embeddings for some tokens."""
    known, needed = model.config.vocab_size, len(tokenizer)
    if known < needed:
        raise ModelError(f"the tokenizer has {needed} tokens, the model {known}: they do not belong together")


def in_head(model: PreTrainedModel, key: str) -> bool:
    """Whether a weight belongs to a head, of this model or another, not to the encoder.

    The pooler counts as a head: models saved without a head for whole texts lack it.
    """
    if "pooler." in key or key.endswith("position_ids"):
        return True
    base = model.base_model
    first = key.partition(".")[0]
    return base is not model and first != model.base_model_prefix and first not in dict(base.named_children())


def knows_a_word(tokenizer: Any) -> bool:
    """Whether a sample of its vocabulary is tokenized into more than special tokens."""
    special = set(tokenizer.all_special_ids)
    words = [word for word, place in tokenizer.get_vocab().items() if place not in special]
    spread = islice(words, 0, None, max(1, math.ceil(len(words) / SAMPLE)))
    texts = (tokenizer.convert_tokens_to_string([word]).removeprefix("##") for word in spread)
    return any(set(tokenizer(text, add_special_tokens=False)["input_ids"]) - special for text in texts if text.strip())


def check_finite(name: str | Path, model: PreTrainedModel) -> None:
    for key, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ModelError(f"{name} is damaged: its weights {key} have NaN or infinite values")


def check_files(name: str | Path) -> None:
    """Check a folder before the libraries read it; hub names pass."""
    folder = Path(name)
    files = {path.name: path for path in folder.iterdir() if path.exists()} if folder.is_dir() else {}
    for path in files.values():
        if not path.is_dir() and not path.is_file():
            raise ModelError(f"{path} is not a regular file")
        if path.name in JSON or path.name.endswith(".index.json"):
            check_json(path)
    pickles = [key for key in files if key.endswith(PICKLES) and "model" in key]
    if pickles and not any(key.endswith(".safetensors") for key in files):
        raise ModelError(
            f"{folder} holds its weights as a pickle ({pickles[0]}), which can run code when it is loaded: "
            "save the model again as safetensors"
        )


def check_json(path: Path) -> None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not valid JSON: {short(error)}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds {type(value).__name__} {value!r:.40}: it must be a JSON object")


@contextmanager
def refusing(what: str, name: str | Path) -> Iterator[None]:
    """Turn any failure into a `ModelError`: a damaged file can fail anywhere in the libraries."""
    try:
        with quietly():
            yield
    except ModelError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(f"no {what} could be loaded from {str(name)!r}: {short(error)}") from error


def short(error: Exception) -> str:
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 400 else f"{words[:400]} ..."


def several(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def auto_name(auto_class: Any) -> str:
    return auto_class.__name__.removeprefix("AutoModelFor")
