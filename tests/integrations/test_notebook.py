"""What a notebook shows: reviews as DataFrames, answers and heat maps as HTML."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import vcc
from tests.documents import small_model
from vcc.cli import main
from vcc.documents.answer import ANSWER_FIELDS, Answer, Reply
from vcc.documents.document import Document
from vcc.errors import UsageError

pandas = pytest.importorskip("pandas")
QUESTIONS = ["w1 w2?", "w3?"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "files"
    place.mkdir()
    for seed in range(2):
        (place / f"{seed}.txt").write_text(small_model.text(100, seed))
    (place / "broken.pdf").write_bytes(b"%PDF-1.7 broken")
    return place


def test_a_review_is_the_table_that_the_command_writes(folder: Path, tmp_path: Path, capsys: Any) -> None:
    model = small_model.saved(tmp_path / "model")
    table = vcc.review(folder, QUESTIONS, model=model)
    assert set(ANSWER_FIELDS) <= set(table.columns)
    broken = table[table.document == "broken.pdf"]
    assert len(broken) == 1 and "PDF" in broken.iloc[0].error
    (tmp_path / "own.yaml").write_text("".join(f"- {question}\n" for question in QUESTIONS))
    asked = ["--questions", str(tmp_path / "own.yaml"), "--model", model, "--out", str(tmp_path / "a.parquet")]
    main(["review", str(folder), *asked])
    written = pandas.read_parquet(tmp_path / "a.parquet")
    columns = ["document", "question", "rank", "text", "start", "end", "page", "sure"]
    pandas.testing.assert_frame_equal(table[columns], written[columns], check_dtype=False)


@pytest.mark.parametrize("given", [([], ["w1?"]), (["a"], []), (["a"], [" "]), (["a"], [5])])
def test_a_review_of_nothing_raises(folder: Path, given: Any) -> None:
    with pytest.raises(UsageError):
        vcc.review(*given)


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.words = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.add(tag)
        if tag not in ("br", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_answers_show_themselves_and_nothing_in_them_is_run() -> None:
    answer = Answer("<b>x</b>", 5, 13, 0.5, "<i>page</i>", 1, "He said <b>x</b> & left.", sure=False)
    for shown in (answer._repr_html_(), Reply("<q>?", (), nearest=answer)._repr_html_()):
        read = Tags(shown)
        assert not read.names & {"b", "i", "q"} and "<b>x</b> & left." in read.words and "0.50" in read.words
    assert "no answer" in Tags(Reply("why?", ())._repr_html_()).words


def test_heat_maps_show_a_strip_for_each_layer() -> None:
    asker = small_model.asker()
    document = Document(small_model.document())
    index = asker.index(document.content)
    view, _ = asker.see(document.content, index, "w1 w2?")
    shown = view._repr_html_()
    assert shown.count("<svg") == len(view.layers) and Tags(shown).words.startswith("w1 w2?")
