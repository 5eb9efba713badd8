"""Which model answers: the one named, or the one that comes with the package."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from vcc.documents.asker import Asker, ModelError

SHIPPED = Path(__file__).parents[1] / "model"


def default_model() -> Path:
    """The folder of the model inside the package."""
    if not (SHIPPED / "config.json").is_file():
        raise ModelError("this installation comes without a model: name the folder of one with --model")
    return SHIPPED


@lru_cache(maxsize=2)
def load_asker(folder: str | None = None) -> Asker:
    """A saved model and its tokenizer, without network, on the GPU if there is one."""
    import torch
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    import vcc  # noqa: F401  # registers the wrapped classes

    path = default_model() if folder is None else Path(folder)
    if not (path / "config.json").is_file():
        raise ModelError(f"{path} is not the folder of a saved model: it has no config.json")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(path, local_files_only=True)
        model = AutoModelForQuestionAnswering.from_pretrained(path, local_files_only=True, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise ModelError(f"no question-answering model could be loaded from {path}: {error}") from error
    return Asker(model.to(device).eval(), tokenizer)
