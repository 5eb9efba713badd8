"""A long random sequence through a random Transformer: what each layer keeps, and proof that the lazy tree is exact.

make demo-core
"""

import time
from dataclasses import replace

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from vcc import VccConfig, encode
from vcc.encode import Step
from vcc.testing import TinyHost, layer_by_matrices, random_rows, tiny_host

WIDTH, LAYERS, EXACT = 64, 6, 1e-10
VIPS = [0, 1, 2, 3, 500, 501, 900, 901]
CONFIG = VccConfig(scales=(256, 16, 1), budget=(8, 24), window=512, window_layers=2)


def vip_mask(n: int) -> Tensor:
    mask = torch.zeros(1, n, dtype=torch.int64)
    mask[0, VIPS] = 1
    return mask


def compress(host: TinyHost, n: int, console: Console) -> None:
    """Encode n tokens and print what every layer saw."""
    table = Table(title=f"{n:,} tokens, {len(VIPS)} VIPs, scales {CONFIG.scales}, budget {CONFIG.budget}")
    kept = [f"kept\n{s}" for s in CONFIG.scales]
    opened = [f"opened\n{s}" for s in CONFIG.scales[:-1]]
    for column in ("layer", "rows", *kept, *opened, "fewer\nby", "ms"):
        table.add_column(column, justify="right", no_wrap=True)
    clock = time.perf_counter()

    def watch(step: Step) -> None:
        nonlocal clock
        now = time.perf_counter()
        if step.cut is None:
            rows, ratio = f"{-(-n // CONFIG.window)} x {step.rows}", 1.0
            numbers = [""] * len([*kept, *opened])
        else:
            rows, ratio = f"{step.rows:,}", n / step.rows
            numbers = [str(places.shape[1]) for places in (*step.cut.kept, *step.cut.opened)]
        table.add_row(str(step.layer), rows, *numbers, f"{ratio:.0f} x", f"{1e3 * (now - clock):.0f}")
        clock = now

    result = encode(host, random_rows(1, n, WIDTH, dtype=torch.float32), vip_mask(n), CONFIG, watch)
    console.print(table)
    console.print(f"out: {tuple(result.hidden.shape)}, every token with its own hidden state\n")


def check(host: TinyHost, n: int, console: Console) -> bool:
    """Every layer again, with S, S^+ and D as dense matrices: X_new = S^+ gamma(S X) + X."""
    config = replace(CONFIG, window_layers=0)
    rows, vips = random_rows(1, n, WIDTH), len(VIPS)
    vip = vip_mask(n)[0] != 0
    order = torch.cat([vip.nonzero(), (~vip).nonzero()]).flatten()  # X = [P; C]
    X = rows.hidden[0, order]
    table = Table(title=f"against X_new = S⁺ γ(S X) + X with dense S and S⁺, {n:,} tokens, float64")
    for column in ("layer", "S", "largest error"):
        table.add_column(column, justify="right")
    worst = 0.0

    def watch(step: Step) -> None:
        nonlocal X, worst
        assert step.cut is not None and step.tree is not None
        X = layer_by_matrices(host, step.layer, X, vips, step.tree, step.cut)
        lazy = step.whole().hidden[0, order]
        error = float((lazy - X).abs().max() / X.abs().max())
        worst = max(worst, error)
        table.add_row(str(step.layer), f"{step.rows:,} x {n:,}", f"{error:.1e}")

    encode(host, rows, vip_mask(n), config, watch)
    console.print(table)
    good = worst < EXACT
    console.print(f"[{'green' if good else 'red'}]largest error {worst:.1e}: {'exact' if good else 'WRONG'}[/]")
    return good


@torch.no_grad()
def main() -> int:
    console = Console()
    compress(tiny_host(layers=LAYERS, width=WIDTH, heads=4, dtype=torch.float32), 65_536, console)
    host = tiny_host(layers=LAYERS, width=WIDTH, heads=4, dtype=torch.float64)
    return 0 if check(host, 2_048, console) else 1


if __name__ == "__main__":
    raise SystemExit(main())
