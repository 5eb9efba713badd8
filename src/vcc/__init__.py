"""VCC: very long documents in ordinary Transformers.

Importing it only registers saved wrapped models with the Auto classes: torch, transformers and other dependencies are
imported when a public name is first used.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vcc.hosts.auto import enter

if TYPE_CHECKING:  # the table below for type checkers; a test compares them
    from vcc.config import VccConfig as VccConfig
    from vcc.core.cut import Cut as Cut
    from vcc.core.cut import choose_cut as choose_cut
    from vcc.core.cut import read_cut as read_cut
    from vcc.core.cut import write_cut as write_cut
    from vcc.core.rows import Rows as Rows
    from vcc.core.tree import SegmentTree as SegmentTree
    from vcc.core.tree import build_tree as build_tree
    from vcc.core.tree import flatten_tree as flatten_tree
    from vcc.core.vips import join_vips as join_vips
    from vcc.core.vips import split_vips as split_vips
    from vcc.decoders.config import DecoderConfig as DecoderConfig
    from vcc.documents.document import read_document
    from vcc.encode import Host as Host
    from vcc.encode import encode as encode
    from vcc.hosts.compiled.compile import compile as compile
    from vcc.hosts.compiled.compile import compile_seconds as compile_seconds
    from vcc.integrations.folder import folder as folder
    from vcc.integrations.notebook import review as review
    from vcc.pipeline import pipeline as pipeline
    from vcc.version import __version__ as __version__
    from vcc.wrapping import unwrap as unwrap
    from vcc.wrapping import wrap as wrap

    read = read_document

PUBLIC = {  # name: the file that defines it, and its name there if different
    "Cut": "vcc.core.cut",
    "DecoderConfig": "vcc.decoders.config",
    "Host": "vcc.encode",
    "Rows": "vcc.core.rows",
    "SegmentTree": "vcc.core.tree",
    "VccConfig": "vcc.config",
    "build_tree": "vcc.core.tree",
    "choose_cut": "vcc.core.cut",
    "compile": "vcc.hosts.compiled.compile",
    "compile_seconds": "vcc.hosts.compiled.compile",
    "encode": "vcc.encode",
    "flatten_tree": "vcc.core.tree",
    "folder": "vcc.integrations.folder",
    "join_vips": "vcc.core.vips",
    "pipeline": "vcc.pipeline",
    "read": "vcc.documents.document:read_document",
    "read_cut": "vcc.core.cut",
    "review": "vcc.integrations.notebook",
    "split_vips": "vcc.core.vips",
    "unwrap": "vcc.wrapping",
    "wrap": "vcc.wrapping",
    "write_cut": "vcc.core.cut",
}
__all__ = list(PUBLIC)
FOUND = {**PUBLIC, "__version__": "vcc.version"}


class Package(ModuleType):
    """Imports a public name at its first use, and keeps it.

    Python sets every imported file as an attribute of its package; a public name wins: `vcc.encode` is the function,
    even after vcc/encode.py was imported.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in FOUND:
            raise AttributeError(f"module 'vcc' has no attribute {name!r}")
        module, _, attribute = FOUND[name].partition(":")
        value = getattr(import_module(module), attribute or name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in PUBLIC and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *PUBLIC})


sys.modules[__name__].__class__ = Package
enter()
