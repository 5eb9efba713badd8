"""Is the product faster on this machine's CPU than at another commit?

    python -m benchmarks.product_before_after ../before --contract contract.txt --novel novel.txt --threads 2

Two processes, one per checkout, do the same work in turn: read a contract and ask CUAD's 41 questions (as `vcc review`
does), ask its first 4,096 tokens new questions one by one (as the service does), and read a novel. Printed: processor
seconds of both, which other programs on the machine change little, their ratio, and the bytes per token of the novel's
index. Each figure is the best of --repeats turns.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.checkouts import HERE, reply, started

NEW_QUESTIONS = (
    "Which law governs this agreement?",
    "Who may end this agreement early?",
    "When are payments due?",
    "What happens after a breach?",
)


def work(part: str, path: Path) -> dict[str, Any]:
    """Do one part of the work and return the processor seconds it took."""
    from vcc.documents.shipped import load_asker
    from vcc.documents.store import Store
    from vcc.documents.text import Part, Text
    from vcc.qa.clauses import CLAUSES

    def plain(content: str) -> Text:
        return Text(content, path.name, path.name, (Part("", 0, len(content)),))

    asker = load_asker()
    text = plain(path.read_text(encoding="utf-8"))
    if part == "load":
        return {}
    if part == "question":  # the text of its first 4,096 tokens
        ends = asker.tokenizer(text.text, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]
        text = plain(text.text[: ends[:4096][-1][1]])
    start = time.process_time()
    index = asker.index(text)
    read = time.process_time() - start
    if part == "novel":
        with tempfile.TemporaryDirectory() as folder:
            kept = Store(Path(folder)).get(text, asker)
            assert kept.folder is not None
            size = sum(file.stat().st_size for file in kept.folder.iterdir())
        return {"seconds": read, "tokens": index.tokens, "bytes a token": size / index.tokens}
    if part == "review":
        replies, _ = asker.replies_to(text, index, [clause.question for clause in CLAUSES], top=1)
        return {"seconds": time.process_time() - start, "tokens": index.tokens, "answers": spans(replies)}
    start = time.process_time()
    each = [asker.replies_to(text, index, [question], top=3)[0][0] for question in NEW_QUESTIONS]
    seconds = (time.process_time() - start) / len(NEW_QUESTIONS)
    return {"seconds": seconds, "tokens": index.tokens, "answers": spans(each)}


def spans(replies: Any) -> list[Any]:
    """The best span of each reply."""
    return [[(one.start, one.end) for one in reply.answers[:1]] for reply in replies]


def serve() -> None:
    """A child: a part of the work and a file come in, what was measured goes out, a line each."""
    for line in sys.stdin:
        part, path = json.loads(line)
        print(json.dumps(work(part, Path(path))), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?", help="a checkout of another commit")
    parser.add_argument("--contract", type=Path, help="a text file")
    parser.add_argument("--novel", type=Path, help="a text file")
    parser.add_argument("--parts", default="review,question,novel")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve()
    if given.before is None or not (given.before / "src/vcc").is_dir():
        parser.error(f"before is {given.before}: it must be a folder with src/vcc in it")
    threads = str(given.threads)
    processes = [started(__file__, checkout, OMP_NUM_THREADS=threads) for checkout in (given.before, HERE)]
    for part in given.parts.split(","):
        path = given.novel if part == "novel" else given.contract
        if path is None:
            parser.error(f"--parts has {part}: --{'novel' if part == 'novel' else 'contract'} is needed")
        for process in processes:
            reply(process, ["load", str(path)])
        found: list[list[dict[str, Any]]] = [[], []]
        for number in range(given.repeats):
            for which in (0, 1) if number % 2 else (1, 0):
                found[which].append(reply(processes[which], [part, str(path)]))
        before, now = (min(one["seconds"] for one in some) for some in found)
        old, new = found[0][0], found[1][0]
        told = f"{part}, {old['tokens']:,} tokens: before {before:.2f} s, now {now:.2f} s, {before / now:.2f} times"
        if "answers" in old:
            same = sum(a == b for a, b in zip(old["answers"], new["answers"], strict=True))
            told += f", the same best span in {same} of {len(old['answers'])}"
        if "bytes a token" in old:
            told += f", {old['bytes a token']:.0f} -> {new['bytes a token']:.0f} bytes a token"
        print(told, flush=True)


if __name__ == "__main__":
    main()
