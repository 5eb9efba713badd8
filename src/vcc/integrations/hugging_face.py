"""transformers' task "question-answering", which version 5 removed, for any checkpoint and texts of any length.

`vcc.hosts.auto` registers it when transformers' pipelines are imported after `import vcc`.
"""

from typing import Any

from transformers import AutoModelForQuestionAnswering
from transformers.pipelines.base import Pipeline

from vcc.documents.shipped import SHIPPED
from vcc.hosts.auto import TASK
from vcc.pipeline import QuestionAnswering, ReadingOptions, pipeline


class QuestionAnsweringPipeline(Pipeline):
    """`transformers.pipeline("question-answering", model=...)`; all work is done by `vcc.pipeline`."""

    _load_tokenizer = True  # type: ignore[assignment]
    _load_processor = False  # type: ignore[assignment]
    _load_image_processor = False  # type: ignore[assignment]
    _load_feature_extractor = False  # type: ignore[assignment]
    _load_video_processor = False  # type: ignore[assignment]
    answering: QuestionAnswering

    def __init__(self, model: Any, tokenizer: Any = None, **options: Any) -> None:
        own = {name: options.pop(name) for name in vars(ReadingOptions()) if name in options}
        super().__init__(model=model, tokenizer=tokenizer, **options)
        self.answering = pipeline(self.model.eval(), self.tokenizer, **own)

    def __call__(self, *examples: Any, **given: Any) -> Any:
        """As `vcc.pipeline`: question= and context=, or dictionaries with both; lists give lists."""
        return self.answering(*examples, **given)

    def _sanitize_parameters(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return {}, options, {}

    def preprocess(self, example: Any, **options: Any) -> Any:  # type: ignore[override]
        return example

    def _forward(self, example: Any, **options: Any) -> Any:  # type: ignore[override]
        return self.answering(example, **options)

    def postprocess(self, answered: Any, **options: Any) -> Any:  # type: ignore[override]
        return answered


def task() -> dict[str, Any]:
    """The row of transformers' table of pipelines."""
    default = {"model": (str(SHIPPED), None)}
    row = {"impl": QuestionAnsweringPipeline, "pt": (AutoModelForQuestionAnswering,), "default": default}
    QuestionAnsweringPipeline._registered_impl = {TASK: row}  # type: ignore[attr-defined]
    return row
