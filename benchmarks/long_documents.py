"""Time and memory of one document that is longer than memory: indexed on disk and asked there, by the product's code.

    python benchmarks/long_documents.py --tokens 100000,1000000,10000000 --out out/long
    python benchmarks/long_documents.py --model FOLDER     # another model than the one that comes along
    python benchmarks/long_documents.py --layers 2         # random weights of the same width, quick: for memory only

Each length runs in a process of its own. "anonymous" is memory that cannot be given back; the rest of the resident
memory is pages of the index's own files, which the system drops when it needs room.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

QUESTIONS = ("What is the name of Mr. Heathcliff's dwelling?", "What illness did Mrs. Linton have?")
BOOK = Path(__file__).parents[1] / "examples" / "wuthering-heights.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="100000,1000000,10000000")
    parser.add_argument("--model")
    parser.add_argument("--layers", type=int, help="make a random model with so many layers, half of them on windows")
    parser.add_argument("--folder", type=Path, help="where the index is written; unless given, a temporary one")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given)))
        return
    results = []
    for tokens in map(int, given.tokens.split(",")):
        command = [sys.executable, __file__, *sys.argv[1:], "--one", str(tokens)]
        results.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1]))
        print(json.dumps(results[-1]), flush=True)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "long_documents.json").write_text(json.dumps(results, indent=1))


class Memory(threading.Thread):
    """The most that this process held while it ran, in MiB, sampled."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = {"RssAnon": 0.0, "VmRSS": 0.0}
        self.stopped = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.stopped.wait(0.05):
            for line in Path("/proc/self/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in self.peak:
                    self.peak[name] = max(self.peak[name], int(value.split()[0]) / 1024)

    def stop(self) -> dict[str, int]:
        self.stopped.set()
        self.join()
        return {"anonymous_mib": round(self.peak["RssAnon"]), "resident_mib": round(self.peak["VmRSS"])}


def measured(given: argparse.Namespace) -> dict[str, Any]:
    from vcc.documents.document import Document
    from vcc.documents.shipped import load_asker
    from vcc.documents.store import Store, size_of
    from vcc.documents.text import Part, Text

    with tempfile.TemporaryDirectory(dir=given.folder, prefix="long-") as place:
        model = random_model(Path(place) / "model", given.layers) if given.layers else given.model
        load_asker(model)
        book = BOOK.read_text(encoding="utf-8")
        per_token = len(book) / 159_101  # characters a token, of the bundled model
        wanted = round(given.one * per_token)
        body = (book * (wanted // len(book) + 1))[:wanted]
        text = Text(body, "archive", "archive.txt", (Part("", 0, len(body)),))
        document = Document(text, model, Store(Path(place) / "indexes"))
        memory, start = Memory(), time.perf_counter()
        index = document.index()
        reading, read_memory = time.perf_counter() - start, memory.stop()
        memory = Memory()
        replies, facts = document.answer(QUESTIONS, 1, threshold=0.0)
        return {
            "tokens": index.tokens,
            "reading_seconds": round(reading, 1),
            "tokens_per_second": round(index.tokens / reading),
            "index_bytes": size_of(index.folder) if index.folder else 0,  # 0: it could not be stored
            "seconds_per_question": round(facts.asking / len(QUESTIONS), 2),
            "rows": facts.rows[-1][1],
            "reading": read_memory,
            "asking": memory.stop(),
            "answers": [reply.answers[0].text[:60] if reply.answers else "" for reply in replies],
        }


def random_model(folder: Path, layers: int) -> str:
    """A model of the width of the one that comes along, with its tokenizer."""
    import torch
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer, BertConfig, BertForQuestionAnswering

    import vcc
    from vcc.documents.shipped import default_model
    from vcc.qa.settings import keep_settings, load_settings

    shipped = AutoModelForQuestionAnswering.from_pretrained(default_model(), dtype=torch.float32)
    config = BertConfig.from_dict(
        {k: v for k, v in shipped.config.to_dict().items() if k not in ("vcc", "qa", "model_type", "architectures")}
    )
    config.num_hidden_layers, config.intermediate_size = layers, 384
    settings = vcc.VccConfig.from_dict({**shipped.vcc.to_dict(), "window_layers": layers // 2})
    made = vcc.wrap(BertForQuestionAnswering(config).eval(), settings)
    keep_settings(made.config, load_settings(shipped.config))
    made.save_pretrained(folder)
    AutoTokenizer.from_pretrained(default_model()).save_pretrained(folder)
    return str(folder)


if __name__ == "__main__":
    main()
