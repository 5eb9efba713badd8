"""Load the model that answers: a named one, or the bundled model.

Torch and transformers take seconds to import, so they are imported only to load a model.
"""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from vcc.errors import ModelError

if TYPE_CHECKING:
    from vcc.documents.asker import Asker

SHIPPED = Path(__file__).parents[1] / "model"


def default_model() -> Path:
    """The folder of the bundled model."""
    if not (SHIPPED / "config.json").is_file():
        raise ModelError(
            "this installation has no bundled model: give the folder of a wrapped question-answering model, "
            "with --model on the command line or model= in Python"
        )
    return SHIPPED


@lru_cache(maxsize=2)
def load_asker(folder: str | None = None) -> "Asker":
    """Load a saved model and its tokenizer, offline, onto the GPU if there is one.

    Weights are stored in 16 bits and used in 32: on a CPU that is several times faster, and more exact. With
    VCC_PRECISION=auto, a CPU with instructions for it computes in 8.
    """
    path = default_model() if folder is None else Path(folder)
    if not (path / "config.json").is_file():
        raise ModelError(f"{path} is not the folder of a saved model: it has no config.json")
    import torch
    from transformers import AutoModelForQuestionAnswering

    from vcc.documents.asker import Asker
    from vcc.hosts.eight_bits import wanted_precision
    from vcc.hosts.load import check_vocabulary, load_model, load_tokenizer

    tokenizer = load_tokenizer(path, local=True)
    model, _ = load_model(path, AutoModelForQuestionAnswering, local=True)
    check_vocabulary(model, tokenizer)
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Asker(model.to(place).eval(), tokenizer, wanted_precision())  # type: ignore[arg-type]
