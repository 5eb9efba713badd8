"""The model that comes along: its files, and that it answers."""

import json
from pathlib import Path

import pytest

import vcc
from vcc.documents.answer import Reply
from vcc.documents.shipped import SHIPPED

CONTRACT = Path(__file__).parents[2] / "examples/contract.txt"


@pytest.fixture(scope="module")
def replies() -> dict[str, Reply]:
    questions = [
        "Which law governs this agreement?",
        "When does it end?",
        "What is the warranty period?",
        "How much insurance must the distributor carry?",
        "What is the capital of France?",
    ]
    return dict(zip(questions, vcc.read(CONTRACT).ask_all(questions), strict=True))


@pytest.mark.parametrize(
    ("question", "words", "place"),
    [
        ("Which law governs this agreement?", "State of New Hampshire", "15. GENERAL · 15.3 Governing law"),
        ("When does it end?", "February 28, 2029", "13. TERM AND TERMINATION · 13.1 Term"),
        ("What is the warranty period?", "twenty-four (24) months", "10. WARRANTY · 10.1 Period"),
    ],
)
def test_it_answers_questions_of_a_contract(replies, question: str, words: str, place: str) -> None:
    best = replies[question].answers[0]
    assert words in best.text and best.place == place and best.score > 0.5


def test_a_sum_is_answered_by_a_sum(replies) -> None:
    reply = replies["How much insurance must the distributor carry?"]
    best = next(iter(reply.answers), reply.nearest)
    assert best.text == "$2,000,000 per occurrence and $5,000,000" and best.place == "12. INSURANCE · 12.1 Cover"


def test_it_knows_what_is_not_there(replies) -> None:
    assert replies["What is the capital of France?"].answers == ()


def test_its_files_are_small_and_complete() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.glob("*.safetensors")) < 50e6
    names = {path.name for path in SHIPPED.iterdir()}
    assert names >= {"README.md", "config.json", "model.safetensors", "tokenizer.json"}
    settings = json.loads((SHIPPED / "config.json").read_text())
    assert settings["vcc"]["score"] == "similarity"
    assert settings["qa"].keys() >= {"calibration", "clause_calibration", "threshold", "doubt"}
