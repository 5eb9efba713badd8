"""Recall of collection search: does it find the document with the best answer?

Documents are pieces of a book; a question is about one of them. For each question every document is asked, which gives
the document with the best answer; then the collection is searched. Recall at k is how often that document is among the
first k of the first stage. All of it runs the product's code.

    python benchmarks/collection.py --documents 100 --words 1000 --out out/collection
    python benchmarks/collection.py --folder contracts --questions questions.txt    # your own texts and questions
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from vcc.commands.shared.collection import index_job
from vcc.commands.shared.documents import DEFAULT_READ_LIMITS
from vcc.documents.formats.read import read_text
from vcc.documents.shipped import load_asker
from vcc.documents.store import Store
from vcc.fleet.collection import Collection
from vcc.fleet.run import Executor, run, work_folder
from vcc.fleet.shards import Shards
from vcc.fleet.sources import find_items

BOOK = Path(__file__).parents[1] / "examples" / "wuthering-heights.txt"
QUESTIONS = (
    "What is the name of Mr. Heathcliff's dwelling?",
    "What illness did Mrs. Linton have?",
    "Who is Joseph?",
    "What did Mr. Earnshaw bring from Liverpool?",
    "Who is Hareton's father?",
    "Where does Edgar Linton live?",
    "What is the name of Heathcliff's son?",
    "Who bit Catherine's ankle?",
    "Who tells the story to Mr. Lockwood?",
    "What scratched at the window in the night?",
    "How did Hindley die?",
    "Who is buried next to Catherine?",
    "Where did Isabella go when she left the Heights?",
    "Who taught Hareton to read?",
    "What day was Catherine buried?",
    "What is the doctor's name?",
)
AT = (1, 3, 5, 10, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--words", type=int, default=1000, help="words per document")
    parser.add_argument("--folder", type=Path, help="folder of your own texts")
    parser.add_argument("--questions", type=Path, help="file with one question per line")
    parser.add_argument("--model")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="collection-") as place:
        result = measured(given, Path(place))
    print(json.dumps(result, indent=1))
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "collection.json").write_text(json.dumps(result, indent=1))


def measured(given: argparse.Namespace, place: Path) -> dict[str, Any]:
    questions = given.questions.read_text().splitlines() if given.questions else QUESTIONS
    source = str(given.folder or pieces(place / "texts", given.documents, given.words))
    store, asker = Store(place / "indexes"), load_asker(given.model)
    job, items = index_job(given.model, DEFAULT_READ_LIMITS, store), find_items([source]).items
    table, collection = place / "documents.parquet", Collection(place)
    start = time.perf_counter()
    tally = run(job, items, table, Executor(given.workers))
    nodes = collection.build(job, items, Shards(work_folder(table)))
    indexing = time.perf_counter() - start
    start = time.perf_counter()
    leads = {}
    for item in items:
        text = read_text(item.path.removeprefix("file://"))
        found = asker.find(store.get(text, asker), questions, 1).found
        leads[item.name] = [spans[0].score if spans else -1e9 for spans in found]
    asking = time.perf_counter() - start
    start = time.perf_counter()
    hits = [[hit.item.name for hit in collection.find(asker, question, len(items))] for question in questions]
    searching = time.perf_counter() - start
    ranks = []
    for number, names in enumerate(hits):
        best = max(leads, key=lambda name: leads[name][number])  # noqa: B023
        ranks.append(names.index(best) + 1 if best in names else len(items) + 1)
    return {
        "documents": len(items),
        "tokens": tally.tokens,
        "nodes": nodes,
        "questions": len(questions),
        "indexing_seconds": round(indexing, 1),
        "first_stage_seconds_a_question": round(searching / len(questions), 3),
        "every_document_seconds_a_question": round(asking / len(questions), 2),
        "ranks": ranks,
        "recall": {k: sum(rank <= k for rank in ranks) / len(ranks) for k in AT},
    }


def pieces(folder: Path, number: int, words: int) -> Path:
    folder.mkdir()
    every = BOOK.read_text(encoding="utf-8").split()
    for i in range(min(number, len(every) // words)):
        (folder / f"{i:04d}.txt").write_text(" ".join(every[i * words : (i + 1) * words]))
    return folder


if __name__ == "__main__":
    main()
