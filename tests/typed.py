"""Read by mypy in `make types`, never run: what a type checker knows of the public names."""

from typing import assert_type

from torch import Tensor

import vcc
from vcc.core.rows import Rows


def public_names_are_typed(host: vcc.Host, rows: vcc.Rows, mask: Tensor) -> None:
    config = vcc.VccConfig(scales=(16, 1))
    assert_type(config.scales, tuple[int, ...])
    assert_type(vcc.encode(host, rows, mask, config), Rows)
    assert_type(vcc.read("contract.txt").text, str)
    assert_type(vcc.flatten_tree(vcc.build_tree(rows, config.scales)), Rows)
    assert_type(vcc.DecoderConfig(budget=32).budgets, tuple[int, ...] | None)  # one number for every scale
