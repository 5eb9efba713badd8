"""Passages of books, and what a causal LM keeps of them: prefixes that many methods are measured on."""

import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import DynamicCache

from vcc.errors import DataError


@dataclass(frozen=True, eq=False)
class Passage:
    """A stretch of a book in tokens."""

    name: str
    ids: Tensor  # (n,)


def books(folder: Path) -> Iterator[tuple[str, str]]:
    """Title and text of every book: `validation` first, then `train`."""
    files = [folder / "books" / f"{split}.jsonl.xz" for split in ("validation", "train")]
    if not all(file.is_file() for file in files):
        raise DataError(f"{folder} holds no books: there must be {files[0]} and {files[1]}")
    for file in files:
        with lzma.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                book = json.loads(line)
                yield book["title"], book["text"]


def passages(folder: Path, tokenizer: Any, length: int, count: int) -> Iterator[Passage]:
    """One passage each of `count` books, from a third of the way in: past prefaces and tables of contents."""
    for title, text in books(folder):
        if count == 0:
            return
        start = text.find("\n\n", len(text) // 3) + 2
        ids = torch.tensor(tokenizer(text[start : start + 8 * length], add_special_tokens=False).input_ids)
        if len(ids) >= length:
            count -= 1
            yield Passage(title, ids[:length])
    if count:
        raise DataError(f"{folder}: {count} books of {length} tokens are missing")


Pairs = list[tuple[Tensor, Tensor]]  # (1, heads, n, size) keys and values of each layer


def cut(pairs: Pairs, start: int, end: int | None = None) -> Pairs:
    return [(k[:, :, start:end], v[:, :, start:end]) for k, v in pairs]


def side_by_side(texts: Iterable[Pairs]) -> Pairs:
    """The keys and values of texts that were read apart, one after the other; their places stay as they were."""
    layers = zip(*texts, strict=True)
    return [(torch.cat([k for k, _ in layer], 2), torch.cat([v for _, v in layer], 2)) for layer in layers]


def cache_of(model: Any, pairs: Pairs) -> DynamicCache:
    cache = DynamicCache(config=model.config)
    for layer, (k, v) in enumerate(pairs):
        cache.update(k, v, layer)
    return cache


@torch.inference_mode()
def read_on(model: Any, ids: Tensor, before: Pairs, keep: Path | None = None) -> Pairs:
    """What the model keeps of `before` and the tokens after it, in 16 bits. Those after it are taken from a file."""
    start = before[0][0].shape[2] if before else 0
    if keep is not None and keep.is_file():
        parts = load_file(keep, str(model.device))
        after = [(parts[f"{layer}.k"], parts[f"{layer}.v"]) for layer in range(len(parts) // 2)]
    else:
        cache: Any = cache_of(model, before)
        model(ids[None, start:], past_key_values=cache, logits_to_keep=1)
        after = cut([(layer.keys.half(), layer.values.half()) for layer in cache.layers], start)
        if keep is not None:
            aside = keep.with_suffix(".aside")
            save_file(
                {f"{n}.{x}": y.contiguous() for n, pair in enumerate(after) for x, y in zip("kv", pair, strict=True)},
                aside,
            )
            aside.rename(keep)
    if not before:
        return [(k.float(), v.float()) for k, v in after]
    both = zip(before, after, strict=True)
    return [(torch.cat([k, new_k.float()], 2), torch.cat([v, new_v.float()], 2)) for (k, v), (new_k, new_v) in both]
