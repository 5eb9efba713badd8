"""Keep memory that was freed for the next use, on Linux.

By default the C library returns a large tensor's memory to the system when it is freed. Each layer then gets its memory
page by page again, which takes as long as half of its matrix products.
"""

import ctypes
from contextlib import suppress

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # numbers of glibc's mallopt
LARGEST = 32 * 2**20 - 1  # bytes of a tensor whose memory is kept; glibc takes no more
KEPT = 256 * 2**20  # bytes at the end of the heap that are not returned


def keep_freed_memory() -> bool:
    """Change the process's allocator, and return whether that was possible: other systems need nothing of the kind."""
    with suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(MMAP_THRESHOLD, LARGEST) and mallopt(TRIM_THRESHOLD, KEPT) and mallopt(TOP_PAD, KEPT // 4))
    return False
