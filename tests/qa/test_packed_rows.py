"""Packed rows are the tensor that they stand for, in all that a cut does with it."""

import pytest
import torch

from vcc.core.cut import add_to_cut, choose_cut, read_cut
from vcc.core.rows import Rows
from vcc.core.tree import SegmentTree, build_tree, read_tokens, tree_from_parts, tree_parts
from vcc.qa.packed_rows import PackedRows
from vcc.qa.six_bits import pack, unpack
from vcc.testing import random_rows


def both(n: int) -> tuple[SegmentTree, SegmentTree]:
    """The same tree with plain tensors and with packed rows."""
    rows = random_rows(1, n, 6)
    tree = build_tree(Rows(rows.hidden.float(), torch.ones(1, n), torch.arange(n)[None].float()), (16, 4, 1))
    parts = tree_parts(tree)
    packed = {name: pack(part[0]) for name, part in parts.items() if name.startswith("differences")}
    plain = {name: unpack(*values, 6)[None] for name, values in packed.items()}
    rolled = {name: PackedRows.of(*values, 6) for name, values in packed.items()}
    return tuple(tree_from_parts(tree.scales, tree.length, parts | some) for some in (plain, rolled))  # type: ignore[return-value, dict-item]


@pytest.mark.parametrize("n", [16, 37, 200])
def test_layers_read_and_change_packed_rows_like_a_tensor(n: int) -> None:
    plain, packed = both(n)
    files = [part.rows.values.clone() for part in packed.differences]  # type: ignore[attr-defined]
    weights = torch.randn(6, generator=torch.Generator().manual_seed(n))

    def score(nodes: Rows) -> torch.Tensor:
        return nodes.hidden @ weights

    with torch.inference_mode():
        for layer in range(4):  # the cut of a layer depends on the changes of those before
            cuts = [choose_cut(tree, score, (2, 3)) for tree in (plain, packed)]
            assert all(map(torch.equal, cuts[0].opened_nodes, cuts[1].opened_nodes))
            found, expected = (read_cut(tree, cut).hidden for tree, cut in zip((packed, plain), cuts, strict=True))
            torch.testing.assert_close(found, expected)
            update = torch.randn(found.shape, generator=torch.Generator().manual_seed(layer))
            plain, packed = (
                add_to_cut(tree, cut, update, True) for tree, cut in zip((plain, packed), cuts, strict=True)
            )
        tokens = torch.tensor([0, n - 1, n // 2])
        torch.testing.assert_close(read_tokens(packed, tokens), read_tokens(plain, tokens))
    assert all(map(torch.equal, files, [part.rows.values for part in packed.differences])), "the file stays"  # type: ignore[attr-defined]
