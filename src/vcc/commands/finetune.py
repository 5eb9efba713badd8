"""Fine-tune a model on a task."""

from pathlib import Path
from typing import Annotated, Any

from vcc.commands.options import at_least
from vcc.data.example import Head
from vcc.data.features import ExampleTokenizer, TruncationReport
from vcc.hosts.quiet import quiet
from vcc.tasks import TASKS
from vcc.tasks.task import Task
from vcc.train.draws import TaskExamples, fingerprint, some_of
from vcc.train.models import ModelChoice, choose_head, described, load_model, load_tokenizer
from vcc.train.objectives import AUTO_CLASSES, Answering
from vcc.train.predict import Predictor, counting
from vcc.train.record import FinetuneRecord
from vcc.train.run import Training, fit, settle
from vcc.train.watch import say

SAMPLE = 500  # examples in the report on truncation before training


def finetune(
    task: Annotated[Task, TASKS, "task"],
    model: ModelChoice,
    training: Training,
    head: Annotated[Head | None, "kind of answer (default: the task's first that fits the model)"] = None,
    length: Annotated[int | None, "maximum input tokens (default: the task's); truncated inputs are counted"] = None,
    data: Annotated[str | None, "file, folder or hub name (default: $VCC_DATA or the task's hub name)"] = None,
    examples: Annotated[int | None, "random sample of this many training examples"] = None,
    max_choices: Annotated[int | None, "maximum choices per question in training"] = None,
    teach_opening: Annotated[
        float, "weight of a loss that teaches which segments to open: those of the answers; 0.5 is a good one, 0: none"
    ] = 0.0,
    eval_every: Annotated[int | None, "steps between evaluations on the validation split"] = None,
    eval_examples: Annotated[int, "validation examples per evaluation"] = 200,
) -> Path:
    """Fine-tune a model on a task, by default with the paper's settings.

    A run can stop at any moment, even by a power cut. --resume continues it to the same result.
    """
    at_least(
        1,
        length=length,
        examples=examples,
        max_choices=max_choices,
        eval_every=eval_every,
        eval_examples=eval_examples,
    )
    quiet()
    head = choose_head(task, head, model)
    tokenizer = load_tokenizer(model)
    task = counting(task, tokenizer, head)
    chosen = some_of(task.load("train", data), examples)
    recipe = task.recipe(head)
    length = length or recipe.length
    settled = settle(training, recipe, len(chosen))
    kind, compression = AUTO_CLASSES[head], recipe.compression_at(length)
    network = load_model(model, kind, length, settled.seed, tokenizer, new_head=True, compression=compression)
    tokenize = ExampleTokenizer(tokenizer, head, length, recipe.target_length, max_choices)
    answering = Answering.of(network, tokenizer, head, length, teach_opening)
    sample = [tokenize(chosen[i]) for i in range(0, len(chosen), max(1, len(chosen) // SAMPLE))]
    say(f"task {task.name}, head {head}, inputs of at most {length:,} tokens; {described(network)}")
    say(f"training examples: {len(chosen):,}; in a sample of {len(sample):,}, {TruncationReport.of(sample)}")

    evaluation = None
    if eval_every:
        held_out = some_of(task.load("validation", data), eval_examples)

        def evaluation(network: Any) -> dict[str, float]:
            predictor = Predictor.of(task, head, network, tokenizer, length, settled.at_once)
            metrics = task.metrics(predictor.answer_all(held_out).predictions, held_out)
            return {name: metrics[name] for name in task.metric_names if name in metrics}

    record = FinetuneRecord(
        task=task.name,
        options={name: getattr(task, name) for name in task.options},
        head=head,
        length=length,
        max_choices=max_choices,
        examples=len(chosen),
        teach_opening=teach_opening,
        source=data,
        data=fingerprint(chosen),
        model=model.model,
        fresh=model.fresh,
        vcc=getattr(network.config, "vcc", None),
    )
    data_set = TaskExamples(chosen, tokenize)
    return fit(settled, record, network, answering, data_set, tokenizer, length, evaluation, eval_every)
