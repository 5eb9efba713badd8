"""A model answers the examples of a task, each process doing its share."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

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
from vcc.train.watch import console

LONGEST = 2**30  # tokens of an input that is counted and not read


@dataclass(frozen=True)
class Predictor:
    """A model with all that it takes to answer examples of one task."""

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

    def answer_all(self, examples: Sequence[Example], show: bool = False) -> tuple[list[Prediction], TruncationReport]:
        """All answers in the order of the examples, and what was cut.

        The shares of the processes are made equal by answering a few examples twice: processes that hold parts of one
        model must call it equally often.
        """
        number, processes = len(examples), world_size()
        share = -(-number // processes)
        mine = [rank() + processes * i for i in range(share)]  # those past the end are the ones answered twice
        was_training = self.model.training
        self.model.eval()
        found: dict[int, Prediction] = {}
        report = TruncationReport()
        shown = show and console.is_terminal and rank() == 0
        steps = range(0, share, self.batch_size)
        for first in track(steps, "answering", console=console, transient=True) if shown else steps:
            places = mine[first : first + self.batch_size]
            chosen = [place % number for place in places]
            batch = [examples[i] for i in chosen]
            features = [self.tokenize(example) for example in batch]
            report += TruncationReport.of(one for place, one in zip(places, features, strict=True) if place < number)
            with memory_advice(partial(advice, features)):
                found.update(zip(chosen, self.answer(batch, features), strict=True))
        self.model.train(was_training)
        shares = gathered((found, report))
        everyone = {i: prediction for part, _ in shares for i, prediction in part.items()}
        total = sum((part for _, part in shares), TruncationReport())
        return [everyone[i] for i in range(number)], total


def counting(task: Task, tokenizer: PreTrainedTokenizerBase, head: Head) -> Task:
    """The task with examples that fit the lengths asked for by the tokens of this model."""
    tokenize = ExampleTokenizer(tokenizer, head, LONGEST)
    return task.counting(lambda example: tokenize(example).tokens)


def advice(features: Sequence[Features]) -> str:
    fewer = [f"--batch-size {len(features) // 2}"] if len(features) > 1 else []
    return did_not_fit(max(one.length for one in features), len(features), fewer)
