"""The jobs of the small scale: each writes one file when it is done, and needs files of earlier ones.

python -m reproduction.small.jobs PACKED OUT SETTINGS JOB ARGUMENTS
"""

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config
from torch.utils.data import Dataset
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    RobertaPreLayerNormConfig,
    RobertaPreLayerNormForMaskedLM,
)

from reproduction.loop import LoopPlan, Trained, half_precision
from reproduction.small import rates, timing, variants
from reproduction.small.closing import ClosingBudget
from reproduction.small.corpus import unpack_tokens
from reproduction.small.facts import ShuffledHops, add_facts, fact_scores, load_facts, save_facts, with_facts
from reproduction.small.hidden import load_examples, save_examples
from reproduction.small.layout import CURVE, HIDDEN, OWN, PRESTART, TOKENS, SmallLayout
from reproduction.small.learning import MaskedWords, finish, train
from reproduction.small.opened import WatchingPredictor
from reproduction.small.pack import DATA, MODEL
from reproduction.small.pieces import PermutedWords, PieceRule, PieceTokenizer
from reproduction.small.questions import QUESTIONS, VIPS, HiddenQuestions, QuestionTokens
from reproduction.small.settings import PARAGRAPHS, Small
from reproduction.small.small_tasks import HOPS, hop_records, small_task
from vcc.data.corpus import TokenStore
from vcc.data.example import Example, Head
from vcc.data.features import ExampleTokenizer, Frame
from vcc.data.pretrain import MaskedLM, PretrainDataset
from vcc.files import one_at_a_time, write_whole
from vcc.hosts import load
from vcc.hosts.forward.wrapped import state_of
from vcc.hosts.quiet import quiet
from vcc.tasks import TASKS
from vcc.tasks.hotpotqa import multi_hop_example
from vcc.tasks.task import Split, Task
from vcc.train.draws import MaskedSequences, TaskExamples
from vcc.train.objectives import Answering
from vcc.train.perplexity import Perplexity
from vcc.train.predict import Predictor, counting

MASKED, MASKED_SHORT = 0.075, 0.15  # share of the words; in short rows, without VIPs, more costs nothing
HELD_OUT_ROWS = 64  # long sequences on which perplexity is measured
CHARACTERS = 4  # of a token of a contract; a few tokens have more
FROM_IDS = ("squad", HIDDEN)  # tasks whose training data are made of ids, once
MOSTLY_EMPTY = ("cuad",)  # most clauses are in few contracts; like its authors, we draw both kinds equally often


# ------------------------------------------------------------------------------------------------------- pretraining


def sequences(
    layout: SmallLayout,
    split: str,
    tokenizer: Any,
    length: int,
    seed: int,
    size: int,
    ratio: float = MASKED,
    pieces: PieceRule | None = None,
) -> PretrainDataset:
    """Masked sequences of a split; in clusters if the settings say so, in shuffled pieces if the model reads these."""
    small, store = layout.small, text_of(layout, split)
    clusters = {"cluster_window": small.mask_window, "cluster_density": small.mask_density} if small.mask_window else {}
    words = MaskedLM.of(tokenizer, ratio=ratio, **clusters)
    return PretrainDataset(store, PermutedWords(words, pieces) if pieces else words, length, seed, size)


def pieces_of(layout: SmallLayout, name: str, tokenizer: Any) -> PieceRule | None:
    """How this model's texts are cut, if they are."""
    return PieceRule(Frame.of(tokenizer), layout.small.short) if variants.variant(name).pieces else None


def text_of(layout: SmallLayout, split: str, kind: str = TOKENS) -> TokenStore:
    """The text as ids, unpacked by the first job that needs it."""
    layout.out.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(layout.out / f".{kind}-{split}.lock"):
        return unpack_tokens(layout.packed / kind / split, layout.tokens(split, kind))


def perplexity(
    layout: SmallLayout, tokenizer: Any, objective: MaskedWords, pieces: PieceRule | None = None
) -> Perplexity:
    """Perplexity of held-out masked words, on the same sequences and masks for all models but those that read pieces:
    nearly the same text is shuffled for them."""
    small = layout.small
    data = sequences(layout, "validation", tokenizer, small.length, seed=1, size=HELD_OUT_ROWS, pieces=pieces)
    number = min(HELD_OUT_ROWS, data.per_epoch)
    dtype = torch.bfloat16 if small.device == "cuda" else torch.float32
    return Perplexity(data[:number], objective, small.at_once, dtype)


def begin(layout: SmallLayout) -> None:
    """The common checkpoint: the packed weights with a head for masked words, trained on short rows."""
    small, folder = layout.small, layout.start()
    tokenizer = load.load_tokenizer(layout.packed / MODEL, local=True)
    torch.manual_seed(small.seed)
    model: Any
    model, _ = load.load_model(layout.packed / MODEL, AutoModelForMaskedLM, local=True, new_head=True)
    without_attention_dropout(model)
    masked_rows(layout, model, tokenizer, folder, small.start_steps, small.pretrain_rate)


def prestart(layout: SmallLayout) -> None:
    """A pre-norm checkpoint of the same size, from random weights but for the embeddings of words, trained on short
    rows. The paper's X + S^+ f(S X) is the residual of a pre-norm layer."""
    small, folder = layout.small, layout.start(PRESTART)
    tokenizer = load.load_tokenizer(layout.packed / MODEL, local=True)
    theirs: Any
    theirs, _ = load.load_model(layout.packed / MODEL, AutoModelForMaskedLM, local=True, new_head=True)
    torch.manual_seed(small.seed)
    shared = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    config = RobertaPreLayerNormConfig(
        **{name: getattr(theirs.config, name) for name in shared},
        max_position_embeddings=small.short + tokenizer.pad_token_id + 1,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.cls_token_id, eos_token_id=tokenizer.sep_token_id,
        type_vocab_size=2,
    )  # fmt: skip
    model: Any = RobertaPreLayerNormForMaskedLM(config)
    model.get_input_embeddings().weight.data.copy_(theirs.get_input_embeddings().weight.data)
    without_attention_dropout(model)
    masked_rows(layout, model, tokenizer, folder, small.prestart_steps, small.prestart_rate)


def without_attention_dropout(model: Any) -> None:
    """For all models: FlexAttention and the attention of blocks have no dropout of probabilities."""
    model.config.attention_probs_dropout_prob = 0.0
    for name, module in model.named_modules():
        if name.endswith("attention.self.dropout"):
            module.p = 0.0


def masked_rows(layout: SmallLayout, model: Any, tokenizer: Any, folder: Path, steps: int, rate: float) -> None:
    """Train a common checkpoint on masked words in short rows. Without steps it needs no text."""
    small, found = layout.small, Trained()
    if steps:
        objective = MaskedWords(tokenizer.pad_token_id, None, row=small.short)
        measure = perplexity(layout, tokenizer, objective)
        data = sequences(layout, "train", tokenizer, small.length, small.seed + 7, 2**40, MASKED_SHORT)
        variants.make_fast("dense-512", model, small.device, small.compile)
        every = max(20, steps // 100 * 20)
        found = train(model, objective, MaskedSequences(data), small, LoopPlan(rate, steps), folder, measure, every)
    finish(folder, model, tokenizer, found)


def pretrain(layout: SmallLayout, name: str) -> None:
    small, folder = layout.small, layout.pretrained(name)
    start = layout.start(variants.variant(name).start)
    tokenizer = load.load_tokenizer(start, local=True)
    model: Any = variants.made(name, start, small.length)
    kind = variants.variant(name).kind
    vips = "vip_mask" if kind == "vcc" else None  # Longformer's authors pretrain it without global tokens
    objective = MaskedWords(tokenizer.pad_token_id, vips, small.short if kind == "dense-512" else None)
    pieces = pieces_of(layout, name, tokenizer)
    measure = perplexity(layout, tokenizer, objective, pieces)
    variants.make_fast(name, model, small.device, small.compile)
    before = measure(model.to(small.device))
    steps = steps_in(layout, name, small.pretrain_seconds, variants.variant(name).pretrain_steps(small.pretrain_steps))
    found = Trained()
    if steps:
        data = sequences(layout, "train", tokenizer, small.length, small.seed, 2**40, pieces=pieces)
        plan, every = LoopPlan(small.pretrain_rate, steps), max(20, steps // 100 * 20)
        found = train(model, objective, MaskedSequences(data), small, plan, folder, measure, every)
    finish(folder, model, tokenizer, replace(found, curve=[{"step": 0, **before}, *found.curve]))


def steps_in(layout: SmallLayout, name: str, seconds: float | None, steps: int, setting: str = OWN) -> int:
    """Steps that take this many seconds of a GPU that runs nothing else, by the measured time; else `steps`."""
    if seconds is None:
        return steps
    took = json.loads(layout.times(name, setting).read_text(encoding="utf-8"))
    each = took.get("training_gpu_ms_each") or took["training_ms_each"]
    return max(1, round(1000 * seconds / each / layout.small.batch))


# ---------------------------------------------------------------------------------------------------------------- tasks


def task_of(layout: SmallLayout, task: str) -> Task:
    """Hidden paragraphs are in documents as long as the long models read, in their tokens."""
    if task != HIDDEN:
        return small_task(task)
    tokenizer = load.load_tokenizer(layout.packed / MODEL, local=True)
    return counting(TASKS[task](lengths=(layout.small.length,)), tokenizer, "span")


def examples(layout: SmallLayout, task: str, split: Split) -> Sequence[Example]:
    """All training examples, or a random sample of the test examples. Of SQuAD those with an answer, hidden or not."""
    if split == "train":
        found = task_of(layout, task).load(split, str(layout.packed / DATA))
        return balanced(found, layout.small.length * CHARACTERS) if task in MOSTLY_EMPTY else found
    if task != HIDDEN:
        return sampled(layout, task, split)
    layout.out.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(layout.out / ".hidden.lock"):
        if not layout.hidden().exists():
            save_examples(layout.hidden(), sampled(layout, task, split))
    return load_examples(layout.hidden())


def hide(layout: SmallLayout) -> None:
    """Put the test questions with hidden paragraphs together, for all models."""
    examples(layout, HIDDEN, "validation")


def sampled(layout: SmallLayout, task: str, split: Split) -> list[Example]:
    found = task_of(layout, task).load(split, str(layout.packed / DATA))
    order = random.Random(0).sample(range(len(found)), len(found))  # the same for every seed
    chosen: list[Example] = []
    for i in order:
        if len(chosen) == layout.small.examples:
            break
        example = found[i]
        if task not in FROM_IDS or example.answers:
            chosen.append(example)
    return chosen


def balanced(found: Sequence[Example], reach: int) -> list[Example]:
    """Equally many with an answer within this many characters and without one; those with one are repeated. A later
    answer would be truncated and teach that there is none."""
    answered = [example for example in found if any(end <= reach for _, end in example.answer_spans)]
    empty = [example for example in found if not example.answers]
    return answered * max(1, round(len(empty) / max(1, len(answered)))) + empty


def example_tokenizer(tokenizer: Any, head: Head, length: int, pieces: PieceRule | None) -> ExampleTokenizer:
    """The tokenizer of a task's examples for one model."""
    if pieces is None:
        return ExampleTokenizer(tokenizer, head, length)
    return PieceTokenizer(tokenizer, head, length, pieces)


def training_data(
    layout: SmallLayout, task: str, tokenizer: Any, length: int, pieces: PieceRule | None = None
) -> Dataset[Any]:
    """SQuAD from packed ids; other tasks from their texts; HotpotQA with paragraphs in a new order every time."""
    if task not in FROM_IDS:
        tokenize = example_tokenizer(tokenizer, head_of(task), length, pieces)
        if task == HOPS:
            return ShuffledHops(hop_records("train", str(layout.packed / DATA)), tokenize, layout.small.seed)
        return TaskExamples(examples(layout, task, "train"), tokenize)
    tokens = QuestionTokens.load(layout.packed / TOKENS / QUESTIONS)
    return HiddenQuestions(tokens, Frame.of(tokenizer), length, layout.small.seed, task == HIDDEN, pieces)


def most_vips(data: Dataset[Any]) -> int:
    """Room for the VIPs of every row, counted once: each number of rows would be another compiled graph."""
    if isinstance(data, HiddenQuestions):
        return VIPS
    assert isinstance(data, TaskExamples | ShuffledHops)
    found = [multi_hop_example(one) for one in data.records] if isinstance(data, ShuffledHops) else data.examples
    asked = {(one.question, one.choices): replace(one, document="", answer_spans=()) for one in found}
    most = max(data.tokenize(one).row.vip_count for one in asked.values())
    return max(VIPS, -(-most // 32) * 32)


def head_of(task: str) -> Head:
    return small_task(task).heads[0]


def answering(
    layout: SmallLayout, name: str, model: Any, tokenizer: Any, length: int, opening: float = 0.0, head: Head = "span"
) -> Answering:
    """The objective of a task. Compiled models get batches of one shape."""
    made = Answering.of(model, tokenizer, head, length, opening if head == "span" else 0.0)
    fixed = replace(made.collator, multiple=length) if layout.small.compile else made.collator
    return replace(made, vips=variants.vip_name(name), collator=fixed)


def read(layout: SmallLayout, start: str) -> None:
    """The common reader: the dense model learns to answer from single paragraphs. Every model starts from it."""
    small, folder = layout.small, layout.reader(start)
    tokenizer = load.load_tokenizer(layout.start(start), local=True)
    torch.manual_seed(small.seed)  # of the new head
    model: Any
    model, _ = load.load_model(layout.start(start), AutoModelForQuestionAnswering, local=True, new_head=True)
    learn_paragraphs(layout, "dense-512", model, tokenizer, folder)


def learn_paragraphs(layout: SmallLayout, name: str, model: Any, tokenizer: Any, folder: Path) -> None:
    """Train on single paragraphs, then answer those of the validation questions: the ceiling of the hidden ones."""
    small, found = layout.small, Trained()
    if small.answer_steps:
        variants.make_fast(name, model, small.device, small.compile, VIPS)
        objective = answering(layout, name, model, tokenizer, small.short)
        data = training_data(layout, "squad", tokenizer, small.short, pieces_of(layout, name, tokenizer))
        paragraphs = replace(small, batch=PARAGRAPHS, at_once=PARAGRAPHS)
        found = train(model, objective, data, paragraphs, LoopPlan(small.tune_rate, small.answer_steps), folder)
    found.curve.append({"step": found.steps, **ceiling(layout, name, model, tokenizer)})
    finish(folder, model, tokenizer, found)


def ceiling(layout: SmallLayout, name: str, model: Any, tokenizer: Any) -> dict[str, float]:
    """F1 on the paragraphs alone of the hidden questions."""
    small = layout.small
    held_out = examples(layout, "squad", "validation")
    model.eval().to(small.device)
    predictor = Predictor.of(TASKS["squad"](), "span", model, tokenizer, small.short, PARAGRAPHS)
    tokenize = example_tokenizer(tokenizer, "span", small.short, pieces_of(layout, name, tokenizer))
    objective = answering(layout, name, model, tokenizer, small.short)
    predictor = replace(predictor, tokenize=tokenize, answering=objective)
    with half_precision(small.device):
        predictions = predictor.answer_all(held_out).predictions
    return {"paragraph_f1": predictor.task.metrics(predictions, held_out)["f1"]}


def answer(layout: SmallLayout, name: str) -> None:
    """Learn to answer from single paragraphs, which are short for all models: a new head needs thousands of questions,
    and these are cheap. VCC opens the same share of a paragraph as of a long text."""
    small, folder = layout.small, layout.answering(name)
    tokenizer = load.load_tokenizer(layout.pretrained(name), local=True)
    torch.manual_seed(small.seed)  # of the new head
    length = variants.reads(name, small.length, small.short)
    options = variants.as_closed(name, small.short / small.length)
    model = variants.loaded(name, layout.pretrained(name), length, options, new_head=True)
    learn_paragraphs(layout, name, model, tokenizer, folder)


def tune(layout: SmallLayout, name: str, task: str, setting: str = OWN, options: dict[str, Any] | None = None) -> None:
    """Learn a task, with the model's own settings unless others are given, then answer its validation questions."""
    small, folder, chosen = layout.small, layout.tuned(name, task, setting), variants.variant(name)
    length = variants.reads(name, small.length, small.short)
    tokenizer = load.load_tokenizer(layout.start(chosen.start), local=True)
    if not (folder / CURVE).exists():
        model: Any
        head = head_of(task)
        torch.manual_seed(small.seed)  # of a new head
        if small.reader:
            model = variants.reading(name, layout.reader(chosen.start), length, options, head=head)
        else:
            model = variants.loaded(name, layout.answering(name), length, options, new_head=head != "span", head=head)
        data = training_data(layout, task, tokenizer, length, pieces_of(layout, name, tokenizer))
        vips = most_vips(data) if small.compile and chosen.kind == "vcc" else None
        variants.make_fast(name, model, small.device, small.compile, vips)
        closing = ClosingBudget(model.vcc, length, chosen.closing) if chosen.closing else None
        objective = answering(layout, name, model, tokenizer, length, chosen.opening, head)
        if task == HOPS:
            add_facts(model)
            objective = with_facts(objective)
        steps = steps_in(layout, name, small.tune_seconds, chosen.tune_steps(small.tune_steps), setting)
        plan = LoopPlan(small.tune_rate, steps)
        found = train(model, objective, data, small, plan, folder, closing=closing)
        if task == HOPS:
            save_facts(model, folder)
        finish(folder, model, tokenizer, found)
    score(layout, name, task, setting, options)


def score(
    layout: SmallLayout,
    name: str,
    task: str,
    setting: str = "own",
    options: dict[str, Any] | None = None,
    length: int | None = None,
) -> None:
    """Answer with a model tuned with these settings, or at another length than in training."""
    small, folder = layout.small, layout.tuned(name, task, setting)
    tokens = length or variants.reads(name, small.length, small.short)
    head = head_of(task)
    model = variants.loaded(name, folder, tokens, options, head=head)
    model.eval().to(small.device)
    tokenizer = load.load_tokenizer(folder, local=True)
    held_out = examples(layout, task, "validation")
    predictor = Predictor.of(task_of(layout, task), head, model, tokenizer, tokens, min(small.at_once, 32))
    objective = replace(predictor.answering, vips=variants.vip_name(name))
    tokenize = example_tokenizer(tokenizer, head, tokens, pieces_of(layout, name, tokenizer))
    predictor = WatchingPredictor.watching(replace(predictor, tokenize=tokenize, answering=objective))
    with half_precision(small.device):
        predictions, report, _ = predictor.answer_all(held_out)
        metrics = predictor.task.metrics(predictions, held_out)
        if task == HOPS:
            load_facts(model, folder)
            records = hop_records("validation", str(layout.packed / DATA))[: small.examples]
            model.to(small.device)
            metrics |= fact_scores(model, with_facts(objective), predictor.tokenize, records, 32, small.device)
    more: dict[str, Any] = {"cut_examples": report.cut_examples, "cut_answers": report.cut_answers}
    found = {"model": name, "task": task, "setting": setting, "length": tokens, "examples": len(held_out)}
    if small.rates:
        more[rates.HALVES] = rates.scores(predictor.task, predictions, held_out)
    file = layout.scores(name, task, setting, length)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps({**found, **more, "metrics": metrics, "opened": predictor.shares()}, indent=1))


def choose(layout: SmallLayout, name: str, task: str) -> None:
    """Choose the learning rate of a model on a task."""
    found = {rate: in_halves(layout.rated(rate), name, task) for rate in layout.small.rates}
    save_choice(layout, name, task, rates.best(found, small_task(task).metric_names[0]), {"scores": found})


def again(layout: SmallLayout, name: str, task: str) -> None:
    """Learn a task with another seed and the rate that the first chose."""
    first = replace(layout, repeat=0).chosen(name, task)
    rate = json.loads(first.read_text(encoding="utf-8"))["rate"]
    if not layout.rated(rate).scores(name, task).exists():
        tune(layout.rated(rate), name, task)
    in_halves(layout.rated(rate), name, task)
    save_choice(layout, name, task, rate, {})


def in_halves(layout: SmallLayout, name: str, task: str) -> dict[str, dict[str, float]]:
    """The scores of a tuned model on both halves of the questions. Runs before the search have none yet."""
    file = layout.scores(name, task)
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if rates.HALVES not in found:
        score(layout, name, task)
        found = json.loads(file.read_text(encoding="utf-8"))
    return found[rates.HALVES]


def save_choice(layout: SmallLayout, name: str, task: str, rate: float, more: dict[str, Any]) -> None:
    file = layout.chosen(name, task)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps({"model": name, "task": task, "rate": rate, **more}, indent=1))


def time_alone(layout: SmallLayout, each: Sequence[dict[str, Any]]) -> None:
    """Milliseconds and memory per sequence, for one model after another: run it when nothing else runs."""
    one_by_one(each, lambda **one: time_one(layout, **one))


def one_by_one(each: Sequence[dict[str, Any]], measure: Callable[..., None]) -> None:
    """Time each. Failures do not stop the others and are reported at the end."""
    failed: list[Exception] = []
    for one in each:
        try:
            measure(**one)
        except Exception as error:
            error.add_note(f"while {one['name']} was timed with {one.get('setting', OWN)}")
            failed.append(error)
    if failed:
        raise ExceptionGroup("not timed", failed)


def warm(layout: SmallLayout, name: str) -> None:
    """Run the steps that are timed once, so that their compiled code is on the disk before the device must be free."""
    time_one(layout, name, OWN, {}, once=True)
    layout.compiled(name).touch()


def time_one(layout: SmallLayout, name: str, setting: str, options: dict[str, Any], once: bool = False) -> None:
    """Time a model at its start. Of a budget that closes, every level is timed, and the mean over a run is written."""
    small, chosen = layout.small, variants.variant(name)
    length = variants.reads(name, small.length, small.short)
    model: Any = variants.reading(name, layout.start(chosen.start), length, options)
    variants.make_fast(name, model, small.device, small.compile, VIPS)

    def measured(*modes: str) -> dict[str, float | None]:
        return timing.measure(
            model, variants.vip_name(name), length, small.device, small.at_once, small.compile, modes,
            opening=chosen.opening, once=once,
        )  # fmt: skip

    found = measured("training", "forward") if small.time_forward else measured("training")
    if chosen.closing:
        closing = ClosingBudget(model.vcc, length, chosen.closing)
        more: list[dict[str, float | None]] = []
        for settings in closing.levels():
            state_of(model).settings = settings
            more.append(measured("training"))
        for key in ("training_ms_each", "training_gpu_ms_each"):
            own, values = found.get(key), [value for one in more if (value := one.get(key)) is not None]
            if own is not None and values:
                found[key] = (1 - chosen.closing) * own + chosen.closing * sum(values) / len(values)
    file = layout.times(name, setting)
    file.parent.mkdir(parents=True, exist_ok=True)
    if once:
        return
    write_whole(file, json.dumps({"model": name, "setting": setting, "length": length, **found}, indent=1))


JOBS: dict[str, Callable[..., None]] = {
    "hide": hide,
    "begin": begin,
    "prestart": prestart,
    "read": read,
    "pretrain": pretrain,
    "answer": answer,
    "tune": tune,
    "score": score,
    "choose": choose,
    "again": again,
    "warm": warm,
    "time": time_alone,
}


def end_after(parent: int) -> None:
    """End this process when its parent is gone: another plan may start the same job on the same device."""
    while True:
        time.sleep(1)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)


def main(known: dict[str, Callable[..., None]], packed: str, out: str, settings: str, job: str, arguments: str) -> None:
    quiet()
    threading.Thread(target=end_after, args=[os.getppid()], daemon=True).start()
    small = Small(**json.loads(settings))
    if small.device == "cuda":
        torch.set_float32_matmul_precision("high")
        # The gradient of a layer norm in one kernel takes three times as long as in two: 7% of every model's step.
        if hasattr(torch._inductor.config.triton, "mix_order_reduction"):
            torch._inductor.config.triton.mix_order_reduction = False
    given = json.loads(arguments)
    layout = SmallLayout(Path(packed), Path(out), small).repeated(given.pop("repeat", 0)).rated(given.pop("rate", None))
    known[job](layout, **given)


if __name__ == "__main__":
    main(JOBS, *sys.argv[1:])
