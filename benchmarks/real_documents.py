"""Twenty real documents, five questions each: right, right and shown, wrong and shown.

    python -m benchmarks.real_documents --folder ../documents [--model FOLDER] [--kept FOLDER] [--json results.json]

The documents come from Debian's and Python's own packages (`apt-get download`, after `apt-get update`, and `pip
download`), in the version and with the SHA-256 of real_documents.json; the packages are kept in `--folder`. The
questions, their answers and places were written down there before any of them was asked; the fifth of each document
has no answer in it. An answer is shown if it is above the model's threshold. It is right if its words agree with an
accepted answer (F1 of 0.5), or if it holds one within at most WIDER words; but not if both have numbers and none in
common. With `--kept`, indexes are kept, and a second run reads nothing again.
"""

import argparse
import gzip
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import vcc
from vcc.documents.store import Store
from vcc.tasks.metrics import normalize, word_f1

LIST = Path(__file__).with_suffix(".json")
WIDER = 25
SMALL = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety", "hundred", "thousand")
QUOTES = str.maketrans("“”‘’–", "\"\"''-")


def fetched(source: dict[str, Any], folder: Path) -> Path:
    """The archive of a document, downloaded if it is missing."""
    debian = source["archive"] == "debian"
    pattern = f"{source['package']}_*.deb" if debian else f"{source['package']}-{source['version']}.tar.gz"
    if not list(folder.glob(pattern)):
        name = f"{source['package']}{'=' if debian else '=='}{source['version']}"
        words = ["apt-get", "download"] if debian else [
            *(sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation")
        ]  # fmt: skip
        subprocess.run([*words, name], cwd=folder, check=True)
    [path] = folder.glob(pattern)
    return path


def extracted(source: dict[str, Any], folder: Path, place: Path) -> Path:
    """The document as a plain file."""
    archive = fetched(source, folder)
    if source["archive"] == "debian":
        process = subprocess.run(["dpkg-deb", "--fsys-tarfile", archive], capture_output=True, check=True)
        whole = place / "all.tar"
        whole.write_bytes(process.stdout)
        name = f"./{source['file']}"
    else:
        whole, name = archive, source["file"]
    with tarfile.open(whole) as members:
        content = members.extractfile(name)
        assert content is not None
        data = content.read()
    if name.endswith(".gz"):
        name, data = name.removesuffix(".gz"), gzip.decompress(data)
    found = hashlib.sha256(data).hexdigest()  # a package differs by processor, its documents do not
    if found != source["sha256"]:
        raise SystemExit(f"{name} in {archive} has SHA-256 {found}: it must be {source['sha256']}")
    path = place / Path(name).name
    path.write_bytes(data)
    return path


def is_right(said: str, answers: list[str]) -> bool:
    """Whether an answer agrees with an accepted one, or holds one and little else. Signs without words are compared as
    they are."""
    said = said.translate(QUOTES)
    for answer in answers:
        if other_numbers(said, answer):
            continue
        if not normalize(answer):
            if answer.strip() in said and len(said.split()) <= 3:
                return True
        elif word_f1(said, answer) >= 0.5 or (
            f" {normalize(answer)} " in f" {normalize(said)} " and len(said.split()) <= WIDER
        ):
            return True
    return False


def other_numbers(said: str, answer: str) -> bool:
    """Whether both have numbers, but none in common: "nine years" is not "thirty years"."""
    mine, theirs = numbers_in(said), numbers_in(answer)
    return bool(mine and theirs) and not mine & theirs


def numbers_in(text: str) -> set[str]:
    words = re.findall(r"[a-z]+|\d+(?:[.,:]\d+)*", text.lower())
    spelled = {word: str(i) for i, word in enumerate(SMALL)} | {word: word for word in TENS}
    return {spelled.get(word, word) for word in words if word in spelled or word[0].isdigit()}


def in_text(answers: list[str], text: str) -> bool:
    """Whether one of the answers stands in the text, whatever its blanks."""
    flat = "".join(text.split()).lower()
    return any("".join(answer.split()).lower() in flat for answer in answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the packages are kept")
    parser.add_argument("--model", help="folder of a model; the bundled one unless given")
    parser.add_argument("--check", action="store_true", help="only check that the answers stand in the documents")
    parser.add_argument("--kept", type=Path, help="keep indexes in this folder")
    parser.add_argument("--json", type=Path, help="write every answer to this file")
    parser.add_argument("--documents", type=int, default=20, help="ask only the first ones")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for source in json.loads(LIST.read_text(encoding="utf-8"))[: given.documents]:
        with tempfile.TemporaryDirectory() as place:
            document = vcc.read(extracted(source, given.folder, Path(place)))
        if given.check:
            for one in source["questions"]:
                if one["answers"] and not in_text(one["answers"], document.text):
                    print(f"{source['file']}: {one['answers']} is not in the text")
            continue
        document.model, document.store = given.model, Store(given.kept) if given.kept else None
        replies = document.ask_all([one["question"] for one in source["questions"]], top=1)
        for one, reply in zip(source["questions"], replies, strict=True):
            best = next(iter(reply.all_answers), None)
            row = {
                "file": source["file"],
                "question": one["question"],
                "answers": one["answers"],
                "said": best.text if best else "",
                "score": best.score if best else 0.0,
                "place": best.place if best else "",
                "shown": bool(reply.answers),
                "right": best is not None and is_right(best.text, one["answers"]),
            }
            rows.append(row)
            mark = "right" if row["right"] else "wrong" if one["answers"] else "none"
            shown = "shown" if row["shown"] else ""
            print(f"{mark:5} {shown:5} {row['score']:.2f} {one['question']} -> {row['said'][:90]!r}", flush=True)
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1, ensure_ascii=False))
    if rows:
        print(summary(rows))


def summary(rows: list[dict[str, Any]]) -> str:
    asked = [row for row in rows if row["answers"]]
    absent = [row for row in rows if not row["answers"]]
    right = sum(row["right"] for row in asked)
    right_shown = sum(row["right"] and row["shown"] for row in asked)
    wrong_shown = sum(not row["right"] and row["shown"] for row in asked)
    none_shown = sum(row["shown"] for row in absent)
    share = 100 / max(len(asked), 1)
    return (
        f"{len(asked)} questions: right {right} ({share * right:.0f}%), right and shown {right_shown} "
        f"({share * right_shown:.0f}%), wrong and shown {wrong_shown} ({share * wrong_shown:.0f}%); "
        f"{len(absent)} without an answer: shown {none_shown}"
    )


if __name__ == "__main__":
    main()
