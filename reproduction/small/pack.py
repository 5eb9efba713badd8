"""Pack the inputs of the small scale into one folder for another machine: weights, text, task data."""

import json
import lzma
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel

from vcc.data.corpus import stream_texts
from vcc.data.records import find_split
from vcc.errors import DataError, UsageError
from vcc.hosts import load

TEXT = ("wikipedia_schools", "openstax", "books", "wikitext2")  # read in this order until there is enough
SETS = {"squad_haystack": "squad"}  # the folder of a task, where it has another name
MODEL, TEXTS, DATA = "start", "text", "data"
HELD_OUT = 40  # every 40th text is held out


def pack(data: Path, model: str, out: Path, tasks: Sequence[str], megabytes: float) -> Path:
    """Write the folder: the model in 16 bits, `megabytes` of compressed text, and the sets of the tasks."""
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
            file = find_split(data, name, split)
            shutil.copy(file, out / DATA / name / f"{split}{''.join(file.suffixes[-2:])}")
        for documents in (data / name).glob("docs.*"):
            shutil.copy(documents, out / DATA / name / documents.name)
    pack_text(data, out / TEXTS, megabytes)
    return out


def pack_text(data: Path, out: Path, megabytes: float) -> None:
    """Whole texts, shuffled within each set, up to the size limit of the compressed training part."""
    held: list[str] = []
    room = megabytes * 2**20
    for name in TEXT:
        if room <= 0 or not (data / name).is_dir():
            continue
        file = next((f for f in sorted((data / name).iterdir()) if f.name.startswith(("train", "test"))), None)
        if file is None:
            continue
        texts = [one.text for one in stream_texts(str(file))]
        random.Random(0).shuffle(texts)
        held += texts[::HELD_OUT]
        learned = [text for i, text in enumerate(texts) if i % HELD_OUT]
        target = out / "train" / f"{name}.jsonl.xz"
        target.parent.mkdir(parents=True, exist_ok=True)
        with lzma.open(target, "wt", encoding="utf-8", preset=6) as opened:
            for text in learned:
                if target.stat().st_size > room:
                    break
                opened.write(json.dumps({"text": text}) + "\n")
        room -= target.stat().st_size
    if not held:
        raise DataError(f"{data}: must hold one of {', '.join(TEXT)}, with texts to pretrain on")
    (out / "validation").mkdir(parents=True, exist_ok=True)
    with lzma.open(out / "validation" / "held_out.jsonl.xz", "wt", encoding="utf-8") as opened:
        for text in held:
            opened.write(json.dumps({"text": text}) + "\n")
