"""VCC: ordinary Transformers read very long documents. Importing registers the Auto classes and does nothing else."""

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
    "read_cut",
    "split_vips",
    "unwrap",
    "wrap",
    "write_cut",
]
