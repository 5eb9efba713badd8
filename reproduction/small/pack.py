"""Pack the inputs of the small scale into one folder for another machine: weights, text, task data."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel

from reproduction.small.corpus import pack_tokens
from reproduction.small.questions import QUESTIONS, QuestionTokens
from vcc.data.records import find_split
from vcc.errors import UsageError
from vcc.hosts import load
from vcc.tasks.squad import Squad

SETS = {"squad_haystack": "squad"}  # the folder of a task, where it has another name
LARGER = {("squad", "train"): "squad11"}  # splits that another folder has more of
MODEL, TOKENS, DATA = "start", "tokens", "data"


def pack(data: Path, model: str, out: Path, tasks: Sequence[str], megabytes: float) -> Path:
    """Write the folder: the model in 16 bits, text of `megabytes` million tokens, and the sets of the tasks."""
    if not data.is_dir():
        raise UsageError(f"--data {data}: no such folder")
    out.mkdir(parents=True, exist_ok=True)
    network: Any
    network, _ = load.load_model(model, AutoModel, new_head=True)
    network.to(torch.float16).save_pretrained(out / MODEL)
    load.load_tokenizer(model).save_pretrained(out / MODEL)
    for name in dict.fromkeys(["squad", *(SETS.get(task, task) for task in tasks)]):  # all learn to answer on the first
        (out / DATA / name).mkdir(parents=True, exist_ok=True)
        for split in ("train", "validation"):
            larger = LARGER.get((name, split), name)
            file = find_split(data, larger if (data / larger).is_dir() else name, split)
            shutil.copy(file, out / DATA / name / f"{split}{''.join(file.suffixes[-2:])}")
        for documents in (data / name).glob("docs.*"):
            shutil.copy(documents, out / DATA / name / documents.name)
    tokenizer = load.load_tokenizer(model)
    pack_tokens(data, tokenizer, out / TOKENS, round(megabytes * 1e6))
    QuestionTokens.of(Squad().load("train", str(out / DATA)), tokenizer).save(out / TOKENS / QUESTIONS)
    return out
