"""What all hosts share: a family describes a layer once, and `layer` and `score` are made of the description."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from vcc.attention.attend import attend
from vcc.attention.scoring import RelativeBias, Scoring
from vcc.core.rows import Rows
from vcc.core.score import vip_attention
from vcc.encode import Host
from vcc.hosts.families import Family
from vcc.hosts.families.layer import with_parameters

if TYPE_CHECKING:  # the bundled model needs no transformers
    from transformers.utils import ModelOutput

Inputs = Mapping[str, Any]  # the arguments of a Hugging Face forward, by name


def as_it_is(hidden: Tensor, positions: Tensor | None) -> Tensor:
    return hidden


@dataclass(frozen=True)
class LayerParts:
    """One layer: what its attention sees, its projections, how it scores, and what it does with what was attended."""

    query: Callable[[Any], Tensor]  # what attention sees -> (B, r, H * d)
    key: Callable[[Any], Tensor]
    value: Callable[[Any], Tensor]
    head_size: int  # d
    mix: Callable[[Tensor, Tensor], Tensor]  # the layer's input (B, r, D), attended values (B, r, H * d) -> its output
    # What attention sees of hidden states (B, r, D) at positions (B, r); None: of neighbouring tokens, counted from 0.
    see: Callable[[Tensor, Tensor | None], Any] = as_it_is
    scale: float | None = None  # of the products; 1/sqrt(d) unless given
    relative: Callable[[torch.device], RelativeBias] | None = None  # a bias by distance, for rows on that device
    # Any other bias (B, H, m, n), of queries (B, H, m, d) and keys (B, H, n, d) at positions (B, m) and (B, n). Unlike
    # `relative`, it takes memory for every two rows on every device.
    bias: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] | None = None
    window: int | None = None  # rows further apart than that do not see each other
    dropout: float = 0.0  # of the probabilities, in training


class Near(NamedTuple):
    """Rows further than `reach` tokens apart do not see each other, except the first `vips` of them."""

    vips: int
    reach: int
    ordered: bool  # the other rows are single tokens in their order

    def among(self, scoring: Scoring) -> Scoring:
        if scoring.window is None:
            return replace(scoring, window=self.reach, first=self.vips, ordered=self.ordered)
        return replace(scoring, window=min(scoring.window, self.reach))


@dataclass(frozen=True)
class FamilyHost(Host):
    """The adapter around the Hugging Face module that owns a family's encoder layers."""

    model: Any
    family: Family

    @property
    @abstractmethod
    def layers(self) -> Any:
        """A sequence of the layers in order; one that is applied several times is listed as often."""

    @abstractmethod
    def describe(self, layer: Any) -> LayerParts:
        """One of the layers. Sub-modules are called, never read: their hooks and adapters have to take part."""

    @abstractmethod
    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        """Token embeddings (B, n, D). `places` (B, n) are positions to use instead of the family's own, where the
        family has position embeddings; -1 marks padding."""

    @abstractmethod
    def output(self, hidden: Any, hidden_states: Any) -> "ModelOutput":
        """The family's own output, from the last hidden state (B, n, D) and a tuple of all of them or None.

        Hugging Face types these as FloatTensor, which mypy does not take a Tensor for.
        """

    @property
    def last_modules(self) -> tuple[Any, ...]:
        """What the encoder applies after its last layer, in order."""
        return ()

    @property
    def longest(self) -> int | None:
        """Tokens the position table has rows for; None: no such limit."""
        return None

    @property
    def ignores_left_padding(self) -> bool:
        """Whether padding before a text leaves its positions, or all that follows from them, as they were."""
        return self.family.positions not in ("table", "sinusoids")

    @property
    def layer_drop(self) -> float:
        """The probability of leaving out a layer in training."""
        return 0.0

    def extend(self, whole: Any, max_length: int) -> None:
        """Give the whole wrapped model room for `max_length` positions; families without a table need nothing."""

    # ------------------------------------------------------------------------------------------- what follows from it

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def training(self) -> bool:
        return bool(self.model.training)

    @property
    def finish_is_identity(self) -> bool:
        return not self.last_modules

    def finish(self, hidden: Tensor) -> Tensor:
        """What the model does after its last layer, to (B, n, D)."""
        for module in self.last_modules:
            hidden = module(hidden)
        return hidden

    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        return self.run_layer(self.layers[index], rows, consecutive)

    def layer_near(self, index: int, rows: Rows, vips: int, reach: int, ordered: bool = False) -> Tensor:
        return self.run_layer(self.layers[index], rows, False, Near(vips, reach, ordered))

    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        return self.run_score(self.layers[index], vips, nodes)

    def run_layer(self, layer: Any, rows: Rows, consecutive: bool, near: Near | None = None) -> Tensor:
        """`near`: who sees whom. A window of the layer's own has no exceptions, and the smaller one counts."""
        if self.training and self.layer_drop and float(torch.rand([])) < self.layer_drop:
            return rows.hidden

        def run(hidden: Tensor) -> Tensor:
            parts = self.describe(layer)
            seen = parts.see(hidden, None if consecutive else rows.positions)
            q, k, v = (split_heads(project(seen), parts.head_size) for project in (parts.query, parts.key, parts.value))
            relative = None if parts.relative is None else parts.relative(hidden.device)
            dropout = parts.dropout if self.training else 0.0
            scoring = Scoring(parts.scale, relative, parts.window, consecutive=consecutive, dropout=dropout)
            if near is not None:
                scoring = near.among(scoring)
            if parts.bias is not None:
                places = torch.arange(len(rows), device=hidden.device)[None] if consecutive else rows.positions
                scoring = replace(scoring, bias=parts.bias(q, k, places, places))
            return parts.mix(hidden, merge_heads(attend(q, k, v, rows, scoring)))

        return layer(rows.hidden, instead=run)

    def run_score(self, layer: Any, vips: Rows, nodes: Rows) -> Tensor:
        """Without the layer's window: which segments matter does not depend on how far they are."""

        def run(asking: Tensor, asked: Tensor) -> Tensor:
            parts = self.describe(layer)
            q = split_heads(parts.query(parts.see(asking, vips.positions)), parts.head_size)
            k = split_heads(parts.key(parts.see(asked, nodes.positions)), parts.head_size)
            relative = None if parts.relative is None else parts.relative(asking.device)
            bias = None if relative is None else relative.between(vips.positions, nodes.positions)
            if parts.bias is not None:
                more = parts.bias(q, k, vips.positions, nodes.positions)
                bias = more if bias is None else bias + more
            scale = parts.head_size**-0.5 if parts.scale is None else parts.scale
            return vip_attention(q, k, vips, nodes, scale, bias)

        # Nodes are kept in float32 or wider; the layer's queries and keys are made in the model's own precision.
        return with_parameters(layer, run, vips.hidden, nodes.hidden.to(vips.hidden.dtype))


def split_heads(projected: Tensor, head_size: int) -> Tensor:
    """(B, n, H * d) -> (B, H, n, d)."""
    return projected.unflatten(2, (-1, head_size)).transpose(1, 2)


def merge_heads(attended: Tensor) -> Tensor:
    """(B, H, n, d) -> (B, n, H * d)."""
    return attended.transpose(1, 2).flatten(2)


def token_places(inputs: Inputs) -> Tensor:
    """0 .. n - 1 for every token, (B, n)."""
    tokens = inputs["input_ids"] if inputs.get("input_ids") is not None else inputs["inputs_embeds"]
    batch, n = tokens.shape[:2]
    return torch.arange(n, device=tokens.device).expand(batch, n)


def repeat_beyond(ids: Tensor, first: int, size: int) -> Tensor:
    """Position ids for a table of `size` rows that starts counting at `first`: beyond its end it repeats, as the
    paper extends RoBERTa's embeddings by duplicating them."""
    return torch.where(ids < size, ids, first + (ids - first) % (size - first))


def repeat_rows(table: nn.Embedding, first: int, size: int) -> nn.Embedding:
    """A copy of a position table with `size` rows, the rows from `first` on repeated as often as needed."""
    old = table.weight
    index = repeat_beyond(torch.arange(size, device=old.device), first, old.shape[0])
    longer = nn.Embedding(size, old.shape[1], table.padding_idx, device=old.device, dtype=old.dtype)
    longer.weight = nn.Parameter(old.detach()[index].clone(), requires_grad=old.requires_grad)
    return longer


def table_size(table: Any) -> int:
    """Rows of an embedding table, also of one inside an adapter."""
    while "base_layer" in table._modules:
        table = table.base_layer
    return table.num_embeddings


def below_infinity(hidden: Tensor) -> Tensor:
    """Float16 clamped as T5, BART and Pegasus clamp the output of their layers."""
    if hidden.dtype != torch.float16:
        return hidden
    bound = torch.finfo(torch.float16).max - 1000
    return hidden.clamp(-bound, bound)
