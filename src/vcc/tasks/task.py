"""A task: where its examples come from, which tokens are VIPs, how it is scored."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from vcc.data.example import Example, Head, Prediction
from vcc.data.haystack import TokenCount
from vcc.errors import UsageError
from vcc.tasks.paper import RESULTS, Recipe, Result, paper_recipe

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


class Task(ABC):
    """One task. A subclass is final and a frozen dataclass.

    `heads[0]` is the default head. `metric_names` are the ones reported first, and while training. All metrics are
    percentages, 0 to 100, and larger is better.
    """

    name: str
    heads: tuple[Head, ...]
    vips: str  # in words, for `vcc tasks`
    metric_names: tuple[str, ...]
    hub: str = ""  # the data set's name on the hub, if any
    options: tuple[str, ...] = ()  # the fields a user may set: options of the commands
    no_answer: bool = False  # whether a document may have no answer, for `predict_spans(allow_none=)`
    max_answer_tokens: int = 64  # the longest span to consider, for `predict_spans(max_tokens=)`

    # A task that is not in the paper borrows the hyper-parameters of one that is; `unlike` is what differs.
    like: str = ""
    unlike: Mapping[str, Any] = {}  # fields of its `Recipe`; an output length counts for text only

    @abstractmethod
    def load(self, split: Split, source: str | None = None) -> Sequence[Example]:
        """The examples of a split, indexable, in a fixed order.

        `source`: a file or folder in the published format, a folder of `<name>/<split>.jsonl.xz`, or a hub name.
        None: the folder in the environment variable VCC_DATA if that is set, else `hub`.
        """

    @abstractmethod
    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
        """Percentages by name; predictions and examples in the same order. Each of `metric_names` has its
        95% interval over groups, as `<name>_low` and `<name>_high`, if there are two groups or more."""

    def counting(self, count: TokenCount) -> "Task":
        """Return the task with generated examples of at most the requested tokens, counted by a tokenizer.

        Without it, before a tokenizer is known, tokens are estimated from words.
        """
        return self

    def recipe(self, head: Head | None = None) -> Recipe:
        """The paper's hyper-parameters for this task and head; if it has none, those of the task `like`."""
        head = self.check_head(head)
        if not self.like:
            return paper_recipe(self.name, head)
        unlike = {name: value for name, value in self.unlike.items() if head == "text" or name != "output_length"}
        near = paper_recipe(self.like, head)
        borrowed = near.compression_at(unlike.get("length", near.length))
        return replace(near, of_paper=False, compression=replace(borrowed, source="ours"), **unlike)

    def results(self) -> tuple[Result, ...]:
        """The paper's results on this task."""
        return tuple(result for result in RESULTS if result.task == self.name)

    def check_head(self, head: Head | None) -> Head:
        """Return the head, or the default for None; raise if the task does not have it."""
        if head is None:
            return self.heads[0]
        if head not in self.heads:
            raise UsageError(f"task {self.name!r} has no head {head!r}: must be one of {', '.join(self.heads)}")
        return head
