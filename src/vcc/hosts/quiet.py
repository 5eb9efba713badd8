"""Silence the progress bars and log messages of Hugging Face's libraries."""

from collections.abc import Iterator
from contextlib import contextmanager


def quiet() -> None:
    """From now on, until the process ends."""
    from huggingface_hub.utils import logging as hub
    from transformers.utils import logging as transformers

    transformers.set_verbosity_error()
    transformers.disable_progress_bar()
    hub.set_verbosity_error()


@contextmanager
def quietly() -> Iterator[None]:
    """Within the block; afterwards they log as before."""
    from huggingface_hub.utils import logging as hub
    from transformers.utils import logging as transformers

    level, hub_level, bars = transformers.get_verbosity(), hub.get_verbosity(), transformers.is_progress_bar_enabled()
    quiet()
    try:
        yield
    finally:
        transformers.set_verbosity(level)
        hub.set_verbosity(hub_level)
        if bars:
            transformers.enable_progress_bar()
