"""`TokenCounts`: how many tokens of each sequence a layer has, and how many belong in its tree."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vcc.decoders.config import DecoderConfig

CPU = torch.device("cpu")  # explicit, because torch.set_default_device may change the default


@dataclass(frozen=True)
class TokenCounts:
    """Real tokens of B sequences, without padding. On the CPU: reading it never waits for a device."""

    settings: DecoderConfig
    tokens: Tensor  # (B,)
    in_tree: Tensor  # (B,) those in the tree
    since: Tensor  # (B,) tokens in the tree when the document ended
    every: int  # tokens that join the tree at a time; after a document, whole pieces

    @classmethod
    def none(cls, settings: DecoderConfig, batch: int) -> "TokenCounts":
        zeros = torch.zeros(batch, dtype=torch.int64, device=CPU)
        return cls(settings, zeros, zeros, zeros, settings.fresh)

    def belongs(self, tokens: Tensor) -> Tensor:
        """How many of these tokens (B, ...) belong in the tree: all but the first, the local and the collecting ones.

        It depends on nothing else: tokens given one by one or in one call are kept alike.
        """
        since = self.since.view(-1, *(1,) * (tokens.ndim - 1))
        beyond = tokens - self.settings.first - self.settings.local - since
        return beyond.clamp(min=0) // self.every * self.every + since

    @property
    def due(self) -> Tensor:
        """(B,) tokens that belong in the tree now."""
        return torch.maximum(self.in_tree, self.belongs(self.tokens))

    @property
    def quiet_steps(self) -> int:
        """Tokens that every sequence can take before any joins the tree."""
        collected = self.tokens - self.settings.first - self.settings.local - self.since
        missing = torch.where(collected < 0, self.every - collected, self.every - collected % self.every)
        return int(missing.min()) - 1

    @property
    def room(self) -> int:
        """Maximum rows outside the tree of a sequence if tokens come one by one."""
        return self.settings.first + self.settings.local + self.every

    @property
    def outside(self) -> Tensor:
        return self.tokens - self.in_tree

    def more(self, tokens: Tensor | int) -> "TokenCounts":
        return replace(self, tokens=self.tokens + tokens)

    def with_tokens(self, tokens: Tensor) -> "TokenCounts":
        return replace(self, tokens=tokens)

    def with_settings(self, settings: DecoderConfig) -> "TokenCounts":
        return replace(self, settings=settings)

    def grown(self, in_tree: Tensor) -> "TokenCounts":
        return replace(self, in_tree=in_tree)

    def chosen(self, elements: Tensor) -> "TokenCounts":
        """Those of sequences `elements`, on the CPU."""
        return replace(self, tokens=self.tokens[elements], in_tree=self.in_tree[elements], since=self.since[elements])

    def after_document(self) -> "TokenCounts":
        """End the document: later tokens join the tree in whole pieces only."""
        return replace(self, since=self.in_tree, every=self.settings.piece)

    def cropped(self, tokens: Tensor) -> "TokenCounts":
        """The counts after a crop to this many tokens (B,). A crop into the document ends it there."""
        if bool((tokens < self.since + self.settings.first + self.settings.local).any()):
            return replace(self, tokens=tokens, since=torch.zeros_like(tokens), every=self.settings.fresh)
        return replace(self, tokens=tokens)
