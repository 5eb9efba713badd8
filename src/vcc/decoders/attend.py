"""Attention over a tree of keys: the queries choose which nodes to open; the closed ones count through their means.

A node is chosen by the expected attention to its tokens, from the mean and the spread of its keys: by the mean alone,
one relevant key among fifteen others would be overlooked. A closed node of s tokens is one row, its mean key and mean
value, with log s added to its score. With every node opened, the result is that of dense attention.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vcc.core.cut import best
from vcc.core.rows import UNSEEN
from vcc.decoders.config import DecoderConfig
from vcc.decoders.tree import KeyTree, grouped

# Share of the variance of a node's scores that is added to its mean score when nodes are chosen. For normally
# distributed scores, half would give the expected attention; but they are bounded, and a quarter loses least.
SPREAD = 0.25


@dataclass(frozen=True)
class Attended:
    """The output, and how many rows each query read, on average over KV heads."""

    output: Tensor  # (B, H, c, w, D)
    rows: Tensor  # (B, c)


@dataclass(frozen=True)
class Opened:
    """Nodes of one scale that were opened."""

    nodes: Tensor  # (B, H, c, h) among all nodes of their scale
    wanted: Tensor  # (B, H, c, h) whether it is really opened: with `mass`, numbers differ


def attend_tree(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    visible: Tensor,
    tree: KeyTree,
    owner: Tensor | None,
    settings: DecoderConfig,
    scaling: float,
    node_counts: Tensor | None = None,
) -> Attended:
    """Attention of query (B, H, c, w, D), where w VIPs choose together c times, over rows and a tree.

    The rows outside the tree are keys and values (B, H, m, D); each VIP sees those that are visible (B, 1 or c, w, m).
    Sequence b of the batch reads sequence owner[b] of the tree; without owners its own, or the only one there is.
    `node_counts` (E,) replace the tree's own number of nodes; then the shapes are those of all its storage.
    """
    dtype = torch.promote_types(query.dtype, torch.float32)
    query = query.to(dtype) * scaling
    exact = score_rows(query, keys[:, :, None].to(dtype))
    exact = exact.masked_fill(~visible[:, None], UNSEEN)
    scores, rows_values = [exact], [values[:, :, None].to(dtype)]
    rows = visible.sum(-1).amax(-1).expand(-1, query.shape[2])  # (B, c)
    count = tree.longest // tree.scales[0] if node_counts is None else tree.key_means[0].shape[2]
    if count:
        coarsest = (part[0][:, :, :count] for part in (tree.key_means, tree.value_means, tree.spreads))
        means, mean_values, spreads = (of_owner(part, owner)[:, :, None].to(dtype) for part in coarsest)
        squares = grouped(query.square(), spreads.shape[-1])
        nodes: Tensor | None = None  # (B, H, c, v) the visited ones; None: all of the coarsest scale
        present = tree.real_nodes()
        if node_counts is not None:
            present = torch.arange(count, device=query.device) < node_counts[:, None]
        real = None if present is None else of_owner(present, owner)[:, None, None]  # (B, H, c, v)
        for depth, scale in enumerate(tree.scales[:-1]):
            closed = score_rows(query, means) + math.log(scale)
            if real is not None:
                closed = closed.masked_fill(~real[..., None, :], UNSEEN)
            total = torch.cat([*scores, closed], -1).logsumexp(-1, keepdim=True)  # of the whole cut so far
            hope = closed + SPREAD * score_rows(squares, spreads)
            share = (hope - total).exp().mean(3)  # (B, H, c, v), over the VIPs
            opened, which = choose_nodes(share, real, settings, depth)
            scores.append(closed.masked_fill(which[..., None, :], UNSEEN))
            rows_values.append(mean_values)
            visited = torch.ones_like(which) if real is None else real.expand_as(which)
            rows = rows + (visited & ~which).sum(-1).to(dtype).mean(1)
            rows = rows + visited.sum(-1).to(dtype).mean(1) * tree.spread_rows
            nodes = opened.nodes if nodes is None else nodes.expand_as(share).gather(3, opened.nodes)
            fine = tree.scales[depth + 1]
            fan_out = scale // fine
            real = opened.wanted.repeat_interleave(fan_out, -1)
            last = depth + 2 == len(tree.scales)
            if not last:
                spreads = blocks(tree.spreads[depth + 1], owner, nodes, fan_out).to(dtype)
            means = blocks(tree.keys if last else tree.key_means[depth + 1], owner, nodes, fan_out).to(dtype)
            mean_values = blocks(tree.values if last else tree.value_means[depth + 1], owner, nodes, fan_out).to(dtype)
            nodes = (nodes[..., None] * fan_out + torch.arange(fan_out, device=nodes.device)).flatten(3)
        assert real is not None
        scores.append(score_rows(query, means).masked_fill(~real[..., None, :], UNSEEN))
        rows_values.append(mean_values)
        rows = rows + real.sum(-1).to(dtype).mean(1)
    weights = torch.cat(scores, -1).softmax(-1).split([part.shape[-1] for part in scores], -1)
    output = sum(weight @ value for weight, value in zip(weights, rows_values, strict=True))
    return Attended(output, rows)


def score_rows(query: Tensor, keys: Tensor) -> Tensor:
    """query (B, H, c, w, D), keys (B, H, 1 or c, v, D) -> (B, H, c, w, v)."""
    return query @ keys.mT


def choose_nodes(share: Tensor, real: Tensor | None, settings: DecoderConfig, depth: int) -> tuple[Opened, Tensor]:
    """The nodes to open, given their attention (B, H, c, v); also as booleans (B, H, c, v)."""
    count = share.shape[-1]
    flat = share.flatten(0, 2)
    there = torch.ones_like(flat, dtype=torch.bool) if real is None else real.expand_as(share).flatten(0, 2)
    if settings.budgets is not None:
        wanted = torch.full((len(flat),), settings.budgets[depth], device=flat.device)
        most = min(settings.budgets[depth], count)
    else:
        # How many of the least attended nodes can stay closed with 1 - mass of the attention in total.
        assert settings.mass is not None
        least = torch.where(there, flat, 0.0).sort(1).values.cumsum(1)
        wanted = count - (least <= 1 - settings.mass).sum(1)
        most = int(wanted.max())
    nodes = ranked(flat, there, most)
    open_ones = (torch.arange(most, device=share.device) < wanted[:, None]) & there.gather(1, nodes)
    which = torch.zeros_like(there).scatter(1, nodes, open_ones)
    shape = share.shape[:3]
    opened = Opened(nodes.unflatten(0, shape), open_ones.unflatten(0, shape))
    return opened, which.unflatten(0, shape)


def ranked(share: Tensor, there: Tensor, most: int) -> Tensor:
    """Places of the `most` largest of share (R, v), the largest first; the first wins a tie."""
    chosen, _ = best(share, there, most)
    ranks = share.gather(1, chosen).masked_fill(~there.gather(1, chosen), -1.0)
    return chosen.gather(1, ranks.sort(dim=1, descending=True, stable=True).indices)


def of_owner(values: Tensor, owner: Tensor | None) -> Tensor:
    """values (E, ...) for each sequence of the batch; a shared one is not copied."""
    return values if owner is None else values.index_select(0, owner)


def blocks(values: Tensor, owner: Tensor | None, nodes: Tensor, fan_out: int) -> Tensor:
    """The children of nodes (B, H, c, h), which lie side by side in values (E, H, N, D): (B, H, c, h * f, D).

    Only these are read, and moved to the nodes' device.
    """
    elements, heads, size, width = values.shape
    batch = nodes.shape[0]
    device = nodes.device
    if owner is None:
        owner = torch.arange(batch, device=device) % elements
    base = (owner[:, None] * heads + torch.arange(heads, device=device)) * (size // fan_out)
    index = (base[..., None, None] + nodes).flatten()
    flat = values.reshape(-1, fan_out * width)
    taken = flat.index_select(0, index.to(values.device)).to(device, non_blocking=True)
    return taken.view(*nodes.shape[:3], -1, width)
