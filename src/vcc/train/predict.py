"""Predict the answers of a task's examples, split over processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from rich.progress import track
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vcc.data.answers import predict_choice, predict_spans, predict_text
from vcc.data.example import Example, Head, Prediction
from vcc.data.features import ExampleTokenizer, Features, TruncationReport
from vcc.tasks.task import Task
from vcc.train.memory import did_not_fit, memory_advice
from vcc.train.objectives import Answering, inputs_of
from vcc.train.processes import gathered, rank, world_size
from vcc.train.share import Share
from vcc.train.watch import console

LONGEST = 2**30  # maximum tokens when inputs are only counted


@dataclass(frozen=True)
class Predictor:
    """A model with everything needed to answer the examples of a task."""

    task: Task
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    tokenize: ExampleTokenizer
    answering: Answering
    batch_size: int

    @staticmethod
    def of(
        task: Task, head: Head, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, length: int, batch_size: int
    ) -> "Predictor":
        tokenize = ExampleTokenizer(tokenizer, head, length, task.recipe(head).target_length)
        return Predictor(task, model, tokenizer, tokenize, Answering.of(model, tokenizer, head, length), batch_size)

    @torch.no_grad()
    def answer(self, examples: Sequence[Example], features: Sequence[Features]) -> list[Prediction]:
        """The answers to one batch."""
        batch = {name: value.to(self.model.device) for name, value in self.answering.collate(features).items()}
        if self.answering.head == "text":
            ids = self.model.generate(  # type: ignore[operator]
                **inputs_of(batch),
                max_new_tokens=self.tokenize.target_length,
                do_sample=False,
                num_beams=1,
                synced_gpus=world_size() > 1,
            )
            return [predict_text(one, row, self.tokenizer) for one, row in zip(examples, ids, strict=True)]
        output = self.model(**inputs_of(batch))
        if self.answering.head == "choice":
            return [predict_choice(one, row) for one, row in zip(examples, output.logits.float().cpu(), strict=True)]
        limits: Any = {"allow_none": self.task.no_answer, "max_tokens": self.task.max_answer_tokens}
        starts, ends = output.start_logits.float().cpu(), output.end_logits.float().cpu()
        return [
            predict_spans(one, known, start, end, **limits)
            for one, known, start, end in zip(examples, features, starts, ends, strict=True)
        ]

    def answer_all(self, examples: Sequence[Example], show: bool = False) -> "Answers":
        """All answers in the order of the examples, and a report.

        Processes answer equally many examples, some of them twice: processes that hold parts of one model must call it
        equally often. The repeated ones come last, in separate calls, and are not counted.
        """
        number, processes = len(examples), world_size()
        each, over = divmod(number, processes)
        mine = [rank() + processes * i for i in range(each + (over > 0))]
        was_training = self.model.training
        self.model.eval()
        found: dict[int, Prediction] = {}
        report = TruncationReport()
        shown = show and console.is_terminal and rank() == 0
        steps = [mine[i : min(i + self.batch_size, each)] for i in range(0, each, self.batch_size)]
        steps += [mine[each:]] * (over > 0)
        before = counted = Share.of(self.model)
        for places in track(steps, "answering", console=console, transient=True) if shown else steps:
            chosen = [place % number for place in places]
            batch = [examples[i] for i in chosen]
            features = [self.tokenize(example) for example in batch]
            report += TruncationReport.of(one for place, one in zip(places, features, strict=True) if place < number)
            with memory_advice(partial(advice, features)):
                found.update(zip(chosen, self.answer(batch, features), strict=True))
            if places[-1] < number:
                counted = Share.of(self.model)
        self.model.train(was_training)
        parts = gathered((found, report, counted - before))
        everyone = {i: prediction for part, *_ in parts for i, prediction in part.items()}
        cut = sum((part for _, part, _ in parts), TruncationReport())
        return Answers([everyone[i] for i in range(number)], cut, sum((part for *_, part in parts), Share()))


class Answers(NamedTuple):
    """Gathered from all processes."""

    predictions: list[Prediction]
    cut: TruncationReport
    share: Share


def counting(task: Task, tokenizer: PreTrainedTokenizerBase, head: Head) -> Task:
    """The task with examples of the requested lengths, counted in this model's tokens."""
    tokenize = ExampleTokenizer(tokenizer, head, LONGEST)
    return task.counting(lambda example: tokenize(example).tokens)


def advice(features: Sequence[Features]) -> str:
    fewer = [f"--batch-size {len(features) // 2}"] if len(features) > 1 else []
    return did_not_fit(max(one.length for one in features), len(features), fewer)
