"""Which model answers: the one named, or the one that comes with the package.

Torch and transformers take seconds to import, so they wait until a model is there to be loaded.
"""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcc.errors import ModelError
from vcc.hosts.quiet import quietly

if TYPE_CHECKING:
    from vcc.documents.asker import Asker

SHIPPED = Path(__file__).parents[1] / "model"


def default_model() -> Path:
    """The folder of the model inside the package."""
    if not (SHIPPED / "config.json").is_file():
        raise ModelError(
            "this installation comes without a model: name the folder of a wrapped question-answering model, "
            "with --model at the command line or model= in Python"
        )
    return SHIPPED


@lru_cache(maxsize=2)
def load_asker(folder: str | None = None) -> "Asker":
    """A saved model and its tokenizer, without network, on the GPU if there is one.

    Weights are kept in 16 bits and computed with in 32: a CPU is several times faster with those, and exacter.
    """
    path = default_model() if folder is None else Path(folder)
    if not (path / "config.json").is_file():
        raise ModelError(f"{path} is not the folder of a saved model: it has no config.json")
    import torch
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    from vcc.documents.asker import Asker

    try:
        with quietly():
            tokenizer: Any = AutoTokenizer.from_pretrained(path, local_files_only=True)
            model, info = AutoModelForQuestionAnswering.from_pretrained(
                path, local_files_only=True, dtype=torch.float32, output_loading_info=True
            )
    except (OSError, ValueError) as error:
        raise ModelError(f"no question-answering model could be loaded from {path}: {error}") from error
    if info["missing_keys"]:  # they would be random numbers
        raise ModelError(f"{path} is not a model that answers questions: no weights {', '.join(info['missing_keys'])}")
    return Asker(model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), tokenizer)
