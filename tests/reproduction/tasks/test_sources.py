"""The labelled documents: nothing is in both parts, and what would give the label away is removed."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from reproduction.cuad_split import official_test
from reproduction.tasks.packed import PackedTask, items_of
from reproduction.tasks.sources import (
    SOURCES,
    TYPES,
    Labelled,
    LabelledText,
    check_parts,
    contract_type,
    without_type,
)
from reproduction.tasks.specs import CHOICES, LONG_TASKS
from tests.data.words import real_data
from tests.reproduction.tasks import tiny_tasks
from vcc.errors import DataError


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_tasks.data(tmp_path_factory.mktemp("tasks"))


@pytest.mark.parametrize("name", SOURCES)
def test_no_document_is_in_both_parts(name: str, data: Path) -> None:
    items = SOURCES[name](str(data)).items
    parts = [{one.name for one in items if one.test == test} for test in (False, True)]
    texts = [{one.document for one in items if one.test == test} for test in (False, True)]
    assert parts[0] and parts[1] and not parts[0] & parts[1] and not texts[0] & texts[1]


def test_no_piece_of_a_document_is_in_both_parts_after_packing(tmp_path: Path) -> None:
    folder = tiny_tasks.packed(tmp_path)
    for name, task in LONG_TASKS.items():
        packed = PackedTask.load(folder, task.data or name)
        parts = [items_of(packed, 64, task.pieces, test) for test in (False, True)]
        assert all(parts) and not {one.group for one in parts[0]} & {one.group for one in parts[1]}
        pieces = [{one.document.tobytes() for one in part} for part in parts]
        assert not pieces[0] & pieces[1]


def test_no_author_is_in_both_parts(data: Path) -> None:
    authors = defaultdict(list)
    for item in SOURCES["books"](str(data)).items:
        authors[item.name.split(":")[0]].append(item.test)
    assert len(authors) == 5 and all(parts in ([False] * 2, [True] * 2) for parts in authors.values())


@pytest.mark.parametrize("name", ["contracts", "tags"])
def test_official_test_contracts_are_the_test_part(name: str, data: Path) -> None:
    items = SOURCES[name](str(data)).items
    assert {one.name for one in items if one.test} == official_test(str(data))


def test_a_text_under_two_names_in_both_parts_raises() -> None:
    items = (LabelledText("a", "same", False), LabelledText("b", "same", True))
    with pytest.raises(DataError, match="both parts"):
        check_parts("x", Labelled(("0",), items))
    with pytest.raises(DataError, match="neither may be 0"):
        check_parts("x", Labelled(("0",), items[:1]))


def test_books_show_neither_header_nor_years(data: Path) -> None:
    found = SOURCES["books"](str(data))
    assert {item.label for item in found.items} == {0, 1, 2}
    assert not any("Year" in item.document or re.search(r"\b\d{4}\b", item.document) for item in found.items)
    assert {item.name: item.label for item in found.items}["A1: T01"] == 1  # of 1880


def test_contracts_do_not_name_their_type(data: Path) -> None:
    words = " ".join(str(i) for i in range(150))
    text = f"{words} This Master Supply Agreement, a joint venture contract; the Services and the supply of parts"
    shown = without_type(text)
    assert shown.startswith("100 101") and shown.endswith(
        "This Master Agreement, a contract; the Services and the supply of parts"
    )
    assert contract_type("A_1-EX-10.1-Supply Agreement") == list(TYPES).index("supply")
    assert contract_type("SupplyCo - FRANCHISE AGREEMENT") == list(TYPES).index("franchise")
    assert contract_type("A_1-EX-10.1-Supply and License Agreement") is None
    assert not any("Supply Agreement" in item.document for item in SOURCES["contracts"](str(data)).items)


def test_the_right_choice_is_among_different_ones(data: Path) -> None:
    for item in SOURCES["choices"](str(data)).items:
        question, *options = item.asked
        assert len(set(options)) == CHOICES and options[item.label] == f"w{int(question.split()[1][1:]) + 10}"


def test_statements_without_a_verdict_are_left_out(data: Path) -> None:
    items = SOURCES["pairs"](str(data)).items
    assert len(items) == 12 and {item.asked[0] for item in items if item.label == 2} == {"w0 w2", "w1 w2"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_real_documents_are_in_one_part(name: str) -> None:
    folder = str(real_data())
    found = SOURCES[name](folder)
    check_parts(name, found)
    if name in ("contracts", "tags"):
        tested = official_test(folder)
        assert all(item.test == (item.name in tested) for item in found.items)
