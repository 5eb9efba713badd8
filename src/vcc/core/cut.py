"""`Cut`: the nodes a layer sees. Choosing them is the paper's Algorithm 1, writing the output back its Algorithm 2."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from vcc.core.rows import Pattern, Rows, concat_rows, flat_index, running_count, take, take_rows
from vcc.core.tree import SegmentTree, child_weights, siblings, weighted_mean
from vcc.errors import UsageError


@dataclass(frozen=True)
class Cut:
    """Nodes that cover every token exactly once.

    At the coarsest scale all nodes are *visited*; at every other scale, the children of the nodes opened one scale up,
    in order. `opened` and `kept` are indices among the visited nodes; `opened_nodes` are indices in the tree.
    """

    opened: tuple[Tensor, ...]  # (B, h_i) ascending, for each scale but the last
    kept: tuple[Tensor, ...]  # (B, k_i) ascending, for every scale
    opened_nodes: tuple[Tensor, ...]  # (B, h_i) indices of the opened nodes within their scale
    gates: tuple[Tensor, ...] = ()  # (B, h_i) of value 1, with the scores' gradient; empty without gradients
    scores: tuple[Tensor, ...] = ()  # (B, v_i) of the visited nodes, for each scale but the last
    # With `mass`, elements open different numbers of nodes in tensors of one shape: (B, h), whether a node is opened.
    # The first child of one that is not stands in for it, and its other children are padding.
    wanted: Tensor | None = None
    closed_gates: tuple[Tensor, ...] = ()  # (B, k_i) of value 1, where a row's node is closed with minus its gradient

    @property
    def rows(self) -> int:
        """The number of nodes on the cut, per batch element."""
        return sum(kept.shape[1] for kept in self.kept)


def check_budget(budget: tuple[int, ...], scales: tuple[int, ...]) -> None:
    if len(budget) != len(scales) - 1:
        raise UsageError(
            f"budget={budget!r} has {len(budget)} entries; scales={scales!r} needs {len(scales) - 1}, "
            "one for each scale but the last"
        )
    if any(not isinstance(h, int) or isinstance(h, bool) or h < 0 for h in budget):
        raise UsageError(f"budget={budget!r}: a budget is a non-negative whole number of nodes to open")


def choose_cut(
    tree: SegmentTree,
    score: Callable[[Rows], Tensor],
    budget: tuple[int, ...],
    explore: float = 0.0,
    mass: float | None = None,
    gate_closed: bool = False,
) -> Cut:
    """Open the best-scored nodes of each scale, from coarse to fine, as many as the budget allows (Algorithm 1).

    `score` maps rows to (B, nodes). Only visited nodes are read. Padding is opened only when nothing real is left;
    equal scores open in reading order. With probability `explore` a batch element opens random nodes instead.

    With `mass` and two scales, nodes are opened only until the closed ones have less than 1 - mass of the score. The
    largest number in the batch is read, which synchronises with the device once. A compiled graph, whose shapes are
    fixed, has room for the whole budget: there `mass` saves no time.
    """
    budget = tuple(budget)
    check_budget(budget, tree.scales)
    visited, nodes = tree.roots(), None  # nodes: (B, v) indices of the visited within their scale; None: all
    opened, kept, opened_nodes, gates, closed_gates, scores = [], [], [], [], [], []
    wanted_nodes = None
    for depth, wanted in enumerate(budget):
        mu = score(visited)
        if mu.shape != visited.counts.shape:
            raise ValueError(f"score returned shape {tuple(mu.shape)}; it must be {tuple(visited.counts.shape)}")
        ordering, real = explored(mu.detach(), explore), visited.counts > 0
        most = min(wanted, len(visited))
        if mass is not None:
            needed = within_mass(ordering, real, mass)
            if not torch.compiler.is_compiling() and needed.numel():
                most = min(most, int(needed.sum(1).max()))
        top, rest = best(ordering, real, most)
        if mass is not None:
            wanted_nodes = needed.gather(1, top)
        scores.append(mu)
        opened.append(top)
        kept.append(rest)
        opened_nodes.append(top if nodes is None else nodes.gather(1, top))
        if mu.requires_grad:  # where all are opened there is no choice to learn
            chosen = take(mu, top) if len(visited) > top.shape[1] or mass is not None else torch.ones_like(mu)
            gates.append(straight_through(chosen))
            if gate_closed:
                closed_gates.append(straight_through(-take(mu, rest)))
        if depth + 1 < len(budget):
            visited = children(tree, depth, take_rows(visited, top), opened_nodes[-1])
            nodes = child_nodes(opened_nodes[-1], tree.fan_outs[depth])
    finest = len(visited) if not budget else opened[-1].shape[1] * tree.fan_outs[-1]
    everything = torch.arange(finest, device=tree.means.device).expand(tree.means.shape[0], finest)
    if closed_gates:
        stays = torch.zeros_like(chosen) if wanted_nodes is None else -chosen.masked_fill(wanted_nodes, 0)
        closed_gates.append(straight_through(stays).repeat_interleave(tree.fan_outs[-1], 1, output_size=finest))
    return Cut(
        tuple(opened), (*kept, everything), tuple(opened_nodes), tuple(gates), tuple(scores), wanted_nodes,
        tuple(closed_gates),
    )  # fmt: skip


def read_cut(tree: SegmentTree, cut: Cut) -> Rows:
    """Return S_c C, the rows of the cut, coarse to fine, by the recursion c_x^s = c_parent - delta c_x^s."""
    return read_cut_and_pass_tree(tree, cut)[0]


def read_cut_and_pass_tree(tree: SegmentTree, cut: Cut) -> tuple[Rows, SegmentTree]:
    """Return the rows of the cut, and the same tree, which the caller must use from here on.

    This saves memory in the backward pass. If the tree were both read here and used later, its gradient would be the
    sum of two trees: one from later, and one from here that is zero except at the few nodes read. The returned tree
    has passed through the read, so its gradient arrives here first, and that of the rows is added to it in place.
    """
    visited, chosen, differences = tree.roots(), [], []
    for depth, opened in enumerate(cut.opened):
        chosen.append(take_rows(visited, cut.kept[depth]))
        difference, passed = take_children_and_pass(
            tree.differences[depth], cut.opened_nodes[depth], tree.fan_outs[depth]
        )
        differences.append(passed)
        if cut.gates:  # at 1 a child is itself, at 0 as if closed: the gradient is the value of opening
            difference = difference * cut.gates[depth][..., None, None].to(difference.dtype)
        parents = take_rows(visited, opened)
        visited = children(tree, depth, parents, cut.opened_nodes[depth], difference)
        if cut.wanted is not None:
            visited = with_stand_ins(visited, parents, cut.wanted, tree.fan_outs[depth])
    rows = concat_rows(*chosen, visited)
    if tree.regular and cut.wanted is None:
        groups = tuple((kept.shape[1], scale) for kept, scale in zip(cut.kept, tree.scales, strict=True))
        rows = replace(rows, pattern=Pattern(groups, len(tree.means)))
    return rows, replace(tree, differences=tuple(differences))


def take_children_and_pass(values: Tensor, nodes: Tensor, fan_out: int) -> tuple[Tensor, Tensor]:
    """Return the values (B, h, f, D) of the children of nodes (B, h), and the values (B, m, D) to use from here on."""
    if torch.is_grad_enabled() and values.requires_grad:
        return _TakeChildrenAndPass.apply(values, nodes, fan_out)
    return take(siblings(values, fan_out), nodes), values


class _TakeChildrenAndPass(torch.autograd.Function):
    """Backward: the gradient of the values passed on, with that of the children added at their places."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, nodes: Tensor, fan_out: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(nodes)
        return take(siblings(values, fan_out), nodes), values.view_as(values)

    @staticmethod
    def backward(ctx: Any, taken: Tensor, passed: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (nodes,) = ctx.saved_tensors
        return add_children(passed, nodes, taken, False), None, None


def write_cut(tree: SegmentTree, cut: Cut, rows: Rows) -> SegmentTree:
    """Return the tree whose cut reads `rows`; a closed node moves all its tokens together (Algorithm 2)."""
    before = read_cut(tree, cut)
    if rows.hidden.shape != before.hidden.shape:
        raise ValueError(f"rows has shape {tuple(rows.hidden.shape)}; this cut has {tuple(before.hidden.shape)}")
    return add_to_cut(tree, cut, rows.hidden.to(before.hidden.dtype) - before.hidden)


def add_to_cut(tree: SegmentTree, cut: Cut, update: Tensor, in_place: bool = False) -> SegmentTree:
    """Add `update` (B, r, D) to the rows of the cut, changing only the cut's nodes and their ancestors.

    The update of an opened node is the mean of its children's; a child's difference changes by its parent's update
    minus its own. Everything below a closed node is unchanged. In place, the cost does not depend on n.
    """
    sizes = [kept.shape[1] for kept in cut.kept]
    updates = list(update.to(tree.means.dtype).split(sizes, 1))
    moved = updates.pop()  # (B, v, D) updates of all visited nodes, finest scale first
    differences = list(tree.differences)
    means = tree.means
    for depth in reversed(range(len(cut.opened))):
        opened, nodes, fan_out = cut.opened[depth], cut.opened_nodes[depth], tree.fan_outs[depth]
        weights = child_weights(take(siblings(tree.counts[depth + 1], fan_out), nodes))
        children = siblings(moved, fan_out)
        if cut.wanted is not None:  # the children of a node that stays closed move together, as its stand-in does
            children = torch.where(cut.wanted[..., None, None], children, children[:, :, :1])
        parents = weighted_mean(weights, children)
        differences[depth] = add_children(differences[depth], nodes, parents[:, :, None] - children, in_place)
        if depth:
            visited = moved.new_zeros(moved.shape[0], opened.shape[1] + sizes[depth], moved.shape[2])
            moved = add_rows(visited, opened, parents, True)
            moved = add_rows(moved, cut.kept[depth], updates[depth], True)
        else:
            means = add_rows(add_rows(means, opened, parents, in_place), cut.kept[0], updates[0], True)
    if not cut.opened:
        means = means.add_(moved) if in_place else means + moved
    return replace(tree, means=means, differences=tuple(differences))


def add_rows(target: Tensor, index: Tensor, values: Tensor, in_place: bool) -> Tensor:
    """target (B, n, D) with values (B, k, D) added at index (B, k)."""
    if torch.compiler.is_compiling():
        if in_place and not torch.is_grad_enabled():  # opaque, or the compiler copies the whole target
            _add_in_place(target, index, values)
            return target
        element = torch.arange(target.shape[0], device=target.device)[:, None]
        return target.index_put((element, index), values, accumulate=True)  # the compiler runs it in place
    rows, at, new = target.flatten(0, 1), flat_index(index, target.shape[1]), values.flatten(0, 1)
    added = rows.index_add_(0, at, new) if in_place else rows.index_add(0, at, new)
    return added.view(target.shape)


def add_children(target: Tensor, nodes: Tensor, values: Tensor, in_place: bool) -> Tensor:
    """target (B, m, D) with values (B, h, f, D) added to the f children of each of `nodes` (B, h)."""
    fan_out = values.shape[2]
    if torch.compiler.is_compiling() and not in_place:
        # Without a view: the compiler would trace views of views through all layers, for minutes.
        return add_rows(target, child_nodes(nodes, fan_out), values.flatten(1, 2), False)
    blocks = siblings(target, fan_out).flatten(2)  # one block of f * D numbers per parent
    return add_rows(blocks, nodes, values.flatten(2), in_place).view(target.shape)


@torch.library.custom_op("vcc::add_rows", mutates_args=("target",))
def _add_in_place(target: Tensor, index: Tensor, values: Tensor) -> None:
    target.view(-1, target.shape[2]).index_add_(0, flat_index(index, target.shape[1]), values.flatten(0, 1))


def child_nodes(nodes: Tensor, fan_out: int) -> Tensor:
    """(B, h) nodes -> (B, h * f) their children, numbered within the next scale."""
    return (nodes[..., None] * fan_out + torch.arange(fan_out, device=nodes.device)).flatten(1)


def visited_nodes(tree: SegmentTree, cut: Cut, depth: int) -> Tensor:
    """Return the nodes (B, v) that `cut.scores[depth]` belongs to, as indices within their scale."""
    if depth == 0:
        return torch.arange(tree.means.shape[1], device=tree.means.device).expand_as(cut.scores[0])
    return child_nodes(cut.opened_nodes[depth - 1], tree.fan_outs[depth - 1])


def children(tree: SegmentTree, depth: int, parents: Rows, nodes: Tensor, difference: Tensor | None = None) -> Rows:
    """The children of `nodes` (B, h), whose rows are `parents`, read one scale down.

    Siblings are contiguous, so one block of f * D numbers is read per parent. `difference` (B, h, f, D) is that block,
    if it has been read before.
    """
    fan_out = tree.fan_outs[depth]
    if difference is None:
        difference = take(siblings(tree.differences[depth], fan_out), nodes)
    hidden = (parents.hidden[:, :, None] - difference).flatten(1, 2)
    counts = take(siblings(tree.counts[depth + 1], fan_out), nodes).flatten(1)
    positions = take(siblings(tree.positions[depth + 1], fan_out), nodes).flatten(1)
    return Rows(hidden, counts, positions)


def with_stand_ins(visited: Rows, parents: Rows, wanted: Tensor, fan_out: int) -> Rows:
    """The children (B, h * f) of nodes (B, h), where the first child of a node that is not wanted is the node itself,
    and the others are padding."""
    first = torch.arange(fan_out, device=wanted.device) == 0
    stays = ~wanted[..., None]  # (B, h, 1)
    stands_in = (stays & first).flatten(1)
    hidden = torch.where(
        stands_in[..., None], parents.hidden.repeat_interleave(fan_out, 1, output_size=len(visited)), visited.hidden
    )
    counts = torch.where(stays, parents.counts[..., None] * first, siblings(visited.counts, fan_out)).flatten(1)
    positions = torch.where(
        stands_in, parents.positions.repeat_interleave(fan_out, 1, output_size=len(visited)), visited.positions
    )
    return Rows(hidden, counts, positions)


def within_mass(score: Tensor, real: Tensor, mass: float) -> Tensor:
    """(B, v) the fewest best-scored real nodes whose share of the score is at least `mass`. The first wins a tie."""
    score = score.double().nan_to_num(nan=0.0).clamp(min=0).masked_fill(~real, -1.0)
    ordered, order = score.sort(dim=1, descending=True, stable=True)
    ordered = ordered.clamp(min=0)
    before = ordered.cumsum(1) - ordered  # the sum of all better ones
    needed = (before < mass * ordered.sum(1, keepdim=True)) | (mass == 1)
    return torch.zeros_like(real).scatter(1, order, needed) & real


def best(score: Tensor, real: Tensor, wanted: int) -> tuple[Tensor, Tensor]:
    """Return the indices of the `wanted` largest entries of score (B, v), and of the others, ascending: (B, h) and
    (B, v - h).

    The first wins a tie and padding comes last: score and index are packed into one integer, because top-k alone breaks
    ties differently at different lengths. A running count gives each its place, without sorting.
    """
    bits = score.float().nan_to_num(nan=-torch.inf).add(0.0).view(torch.int32)  # + 0.0 turns -0.0 into 0.0
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(torch.int64)  # integers in the floats' order
    ordered = torch.where(real, ordered, -(1 << 31))
    place = torch.arange(score.shape[1], device=score.device).expand_as(score)
    if wanted == 0:
        return place[:, :0], place
    rank = (ordered << 31) - place
    closed = rank < rank.topk(wanted, dim=1, sorted=False).values.amin(1, keepdim=True)
    passed = running_count(closed)
    seats = torch.where(closed, wanted - 1 + passed, place - passed)
    places = torch.zeros_like(seats).scatter(1, seats, place)
    return places[:, :wanted], places[:, wanted:]


def explored(score: Tensor, explore: float) -> Tensor:
    """Replace a batch element's scores by noise with probability `explore`, to explore other cuts."""
    if explore == 0.0:
        return score
    lucky = torch.rand(score.shape[0], 1, device=score.device) < explore
    return torch.where(lucky, torch.rand_like(score, dtype=torch.float32), score.float())


def straight_through(mu: Tensor) -> Tensor:
    """Return 1 with the gradient of mu (straight-through)."""
    return 1 + (mu - mu.detach())
