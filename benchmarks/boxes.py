"""How many answer boxes lie on the right words, over PDFs made by different programs.

    python benchmarks/boxes.py FOLDER...        # every PDF below the folders; poppler's pdftotext must be installed

An answer here is a random run of 1 to 30 words of what VCC reads from a PDF; its boxes are those that `vcc ask --json`
and the service give. The judge is poppler, which is independent of PDFium: it lists the words inside
the boxes (those whose centre is in one). A box is right if both have the same words, compared by letters and digits,
with at most one in ten missing or extra.
"""

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from vcc.documents.formats.read import read_text
from vcc.documents.text import Text
from vcc.errors import DocumentError

ANSWERS = 20  # per document
Seen = tuple[str, float, float]  # a word of poppler's and its middle


def poppler_words(path: Path) -> dict[int, list[Seen]]:
    """Each page's words and their middles, 0 to 1, as poppler sees them."""
    out = subprocess.run(["pdftotext", "-bbox", "-cropbox", str(path), "-"], capture_output=True, check=True).stdout
    text = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "", out.decode("utf-8", "replace"))
    pages: dict[int, list[Seen]] = {}
    space = "{http://www.w3.org/1999/xhtml}"
    for number, page in enumerate(ElementTree.fromstring(text).iter(f"{space}page"), 1):
        width, height = float(page.get("width", 1)), float(page.get("height", 1))
        pages[number] = [
            (
                word.text or "",
                (float(word.get("xMin", 0)) + float(word.get("xMax", 0))) / 2 / width,
                (float(word.get("yMin", 0)) + float(word.get("yMax", 0))) / 2 / height,
            )
            for word in page.iter(f"{space}word")
        ]
    return pages


def letters(words: str) -> str:
    """Letters and digits only: programs differ in spaces, hyphens, quotes and ligatures."""
    return "".join(c for c in unicodedata.normalize("NFKD", words) if c.isalnum()).lower()


def is_right(text: Text, first: int, last: int, pages: dict[int, list[Seen]]) -> bool:
    """Whether poppler's words inside the boxes of words first..last are those words."""
    start, end = text.words[first].start, text.words[last].end
    inside = [
        word
        for box in text.boxes(start, end)
        for word, x, y in pages.get(box.page, [])
        if box.x0 <= x <= box.x1 and box.y0 <= y <= box.y1
    ]
    ours, theirs = Counter(letters(text.text[start:end])), Counter(letters("".join(inside)))
    wrong = sum(((ours - theirs) + (theirs - ours)).values())
    return wrong <= max(0.1 * sum(ours.values()), 2 if last > first else 0)


def measure(path: Path, rng: random.Random) -> tuple[int, int]:
    """The number of right answers, and of all."""
    text, pages = read_text(path), poppler_words(path)
    right = total = 0
    for _ in range(ANSWERS):
        first = rng.randrange(len(text.words))
        last = min(first + rng.randrange(30), len(text.words) - 1)
        if not letters(text.text[text.words[first].start : text.words[last].end]):
            continue
        total += 1
        right += is_right(text, first, last, pages)
    return right, total


def producer_of(path: Path) -> str:
    import pypdfium2

    with pypdfium2.PdfDocument(path) as document:
        about = document.get_metadata_dict()
    words = re.sub(r"[^A-Za-z ]", " ", about.get("Producer") or about.get("Creator") or "unknown").split()
    return " ".join(words[:2]) or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--most", type=int, default=100, help="PDFs, at most")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    if not shutil.which("pdftotext"):
        sys.exit("pdftotext is needed: install poppler-utils")
    rng = random.Random(0)
    paths = sorted({path for folder in options.folders for path in folder.rglob("*.pdf") if path.is_file()})
    rng.shuffle(paths)
    sums: dict[str, list[int]] = {}
    for path in paths[: options.most]:
        try:
            right, total = measure(path, rng)
        except (DocumentError, subprocess.CalledProcessError, ElementTree.ParseError) as error:
            print(f"  left out {path.name}: {error}")
            continue
        row = sums.setdefault(producer_of(path), [0, 0, 0])
        row[0], row[1], row[2] = row[0] + 1, row[1] + right, row[2] + total
        if right < total:
            print(f"  {path.name}: {right} of {total}")
    print(f"{'made by':32} {'PDFs':>5} {'answers':>8} {'right':>8}")
    for name, (files, right, total) in sorted(sums.items()):
        print(f"{name:32} {files:5} {total:8} {right / max(total, 1):8.1%}")
    files, right, total = (sum(row[i] for row in sums.values()) for i in range(3))
    print(f"{'all':32} {files:5} {total:8} {right / max(total, 1):8.1%}")
    if options.json:
        options.json.write_text(json.dumps({"files": files, "answers": total, "right": right, "by": sums}, indent=1))


if __name__ == "__main__":
    main()
