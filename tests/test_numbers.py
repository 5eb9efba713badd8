"""The README, the documentation and the model card give the numbers of docs/numbers.json, and no others."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from reproduction.cuad import PUBLISHED

ROOT = Path(__file__).parents[1]
CARD = ROOT / "src" / "vcc" / "model" / "README.md"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("numbers_script", ROOT / "docs" / "site" / "numbers.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NUMBERS = script()
SOURCE = NUMBERS.load()
VALUES = NUMBERS.values(SOURCE)


@pytest.mark.parametrize(("page", "text"), list(NUMBERS.pages(SOURCE)), ids=lambda value: str(value)[:30])
def test_a_page_has_the_numbers(page: str, text: str) -> None:
    assert (ROOT / page).read_text() == text, "python docs/site/numbers.py --write"


def test_a_wrong_number_is_noticed() -> None:
    changed = {**SOURCE, "runs": [{**run, "numbers": {**run["numbers"]}} for run in SOURCE["runs"]]}
    changed["runs"][0]["numbers"]["squad_f1"] = {**changed["runs"][0]["numbers"]["squad_f1"], "value": "99.9"}
    different = [page for page, text in NUMBERS.pages(changed) if (ROOT / page).read_text() != text]
    assert set(different) == {"README.md", "docs/results.md", "docs/numbers.md", "src/vcc/model/README.md"}


def test_the_readme_has_no_result_without_a_command() -> None:
    results = (ROOT / "README.md").read_text().split("## Results")[1].split("\n## ")[0]
    known = {part for value in VALUES.values() for part in re.findall(r"\d[\d.]*\d", value)}
    lines = [line for line in results.splitlines() if not re.match(r"\|[^0-9]*(4K|SQuAD|AUPR)", line)]  # not headings
    for name, aupr, _ in PUBLISHED:
        lines = [line for line in lines if not (name.partition(",")[0] in line and f"| {aupr} |" in line)]
    written = set(re.findall(r"(?<![\w.])\d+\.\d+|(?<=\| )\d+(?= )|\b\d+(?=%)", "\n".join(lines)))
    assert written - {"2.0"} and written - {"2.0"} <= known


def test_every_run_says_how_where_and_when_and_every_number_is_somewhere() -> None:
    placed = {name for _, template in SOURCE["places"] for name in re.findall(r"\{(\w+)\}", template)}
    assert placed == set(VALUES)
    for run in SOURCE["runs"]:
        assert run["command"].startswith(("vcc ", "python -m ")) and run["machine"] in SOURCE["machines"]
        assert re.fullmatch(r"[0-9a-f]{7,40}", run["commit"]) and (ROOT / "docs" / run["page"]).exists()
        module = re.match(r"python -m ([\w.]+)", run["command"])
        assert module is None or (ROOT / f"{module[1].replace('.', '/')}.py").exists()


def test_the_hub_reads_the_results_of_the_card() -> None:
    card = ModelCard.load(CARD)
    told = {(result.dataset_name, result.metric_type): result.metric_value for result in card.data.eval_results}
    wanted = {
        (number["card"]["dataset"], number["card"]["metric"]): float(number["value"])
        for run in SOURCE["runs"]
        for number in run["numbers"].values()
        if "card" in number
    }
    assert told == wanted and len(wanted) >= 4
    assert card.data.license == "apache-2.0" and card.data.pipeline_tag == "question-answering"


def test_the_card_names_the_licence_of_every_training_set() -> None:
    table = CARD.read_text().split("| data | what | questions | licence |")[1].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert len(rows) >= 20
    licences = r"CC BY(-SA)? [34]\.0|MIT|Apache-2\.0|BSD-3-Clause|public domain"
    for row in rows:
        assert all(re.fullmatch(licences, each) for each in row[3].split(", ")), row
