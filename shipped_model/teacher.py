"""Train a larger reader in windows; `train --teacher` learns what it says.

    python -m shipped_model.teacher --prepared prepared --mpnet all-mpnet-base-v2 --minutes 6 --out teacher
    python -m shipped_model.train --prepared prepared --way twice --teacher teacher ...

The teacher is MPNet-base, 110M parameters (all-mpnet-base-v2, Apache-2.0; a folder with its weights and vocab.txt). Its
vocabulary is BERT's with other special tokens, so once its embeddings are in our order it reads the prepared tokens.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MethodType
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, MPNetForQuestionAnswering

from reproduction import loop
from reproduction.loop import LoopPlan
from shipped_model.data import Page, Unit, load
from shipped_model.practice import SIZE, Lessons, Practice, Teacher, batches, compile_layers, practice_loss, practice_of
from shipped_model.ways import ReadByWindows
from vcc.commands.options import call
from vcc.data.features import Frame
from vcc.qa.settings import QaSettings
from vcc.qa.windows import WindowReader
from vcc.tasks.metrics import auc

SPECIAL = {"[CLS]": "<s>", "[SEP]": "</s>", "[PAD]": "<pad>", "[MASK]": "<mask>"}  # ours: MPNet's


@dataclass(frozen=True)
class TeacherOptions:
    """The teacher and its training."""

    prepared: Annotated[Path, "output folder of `prepare`"]
    mpnet: Annotated[Path, "all-mpnet-base-v2: folder of weights and vocab.txt"]
    minutes: Annotated[float, "minutes of training"] = 6.0
    rate: Annotated[float, "learning rate; the head's is ten times that"] = 6e-5
    tokens: Annotated[int, "tokens per batch"] = 32_768
    clauses: Annotated[float, "how often clauses are practised, relative to SQuAD's questions"] = 1.2
    workers: Annotated[int, "processes that make batches"] = 8
    out: Annotated[Path, "output folder"] = Path("out/teacher")


def teach(options: TeacherOptions) -> None:
    """Train a larger reader in windows, for `train --teacher`."""
    data, tokenizer = load(options.prepared / "tokens.npz.xz"), AutoTokenizer.from_pretrained(options.prepared)
    torch.manual_seed(0)
    model = with_our_tokens(options.mpnet, tokenizer)
    model = with_fused_attention(model.to("cuda" if torch.cuda.is_available() else "cpu"))
    practice = practice_of(data, Frame.of(tokenizer), options.clauses, options.tokens)
    learn(model, practice, options.minutes, options.rate, options.workers)
    model.eval()
    print(test(model, Frame.of(tokenizer), data.units.get("squad_validation", ())), flush=True)
    model.half().save_pretrained(options.out)


def with_our_tokens(folder: Path, tokenizer: Any) -> Any:
    """MPNet for questions, with its word embeddings in the order of our vocabulary.

    It takes token 1 for padding when it counts places; ours is [unused0], which is in no text.
    """
    model: Any = MPNetForQuestionAnswering.from_pretrained(folder, dtype=torch.float32)
    theirs = {word: i for i, word in enumerate((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())}
    ours = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    if missing := [word for word in ours if SPECIAL.get(word, word) not in theirs]:
        raise ValueError(f"{folder / 'vocab.txt'} lacks {len(missing)} of our tokens, such as {missing[0]!r}")
    order = torch.tensor([theirs[SPECIAL.get(word, word)] for word in ours])
    rows = model.mpnet.embeddings.word_embeddings.weight.data[order]
    model.resize_token_embeddings(len(ours)).weight.data = rows
    return model


def with_fused_attention(model: Any) -> Any:
    """Let MPNet's layers, which transformers only runs step by step, use the fused kernels of PyTorch. The biases of
    distances then keep their values."""
    model.mpnet.encoder.relative_attention_bias.requires_grad_(False)
    for layer in model.mpnet.encoder.layer:
        layer.attention.attn.forward = MethodType(fused_attention, layer.attention.attn)
    return model


def fused_attention(
    self: Any, hidden_states: Tensor, attention_mask: Tensor | None, position_bias: Tensor, *_: Any, **__: Any
) -> tuple[Tensor]:
    heads = (*hidden_states.shape[:-1], -1, self.attention_head_size)
    q, k, v = (part(hidden_states).view(heads).transpose(1, 2) for part in (self.q, self.k, self.v))
    bias = position_bias[:1] if attention_mask is None else position_bias[:1] + attention_mask
    mixed = F.scaled_dot_product_attention(q, k, v, bias.to(q.dtype).expand(len(q), -1, -1, -1))
    return (self.o(mixed.transpose(1, 2).flatten(2)),)


def load_teacher(folder: Path, share: float, device: str) -> Teacher:
    """A trained teacher, to read what its pupil reads."""
    model: Any = AutoModelForQuestionAnswering.from_pretrained(folder, dtype=torch.float32)
    if isinstance(model, MPNetForQuestionAnswering):
        model = with_fused_attention(model)
    model = model.eval().requires_grad_(False).to(device)
    if device == "cuda":
        compile_layers(model)
    return Teacher(model, share)


def learn(model: Any, practice: Practice, minutes: float, rate: float, workers: int) -> list[float]:
    """AdamW with a linear schedule over wall-clock time; the losses."""
    body, head = [p for p in model.base_model.parameters() if p.requires_grad], list(model.qa_outputs.parameters())
    groups = [{"params": body, "times": 1.0}, {"params": head, "times": 10.0}]
    cuda = model.device.type == "cuda"
    optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=0.01, betas=(0.9, 0.98), fused=cuda)
    work = PracticeAlone(model, practice, workers)
    loop.learn(model, optimizer, work, LoopPlan(rate, seconds=60 * minutes, warmup=0.05, log_every=100))
    return torch.stack(work.losses).tolist()


@dataclass
class PracticeAlone(loop.Work):
    """Batches of windows, one per step."""

    model: Any
    practice: Practice
    workers: int
    counts: dict[str, int] = field(default_factory=dict)
    losses: list[Tensor] = field(default_factory=list)

    def steps(self, first: int, state: None) -> Iterator[loop.Losses]:
        lessons = batches(self.practice, self.workers)
        if self.model.device.type == "cuda":
            compile_layers(self.model)
            for _ in range(4):  # compile before the clock starts
                practice_loss(self.model, next(lessons), each=True).backward()
            self.model.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
        return self.batches(lessons)

    def batches(self, lessons: Iterator[Lessons]) -> Iterator[loop.Losses]:
        for some in lessons:
            loss = practice_loss(self.model, some, each=True)
            self.losses.append(loss.detach())
            yield (loss,)


def test(model: Any, frame: Frame, units: Sequence[Unit]) -> dict[str, float]:
    """Token F1 of the best span of answerable questions, and the AUC of answerable or not."""
    way = ReadByWindows(WindowReader(model, frame, SIZE, QaSettings().longest_answer))
    f1s, leads, answerable = [], [], []
    for unit in units:
        for question, found in zip(unit.questions, way.find(Page(unit.ids, unit.questions)), strict=True):
            best = found[0]
            leads.append(best.score)
            answerable.append(bool(question.spans))
            a, b = best.first, best.last
            shared = [2 * max(min(b, y) - max(a, x) + 1, 0) / (b - a + y - x + 2) for x, y in question.spans]
            f1s += [max(shared)] if shared else []
    return {"token_f1": 100 * sum(f1s) / max(len(f1s), 1), "auc": auc(leads, answerable)}


if __name__ == "__main__":
    call(teach, sys.argv[1:], "python -m shipped_model.teacher")
