"""`KeptDocument`: a text that a wrapped model reads once and that can be asked many times, also in other processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vcc.decoders.cache import TreeCache
from vcc.decoders.files import load_cache, save_cache
from vcc.errors import UsageError

Questions = Tensor | Sequence[int] | Sequence[Sequence[int]] | Sequence[Tensor]


@dataclass(frozen=True)
class KeptDocument:
    """A text's keys and values in trees. Asking neither changes nor copies them."""

    model: Any
    ids: Tensor  # (1, n)
    cache: TreeCache

    @classmethod
    def read(cls, model: Any, ids: Any, chunk: int, leaves: str | torch.device | None) -> "KeptDocument":
        """Read a text (n,) or (1, n), `chunk` tokens at a time."""
        ids = torch.as_tensor(ids, device=model.device)
        ids = ids[None] if ids.ndim == 1 else ids
        if ids.ndim != 2 or len(ids) != 1 or not ids.shape[1] or ids.is_floating_point():
            raise UsageError(
                f"a document of shape {tuple(ids.shape)}: it must be the token ids, at least one, of one text"
            )
        if chunk < 1:
            raise UsageError(f"chunk={chunk}: it must be a positive number of tokens")
        leaves_on = None if leaves is None else torch.device(leaves)
        exact, expected = model.vcc.prefill == "exact", ids.shape[1]
        cache = TreeCache.empty(model.config, model.vcc, leaves_on, exact=exact, expected=expected)
        with torch.no_grad():
            for part in ids.split(chunk, 1):
                model(part, past_key_values=cache, logits_to_keep=1)
        return cls(model, ids, cache)

    @classmethod
    def load(cls, model: Any, path: Path, leaves: str | None, verify: bool | None) -> "KeptDocument":
        return cls(model, *load_cache(path, model, leaves, verify))

    def branch(self, batch: int = 1) -> TreeCache:
        """A cache for `batch` continuations of the text, for `model.generate` or the model itself.

        Later tokens join the trees in whole pieces only; until then they are read exactly.
        """
        return self.cache.branch(batch)

    def ask(self, questions: Questions, attention_mask: Tensor | None = None, **settings: Any) -> Any:
        """Generate an answer to each question on the text: new tokens (B, new), padded at the end.

        A question is token ids. Shorter questions are padded on the left, or as in `attention_mask` (B, q). `settings`
        are those of `generate`; with `return_dict_in_generate`, its whole output is returned.
        """
        ids, mask = padded(questions, attention_mask, self.ids.device, self.pad)
        if len(ids) > 1 and not bool(mask.all()) and any(self.cache.is_sliding):
            return self.ask_in_turn(ids, mask, settings)
        batch = len(ids)
        whole = torch.cat([self.ids.expand(batch, -1), ids], 1)
        seen = torch.cat([torch.ones_like(self.ids).expand(batch, -1), mask], 1)
        result = self.model.generate(whole, attention_mask=seen, past_key_values=self.branch(batch), **settings)
        return result[:, whole.shape[1] :] if isinstance(result, Tensor) else result

    def ask_in_turn(self, ids: Tensor, mask: Tensor, settings: dict[str, Any]) -> Tensor:
        """Sliding windows count padding as tokens: with them, questions of unequal length are asked one by one."""
        if settings.get("return_dict_in_generate"):
            raise UsageError("return_dict_in_generate: this model has sliding windows; ask questions of one length")
        answers = [self.ask(row[real != 0], **settings) for row, real in zip(ids, mask, strict=True)]
        longest = max(answer.shape[1] for answer in answers)
        return torch.cat([F.pad(answer, (0, longest - answer.shape[1]), value=self.pad) for answer in answers])

    @property
    def pad(self) -> int:
        """The padding token of shorter questions: it is masked, so any token will do."""
        own = self.model.generation_config.pad_token_id
        return own if isinstance(own, int) else 0

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, for `model.load_document`."""
        save_cache(Path(path), self.model, self.ids, self.cache)


def padded(questions: Any, mask: Tensor | None, device: torch.device, pad: int) -> tuple[Tensor, Tensor]:
    """Questions as ids and mask (B, q)."""
    if not isinstance(questions, Tensor):
        first = questions[0] if isinstance(questions, Sequence) and len(questions) else None
        if isinstance(questions, str) or isinstance(first, str) or not isinstance(first, (int, Tensor, Sequence)):
            raise UsageError(f"questions={questions!r:.60}: they must be the token ids of one or several questions")
        rows = [questions] if isinstance(first, int) else list(questions)
        tensors = [torch.as_tensor(row) for row in rows]
        if mask is not None:
            raise UsageError("attention_mask needs the questions in one tensor; lists are padded here")
        longest = max(len(row) for row in tensors)
        questions = torch.full((len(rows), longest), pad)
        mask = torch.zeros(len(rows), longest, dtype=torch.int64)
        for i, row in enumerate(tensors):
            questions[i, longest - len(row) :] = row
            mask[i, longest - len(row) :] = 1
    ids = questions[None] if questions.ndim == 1 else questions
    if ids.ndim != 2 or not ids.numel():
        raise UsageError(f"questions of shape {tuple(ids.shape)}: they must be (q,) or (B, q), with at least one token")
    mask = torch.ones_like(ids) if mask is None else mask.view(ids.shape)
    return ids.to(device), mask.to(device)
