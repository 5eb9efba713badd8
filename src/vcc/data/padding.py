"""`WithVips` makes Hugging Face's padding collators pad `vip_mask` too."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True)
class WithVips:
    """`Trainer(data_collator=WithVips(DataCollatorWithPadding(tokenizer)))`: each feature may have a `vip_mask` like
    its `input_ids`, one per choice if there are several; padding is not a VIP."""

    collator: Callable[..., Any]

    def __call__(self, features: Sequence[Mapping[str, Any]], **options: Any) -> Any:
        masks = [feature["vip_mask"] for feature in features if "vip_mask" in feature]
        rest = [{name: value for name, value in feature.items() if name != "vip_mask"} for feature in features]
        batch = self.collator(rest, **options)
        if not masks:
            return batch
        if len(masks) < len(features):
            raise ValueError(f"{len(masks)} of {len(features)} features have a vip_mask: it must be all or none")
        ids = batch["input_ids"]  # (B, n), or (B, C, n) with choices
        rows = [row for mask in masks for row in mask] if ids.ndim == 3 else masks
        left = self.collator.tokenizer.padding_side == "left"  # type: ignore[attr-defined]
        batch["vip_mask"] = torch.stack([padded(row, ids.shape[-1], left) for row in rows]).view(ids.shape)
        return batch


def padded(mask: Any, n: int, left: bool) -> Tensor:
    """A mask padded with zeros on the left or right, (n,)."""
    mask = torch.as_tensor(mask)
    return pad(mask, (n - len(mask), 0) if left else (0, n - len(mask)))
