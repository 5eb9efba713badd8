"""The cache that a wrapped model is reading in this thread, for the attention function to find its layer in.

transformers hands the attention function a module, queries and keys, but not the cache. The wrapped model's forward
receives the cache and notes it here. A context variable is right for threads, for an assistant model and after an
exception; a hook on the attention modules would have to pass on what it sees in the same way.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from transformers.cache_utils import Cache

OPEN: ContextVar[Cache | None] = ContextVar("vcc_open_cache", default=None)


@contextmanager
def reading(cache: Cache) -> Iterator[None]:
    """A forward of a wrapped model over a cache."""
    before = OPEN.set(cache)
    try:
        yield
    finally:
        OPEN.reset(before)
