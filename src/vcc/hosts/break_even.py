"""When compressing saves time, and when the untouched model is the faster one."""

from vcc.config import VccConfig

SAVING = 0.6  # a compressed layer pays off when it sees fewer rows than this share of the tokens


def worth_compressing(n: int, config: VccConfig, layers: int) -> bool:
    """Whether an input of n tokens gains from compression. Depends on shapes only."""
    return n > config.window and rows_seen(n, config) < SAVING * n


def rows_seen(n: int, config: VccConfig) -> int:
    """Rows a compressed layer sees of a context of n tokens."""
    visited, rows = -(-n // config.scales[0]), 0
    for budget, coarse, fine in zip(config.budget, config.scales, config.scales[1:], strict=False):
        opened = min(budget, visited)
        rows += visited - opened
        visited = opened * (coarse // fine)
    return rows + visited
