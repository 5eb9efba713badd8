"""What the interpreter cannot see: that the kernels compile for a GPU, once for all lengths. No GPU is needed."""

import pytest

from tests.hopper import compiled_for_hopper

SCRIPT = """
from vcc.decoders.config import DecoderConfig
from vcc.decoders.kernels.step import LeafPages, step_kernel
from vcc.decoders.layer import TreeLayer
from vcc.decoders.recorded_layer import StepState
from vcc.decoders.use_kernels import step_by_kernel

def call(batch, n, scales=(16, 1), wanted=(32,)):
    keys = torch.randn(batch, 8, n, 128).to(torch.bfloat16)
    layer = TreeLayer.filled(DecoderConfig(scales=scales, budget=wanted), keys, keys)
    query = torch.zeros(batch, 32, 1, 128, dtype=torch.bfloat16)
    step_by_kernel(layer, query, 0.1)
    state = StepState.like(layer)  # as a recorded step calls them
    rows, owner, counts = layer.rows.labelled(), state.owner, state.node_counts
    tree, leaf = layer.tree, layer.settings.leaf
    given = (query.view(batch, 8, 4, 128), rows.keys, rows.values, rows.live, tree, owner, wanted, 0.1, counts)
    step_kernel(*given)
    table = torch.arange(batch * 8 * tree.key_means[-1].shape[2], dtype=torch.int32).view(batch, 8, -1)
    pools = (part.reshape(-1, leaf, 128) for part in (tree.keys, tree.values))
    step_kernel(*given, pages=LeafPages(*pools, table))

three = {"scales": (64, 16, 1), "wanted": (8, 16)}
call(1, 2048)
call(1, 2048, **three)
before = len(kernels)
call(2, 3088)  # also more sequences
call(2, 3088, **three)
same = len(kernels) - before
for name, kernel in kernels.values():
    assert kernel.metadata.shared <= 227 * 1024, (name, kernel.metadata.shared)
    assert kernel.metadata.num_warps == 4 or name == "choose_nodes"
assert same == 0, sorted(kernels.values())
print(sorted(name for name, _ in kernels.values()), same)
"""


@pytest.mark.slow
def test_kernels_compile_for_hopper() -> None:
    told = compiled_for_hopper(SCRIPT)
    for kernel in ("attend_nodes", "attend_rows", "choose_nodes", "join", "share_nodes"):
        assert kernel in told
