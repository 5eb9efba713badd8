"""A tiny checkpoint and data folder for the small scale."""

import json
from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from reproduction.small.pack import pack
from reproduction.small.settings import Small
from tests.data.words import bert_like

WORDS = " ".join(f"w{i}" for i in range(200))
SMALL = Small(
    tasks=("squad_haystack",), length=128, short=32, start_steps=2, pretrain_steps=2, answer_steps=1, tune_steps=2,
    prestart_steps=2, suffix=32, batch=4, at_once=2, examples=4, together=1, device="cpu", loaders=0, compile=False,
)  # fmt: skip


def text(start: int, words: int) -> str:
    return " ".join(f"w{(start + i * i) % 200}" for i in range(words))


def model(folder: Path) -> Path:
    tokenizer = bert_like(f"{WORDS} who what ? .")
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = dict(hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, pad_token_id=0, **sizes)
    BertModel(config).save_pretrained(folder)
    return folder


def data(folder: Path) -> Path:
    for split in ("train", "validation"):
        squad, tales, hops = [], [], []
        for i in range(12):
            context = text(i, 20)
            word = context.split()[7]
            answer = {"answers": [word], "answer_starts": [context.index(word)]}
            one = {"id": f"{split}{i}", "title": f"t{i % 4}", "context": context, "question": f"what w{i} ?", **answer}
            squad.append(one)
            tales.append({**one, "doc_id": f"d{i % 2}"})
            hops.append(hop(f"{split}{i}", i))
        write(folder / "hotpotqa" / f"{split}.jsonl", hops)
        write(folder / "squad" / f"{split}.jsonl", squad)
        write(folder / "fairytaleqa" / f"{split}.jsonl", tales)
    write(folder / "wikitext2" / "test.jsonl", [{"text": text(i, 300)} for i in range(50)])
    return folder


def hop(name: str, i: int) -> dict[str, object]:
    """A question like HotpotQA's: sentences of a paragraph but the first start with a space."""
    paragraphs = [
        [f"w{(i + 3 * p) % 200} w{p}", [f"{' ' * bool(s)}{text(i + 10 * p + s, 5)} ." for s in range(3)]]
        for p in range(4)
    ]
    word = str(paragraphs[2][1][1]).split()[1]
    facts = [[paragraphs[2][0], 1], [paragraphs[0][0], 0]]
    return {
        "id": name, "question": f"what w{i} ?", "answers": [word], "document": "", "paragraphs": paragraphs,
        "supporting_facts": facts,
    }  # fmt: skip


def write(file: Path, records: list[dict[str, object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def packed(folder: Path, tasks: tuple[str, ...] = SMALL.tasks) -> Path:
    return pack(data(folder / "data"), str(model(folder / "model")), folder / "packed", tasks, megabytes=1.0)
