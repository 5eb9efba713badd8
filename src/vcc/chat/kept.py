"""What a model has read of a document, kept in the user's cache between runs."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from vcc.decoders.document import KeptDocument
from vcc.decoders.files import fingerprint, text_key
from vcc.errors import DocumentError, UsageError
from vcc.files import cache_folder

MOST = 4  # files; those not used for longest are removed
ENDING = ".safetensors"


def read_or_load(model: Any, ids: Tensor, keep: bool) -> KeptDocument:
    """A text (n,) that a wrapped model has read, now or in an earlier run."""
    path = place(model, ids) if keep else None
    if path is not None and path.is_file():
        with suppress(DocumentError, UsageError):  # damaged, or of another version: it is read again
            document = model.load_document(path)
            os.utime(path)
            return document
    document = model.read(ids)
    if path is not None:
        with suppress(OSError):  # a full disk: the answer is worth more than the cache
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            document.save(path)
            by_age = sorted(path.parent.glob(f"*{ENDING}"), key=lambda file: file.stat().st_mtime)
            for old in by_age[:-MOST]:
                old.unlink(missing_ok=True)
    return document


def place(model: Any, ids: Tensor) -> Path | None:
    try:
        return cache_folder() / "chat" / f"{text_key(ids)[:32]}-{fingerprint(model)[:16]}{ENDING}"
    except RuntimeError:  # the user has no home
        return None
