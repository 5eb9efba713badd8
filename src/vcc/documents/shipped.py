"""Load the model that answers: a named one, or the bundled model.

Torch takes a second to import, transformers several: the first is imported to load a model, the second for models other
than the bundled one.
"""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def load_asker(folder: str | None = None) -> "Asker":
    """Return the model in a folder, or the bundled one; it is loaded once."""
    return loaded(folder)  # `lru_cache` takes a default and the same value for different calls


@lru_cache(maxsize=2)
def loaded(folder: str | None) -> "Asker":
    """Load a saved model and its tokenizer, offline, onto the GPU if there is one.

    The bundled model's matrices are stored in 8 bits. A GPU computes in 16. On a CPU 32 are several times faster than
    16, and one with instructions for it computes in 8. VCC_PRECISION=float32 keeps 32 everywhere.
    """
    path = default_model() if folder is None else Path(folder)
    if not (path / "config.json").is_file():
        raise ModelError(f"{path} is not the folder of a saved model: it has no config.json")
    import torch

    from vcc.documents.asker import Asker
    from vcc.hosts.eight_bits import wanted_precision
    from vcc.kept_memory import keep_freed_memory

    model, tokenizer = bundled() if folder is None else saved(path)
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    precision = wanted_precision()
    if place.type == "cpu":
        keep_freed_memory()
    elif folder is None and precision == "auto":
        model = model.half()  # as it was trained; other models may need more than 16 bits
    return Asker(model.to(place).eval(), tokenizer, precision)


def bundled() -> tuple[Any, Any]:
    """The bundled model and its tokenizer, without transformers: it would take longer to import than all the rest."""
    from vcc.hosts.plain_bert import load_plain_bert
    from vcc.hosts.plain_tokenizer import PlainTokenizer

    return load_plain_bert(SHIPPED), PlainTokenizer(SHIPPED)


def saved(folder: Path) -> tuple[Any, Any]:
    """Any saved model and its tokenizer."""
    from transformers import AutoModelForQuestionAnswering

    from vcc.hosts.load import check_vocabulary, load_model, load_tokenizer

    tokenizer = load_tokenizer(folder, local=True)
    model, _ = load_model(folder, AutoModelForQuestionAnswering, local=True)
    check_vocabulary(model, tokenizer)
    return model, tokenizer
