"""When compression saves time, and when the untouched model is faster.

Dense time / compressed time by `benchmarks/break_even.py`, for BERT of MiniLM's size and of base size on one CPU core:

    rows / tokens        0.2          0.5          0.6          0.7          0.8          0.9
      600 tokens     1.23 1.31    0.96 1.17    0.88 1.06    0.84 0.93    0.81 0.82    0.74 0.79
      768            1.56 1.56    1.18 1.23    1.09 1.09    0.94 1.14    0.91 1.06    0.86 0.95
    1,024            2.00 2.43    1.55 1.67    1.27 1.46    1.17 1.40    1.09 1.25    0.99 1.14
    2,048            2.83 2.51    1.80 1.76    1.61 1.51    1.45 1.25    1.17 1.23    1.12 1.08

On an H200, in bf16: launching kernels takes longer than running them, and an eager compressed layer launches many more.

    rows / tokens                0.2          0.6
    16,384 tokens, eager     0.50 0.78    0.50 0.77
    32,768         eager     1.81 2.50    1.48 1.42
     2,048         compiled       2.21         2.35    base size only
     4,096         compiled       4.02         3.89
"""

from dataclasses import dataclass

from vcc.config import VccConfig


@dataclass(frozen=True)
class Rule:
    """From which size compression pays off."""

    saving: float  # a compressed layer pays off when it sees fewer rows than this share of the tokens
    windows: int  # ... of an input of at least this many windows; below, compression costs more than it saves


CPU = Rule(saving=0.8, windows=2)
# (device type, compiled) -> as measured by `benchmarks/break_even.py`; other devices use the CPU's
RULES: dict[tuple[str, bool], Rule] = {
    ("cpu", False): CPU,
    ("cuda", False): Rule(saving=0.6, windows=64),
    ("cuda", True): Rule(saving=0.8, windows=4),
}


def worth_compressing(n: int, config: VccConfig, device: str = "cpu", compiled: bool = False) -> bool:
    """Whether an input of n tokens gains from compression. Depends only on shapes and the device."""
    rule = RULES.get((device, compiled), CPU)
    return n >= rule.windows * config.window and rows_seen(n, config) < rule.saving * n


def rows_seen(n: int, config: VccConfig) -> int:
    """Rows a compressed layer sees of a context of n tokens."""
    visited, rows = -(-n // config.scales[0]), 0
    for budget, coarse, fine in zip(config.budget, config.scales, config.scales[1:], strict=False):
        opened = min(budget, visited)
        rows += visited - opened
        visited = opened * (coarse // fine)
    return rows + visited
