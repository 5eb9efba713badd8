"""Training objectives: answers of three kinds, or masked tokens; how items become a batch, and its loss."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from vcc.data.collate import IGNORED, Collator
from vcc.data.example import Head
from vcc.data.features import Features
from vcc.data.losses import choice_loss, span_loss
from vcc.data.pretrain import Masked, collate_masked
from vcc.errors import UsageError
from vcc.hosts.forward.wrapped import Openings, Wrapped
from vcc.train.models import padding, vip_name
from vcc.train.opening import answer_opening_loss, openings_of
from vcc.train.trainer import Batch

AUTO_CLASSES: dict[Head, Any] = {
    "span": AutoModelForQuestionAnswering,
    "choice": AutoModelForMultipleChoice,
    "text": AutoModelForSeq2SeqLM,
}
LABELS = {"start_positions", "end_positions", "labels", "spans", "choice_mask", "hidden_places"}


@dataclass(frozen=True)
class Answering:
    """Learn to answer with one head. `vips` is the name of the model's VIP argument, if any."""

    head: Head
    collator: Collator
    vips: str | None
    opening: float = 0.0  # weight of the loss that teaches which segments to open

    @staticmethod
    def of(
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        head: Head,
        length: int,
        opening: float = 0.0,
    ) -> "Answering":
        if opening:
            check_opening(model, head, opening)
        collator = Collator.of(tokenizer, head, padding(model, length))
        has_types = getattr(model.config, "type_vocab_size", 1) > 1  # LED has none, RoBERTa one, whatever the tokenizer
        collator = replace(collator, token_types=collator.token_types and has_types)
        return Answering(head, collator, vip_name(model), opening)

    def collate(self, items: Sequence[Features]) -> Batch:
        batch = self.collator(items)
        mask = batch.pop("vip_mask")
        return batch if self.vips is None else {**batch, self.vips: mask}

    def count(self, batch: Batch) -> Tensor:
        """Answered examples; for text, tokens to generate."""
        if self.head == "span":
            return torch.tensor(len(batch["spans"]))
        return (batch["labels"] != IGNORED).sum()

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss, summed over what `count` counts. If several spans are right, any of them satisfies it."""
        if self.head == "text":
            return text_loss(model, batch)
        seen: Openings | None = None
        if self.opening:
            with openings_of(plain(model)) as seen:
                output = model(**inputs_of(batch))
        else:
            output = model(**inputs_of(batch))
        if self.head == "choice":
            return choice_loss(output.logits, batch["labels"], batch["choice_mask"]) * self.count(batch)
        spans, mask = batch["spans"], batch["attention_mask"]
        loss = span_loss(output.start_logits, output.end_logits, spans, mask)
        if seen is not None:
            loss = loss + self.opening * answer_opening_loss(seen, spans)
        return loss * len(spans)


def check_opening(model: PreTrainedModel, head: Head, opening: float) -> None:
    """Raise unless the segments to open can be taught."""
    if not opening > 0:
        raise UsageError(f"--teach-opening is {opening}: it must be at least 0")
    if head != "span":
        raise UsageError(f"--teach-opening needs answers that are spans of the document; the head is {head}")
    if not isinstance(model, Wrapped) or model.vcc.dense_below != 0:
        below = model.vcc.dense_below if isinstance(model, Wrapped) else "none: VCC is off"
        raise UsageError(f"--teach-opening needs every input compressed: dense_below must be 0, it is {below}")


@dataclass(frozen=True)
class Filling:
    """Learn masked tokens. `vips` is the name of the model's VIP argument, if any."""

    writes: bool
    pad_id: int
    vips: str | None
    multiple: int = 1  # batches are padded to a multiple of this

    def collate(self, items: Sequence[Masked]) -> Batch:
        batch = collate_masked(items, self.pad_id, self.multiple)
        if not self.writes:  # found here, because finding them on a device would wait for it
            batch["hidden_places"] = (batch["labels"].flatten() != IGNORED).nonzero()[:, 0]
        mask = batch.pop("vip_mask")
        return batch if self.vips is None else {**batch, self.vips: mask}

    def count(self, batch: Batch) -> Tensor:
        """Masked tokens."""
        return (batch["labels"] != IGNORED).sum()

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        if self.writes:
            return text_loss(model, batch)
        labels, places = batch["labels"], batch["hidden_places"]
        if not has_separate_head(plain(model)):
            return token_loss(model(**inputs_of(batch)).logits, labels)
        with head_on(plain(model), places):
            return token_loss(model(**inputs_of(batch)).logits, labels.flatten()[places][None])


def has_separate_head(model: Any) -> bool:
    """Whether the head can be run on some tokens only: it must be apart from the model below it, and a compiled model
    does not notice that a hook comes or goes."""
    return model.base_model is not model and model._compiled_call_impl is None


@contextmanager
def head_on(model: Any, places: Tensor) -> Iterator[None]:
    """Within the block, the head of a model sees the states of the tokens at `places` (m,) of the flattened batch only,
    and its logits are (1, m, V): those of all tokens would cost most of the time and memory of a small model."""

    def pick(module: nn.Module, args: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state.flatten(0, 1)[places][None]
        return output

    hook = model.base_model.register_forward_hook(pick)
    try:
        yield
    finally:
        hook.remove()


def text_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Cross entropy of the text to generate, summed over its tokens."""
    labels = batch["labels"]  # (B, t)
    shifted = plain(model).prepare_decoder_input_ids_from_labels(labels)  # (B, t)
    return token_loss(model(**inputs_of(batch), decoder_input_ids=shifted, use_cache=False).logits, labels)


def token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of logits (B, t, V) and labels (B, t), without ignored places."""
    return cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum")


def inputs_of(batch: Batch) -> Batch:
    return {name: value for name, value in batch.items() if name not in LABELS}


def plain(model: nn.Module) -> Any:
    """The Hugging Face model inside DistributedDataParallel."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
