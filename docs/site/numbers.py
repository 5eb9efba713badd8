"""The numbers of the documentation in one place: docs/numbers.json, with the command, machine and commit of each.

    python docs/site/numbers.py            # lists what disagrees
    python docs/site/numbers.py --write    # writes the values into every page, docs/numbers.md and the model card

To change a number, change its value (and the commit) in numbers.json, and write. A place is a page and a piece of its
text, in which {name} stands for a number; line breaks do not matter.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "docs" / "numbers.json"
CARD = "src/vcc/model/README.md"
HEAD = """# Numbers

Every number of the README and of the model card, with the command that measures it and the commit that recorded it.
Made by `python docs/site/numbers.py --write` from numbers.json; a test compares all pages with it.
"""
NUMBER = r"\d[\d.,]*(?: (?:/|to) \d[\d.,]*)?"


def load() -> dict[str, Any]:
    return json.loads(SOURCE.read_text(encoding="utf-8"))


def values(source: dict[str, Any]) -> dict[str, str]:
    return {name: number["value"] for run in source["runs"] for name, number in run["numbers"].items()}


def pattern(template: str) -> tuple[re.Pattern[str], list[str]]:
    """What finds the place in a page, and the names of the numbers in it, in order."""
    parts = re.split(r"\{(\w+)\}", template)
    words = [re.sub(r"(?:\\ )+", r"\\s+", re.escape(part)) for part in parts[::2]]
    return re.compile(f"({NUMBER})".join(words)), parts[1::2]


def pages(source: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every page with the values filled in."""
    known = values(source)
    texts: dict[str, str] = {}
    for page, template in source["places"]:
        text = texts.setdefault(page, (ROOT / page).read_text(encoding="utf-8"))
        found, names = pattern(template)
        matches = list(found.finditer(text))
        if not matches:
            sys.exit(f"{page} has no place like: {template.strip()}")
        for match in reversed(matches):
            for group in range(len(names), 0, -1):
                start, end = match.span(group)
                text = text[:start] + known[names[group - 1]] + text[end:]
        texts[page] = text
    texts["docs/numbers.md"] = overview(source)
    texts[CARD] = with_results(texts[CARD], source)
    yield from texts.items()


def overview(source: dict[str, Any]) -> str:
    lines = [HEAD]
    for run in source["runs"]:
        where = f"{source['machines'][run['machine']]}; commit {run['commit']}; more in [{run['page']}]({run['page']})"
        lines += [f"## {run['what']}", "", f"    {run['command']}", "", f"On {where}.", "", "| | |", "|---|---|"]
        lines += [f"| {number['what']} | {number['value']} |" for number in run["numbers"].values()] + [""]
    return "\n".join(lines).rstrip() + "\n"


def with_results(card: str, source: dict[str, Any]) -> str:
    """The model card with `model-index`, the form in which the Hub reads results."""
    lines = ["model-index:", "- name: vcc-e5-small", "  results:"]
    for run in source["runs"]:
        for number in run["numbers"].values():
            if "card" in number:
                known = number["card"]
                lines += [
                    "  - task:",
                    "      type: question-answering",
                    "    dataset:",
                    f'      name: "{known["dataset"]}"',
                ]
                lines += [f"      type: {known['type']}", "    metrics:", f"    - type: {known['metric']}"]
                lines += [f"      value: {number['value']}", f'      name: "{number["what"]}"']
    return re.sub(r"^model-index:\n.*?^---$", "\n".join(lines) + "\n---", card, count=1, flags=re.DOTALL | re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare all pages with docs/numbers.json")
    parser.add_argument("--write", action="store_true", help="write the values into the pages")
    write = parser.parse_args().write
    changed = []
    for page, text in pages(load()):
        file = ROOT / page
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            changed.append(page)
            if write:
                file.write_text(text, encoding="utf-8")
    if changed:
        print("written:" if write else "not as in docs/numbers.json:", *changed)
    sys.exit(bool(changed) and not write)


if __name__ == "__main__":
    main()
