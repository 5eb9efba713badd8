"""VCC: ordinary Transformers read very long documents. Importing registers the Auto classes and does nothing else."""

import importlib
from typing import Any

from vcc.config import VccConfig
from vcc.core.cut import Cut, choose_cut, read_cut, write_cut
from vcc.core.rows import Rows
from vcc.core.tree import SegmentTree, build_tree, flatten_tree
from vcc.core.vips import join_vips, split_vips
from vcc.encode import Host, encode
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


def read(path: str) -> Any:
    """A file, a folder or "-" as a `vcc.documents.Document`, which can be asked."""
    return importlib.import_module("vcc.documents").read_document(path)
