"""Pack the inputs of the small scale into one folder for another machine: weights, text, task data."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM, T5Tokenizer

from reproduction.small.corpus import pack_tokens
from reproduction.small.layout import T5, T5_TOKENS, TOKENS
from reproduction.small.questions import QUESTIONS, QuestionTokens
from reproduction.small.small_tasks import CHOICES, HOPS, MORE_HOPS
from reproduction.small.summaries import SummaryTokens
from reproduction.small.writers import small_t5
from vcc.data.records import find_split
from vcc.errors import UsageError
from vcc.hosts import load
from vcc.tasks import TASKS
from vcc.tasks.squad import Squad

SETS = {"squad_haystack": ("squad",), CHOICES: ("fairytaleqa",), HOPS: (HOPS, *MORE_HOPS)}  # the folders of a task
LARGER = {("squad", "train"): "squad11"}  # splits that another folder has more of
MODEL, DATA = "start", "data"
VOCABULARY, WEIGHTS = "spiece.model", "*.safetensors"


def pack(data: Path, model: str, out: Path, tasks: Sequence[str], megabytes: float) -> Path:
    """Write the folder: the model in 16 bits, text of `megabytes` million tokens (0: none), the sets of the tasks."""
    check_folder(data)
    out.mkdir(parents=True, exist_ok=True)
    network: Any
    network, _ = load.load_model(model, AutoModel, new_head=True)
    network.to(torch.float16).save_pretrained(out / MODEL)
    load.load_tokenizer(model).save_pretrained(out / MODEL)
    wanted = [name for task in tasks for name in SETS.get(task, (task,))]
    for name in dict.fromkeys(["squad", *wanted]):  # all learn to answer on the first
        copy_set(data, name, out)
    tokenizer = load.load_tokenizer(model)
    if megabytes:
        pack_tokens(data, tokenizer, out / TOKENS, round(megabytes * 1e6))
    QuestionTokens.of(Squad().load("train", str(out / DATA)), tokenizer).save(out / TOKENS / QUESTIONS)
    return out


def pack_for_t5(data: Path, t5: str, out: Path, tasks: Sequence[str], megabytes: float) -> Path:
    """Write the folder for encoder-decoders: a configuration, with weights in 16 bits if `t5` has some, text, and the
    tasks whose data is there. `t5` may be a folder with T5's vocabulary alone: then the small T5 is configured."""
    check_folder(data)
    (out / T5).mkdir(parents=True, exist_ok=True)
    folder = Path(t5)
    bare = (folder / VOCABULARY).is_file() and not (folder / "tokenizer.json").is_file()
    tokenizer: Any = T5Tokenizer.from_pretrained(folder) if bare else load.load_tokenizer(t5)
    tokenizer.save_pretrained(out / T5)
    if folder.is_dir() and not any(folder.glob(WEIGHTS)):
        known = (folder / "config.json").is_file()
        config: Any = load.load_config(folder, local=True) if known else small_t5(tokenizer)
        config.save_pretrained(out / T5)
    else:
        network: Any
        network, _ = load.load_model(t5, AutoModelForSeq2SeqLM)
        network.to(torch.bfloat16).save_pretrained(out / T5)
    there = [task for task in tasks if (data / task).is_dir()]
    if not there:
        raise UsageError(f"--data {data}: must hold some of {', '.join(tasks)}")
    for task in there:
        copy_set(data, task, out)
        examples = TASKS[task]().load("train", str(out / DATA))
        SummaryTokens.of(examples, tokenizer).save(summaries(out, task))
    pack_tokens(data, tokenizer, out / T5_TOKENS, round(megabytes * 1e6))
    return out


def summaries(packed: Path, task: str) -> Path:
    """The file with the training pairs of a task."""
    return packed / T5_TOKENS / f"{task}.npz"


def check_folder(data: Path) -> None:
    if not data.is_dir():
        raise UsageError(f"--data {data}: no such folder")


def copy_set(data: Path, name: str, out: Path) -> None:
    """Copy the training and validation splits of a set, and its documents."""
    if name in MORE_HOPS and not (data / name).is_dir():
        return
    (out / DATA / name).mkdir(parents=True, exist_ok=True)
    for split in ("train", "validation"):
        if name in MORE_HOPS and not any((data / name).glob(f"{split}*")):
            continue
        larger = LARGER.get((name, split), name)
        file = find_split(data, larger if (data / larger).is_dir() else name, split)
        shutil.copy(file, out / DATA / name / f"{split}{''.join(file.suffixes[-2:])}")
    for documents in (data / name).glob("docs.*"):
        shutil.copy(documents, out / DATA / name / documents.name)
