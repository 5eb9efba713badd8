"""The cache that a wrapped model is using in this thread, where the attention function finds its layer.

transformers passes the attention function a module, queries and keys, but not the cache. The wrapped model's forward
receives the cache and sets it here. A context variable works with threads, with an assistant model and after an
exception; a hook on the attention modules would need the same.
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
