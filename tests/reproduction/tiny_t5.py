"""A tiny T5 without weights and a data folder of summaries."""

from dataclasses import replace
from pathlib import Path

from transformers import T5Config

from reproduction.small.pack import pack_for_t5
from tests.data.words import t5_like
from tests.reproduction import tiny

SMALL = replace(
    tiny.SMALL, tasks=("qmsum", "squality"), t5_steps=3, t5_batch=4, written=12, examples=3, tune_seconds=None
)


def model(folder: Path) -> Path:
    tokenizer = t5_like(f"{tiny.WORDS} question context summarize : ? .")
    tokenizer.save_pretrained(folder)
    T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=16, num_layers=3, num_decoder_layers=1, num_heads=2,
        feed_forward_proj="gated-gelu", dropout_rate=0.0, decoder_start_token_id=0,
    ).save_pretrained(folder)  # fmt: skip
    return folder


def data(folder: Path) -> Path:
    stories = [{"doc_id": f"d{i}", "document": tiny.text(11 * i, 150)} for i in range(6)]
    for name in ("qmsum", "squality"):
        tiny.write(folder / name / "docs.jsonl", stories)
        for split, chosen in (("train", range(4)), ("validation", range(4, 6))):
            records: list[dict[str, object]] = []
            for i in chosen:
                for j in range(2):
                    own = [tiny.text(i + 3 * j + k, 9 + 2 * k) for k in range(2)]
                    summary = {"summary": own[0]} if name == "qmsum" else {"summaries": own}
                    records.append({"id": f"{split}{i}{j}", "doc_id": f"d{i}", "question": f"w{j} w{i} ?", **summary})
            tiny.write(folder / name / f"{split}.jsonl", records)
    tiny.write(folder / "wikitext2" / "test.jsonl", [{"text": tiny.text(i, 300)} for i in range(50)])
    return folder


def packed(folder: Path) -> Path:
    return pack_for_t5(data(folder / "data"), str(model(folder / "t5")), folder / "packed", SMALL.tasks, megabytes=1.0)
