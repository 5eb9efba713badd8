"""VCC: ordinary Transformers read very long documents.

Importing makes saved wrapped models known to the Auto classes and does nothing else; what needs transformers, which
takes seconds to import, is imported when it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from vcc.config import VccConfig
from vcc.core.cut import Cut, choose_cut, read_cut, write_cut
from vcc.core.rows import Rows
from vcc.core.tree import SegmentTree, build_tree, flatten_tree
from vcc.core.vips import join_vips, split_vips
from vcc.encode import Host, encode
from vcc.hosts.auto import enter

if TYPE_CHECKING:
    from vcc.hosts.compile import compile, compile_seconds
    from vcc.hosts.wrap import unwrap, wrap

__all__ = [
    "Cut",
    "Host",
    "Rows",
    "SegmentTree",
    "VccConfig",
    "build_tree",
    "choose_cut",
    "compile",
    "compile_seconds",
    "encode",
    "flatten_tree",
    "join_vips",
    "read",
    "read_cut",
    "split_vips",
    "unwrap",
    "wrap",
    "write_cut",
]

LATER = {
    "compile": "vcc.hosts.compile",
    "compile_seconds": "vcc.hosts.compile",
    "unwrap": "vcc.hosts.wrap",
    "wrap": "vcc.hosts.wrap",
}

enter()


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module 'vcc' has no attribute {name!r}")
    return getattr(importlib.import_module(LATER[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def read(path: str) -> Any:
    """A file, a folder or "-" as a `vcc.documents.Document`, which can be asked."""
    return importlib.import_module("vcc.documents").read_document(path)
