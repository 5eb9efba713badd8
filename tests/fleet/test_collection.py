"""The nodes of all documents find the documents that answer; those are asked as any document is."""

from pathlib import Path

import numpy as np
import pytest

from tests.documents import small_model
from tests.fleet.collections import contracts
from vcc.cli import main
from vcc.core.score import vip_similarity
from vcc.documents.asker import Asker
from vcc.documents.formats.read import read_text
from vcc.documents.shipped import load_asker
from vcc.documents.store import default_store
from vcc.encode import in_windows
from vcc.fleet.collection import Collection, question_vector
from vcc.fleet.sources import find_items
from vcc.fleet.words import WordTable

pytest.importorskip("usearch")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return small_model.saved(tmp_path / "model")


def test_a_folder_is_indexed_searched_and_asked(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = contracts(tmp_path / "in", 6, 1)
    assert main(["index", str(folder), "--model", model, "--workers", "1"]) == 0
    told = capsys.readouterr().err
    assert "7 documents" in told and "1 errors (1 document)" in told and "nodes to search" in told
    (place,) = (tmp_path / "cache" / "vcc" / "collections").iterdir()
    asker, collection = load_asker(model), Collection(place)
    hits = collection.find(asker, "w1 w2 ?", 6)
    assert {Path(hit.item.name).name: hit.score for hit in hits} == pytest.approx(by_hand(folder, asker, "w1 w2 ?"))
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert main(["ask", str(folder), "w1 w2 ?", "--model", model, "--documents", "2", "--top", "9"]) == 0
    shown = capsys.readouterr().out
    assert "asked the best 2 of 6 documents" in shown and hits[0].item.name in shown.replace("\n", "")
    assert main(["index", str(folder), "--model", model, "--workers", "1"]) == 0  # nothing is left to do
    assert "0 documents in" in capsys.readouterr().err


def by_hand(folder: Path, asker: Asker, question: str) -> dict[str, float]:
    """Of each document 1 / (60 + its place, from 0) by the cosine of its best node, and the same by its words."""
    vector = question_vector(asker, question)
    items = find_items([str(folder / "a"), str(folder / "b")]).items
    indexes = [asker.index(read_text(item.path.removeprefix("file://"))) for item in items]
    means = [index.tree.means[0].numpy() for index in indexes]
    cosines = [float((some @ vector / np.linalg.norm(some, axis=1)).max()) for some in means]
    by_words = WordTable.of(index.ids for index in indexes).best(asker.qa.ids_of(question), 99)
    scores = dict.fromkeys(range(len(items)), 0.0)
    for ranking in (sorted(scores, key=lambda n: -cosines[n]), by_words):
        for place, number in enumerate(ranking):
            scores[number] += 1 / (60 + place)
    return {items[number].name: score for number, score in scores.items()}


def test_nodes_come_in_the_order_in_which_the_model_opens_them(model: str) -> None:
    asker = load_asker(model)
    tree = asker.index(small_model.document()).tree
    means = tree.means[0].numpy()
    cosines = means @ question_vector(asker, "w5 w9 ?") / np.linalg.norm(means, axis=1)
    qa = asker.qa
    vips = in_windows(qa.host, qa.vips([qa.ids_of("w5 w9 ?")]), qa.config.resolved(qa.host.num_layers))
    assert np.argsort(-cosines).tolist() == vip_similarity(vips, tree.roots())[0].argsort(descending=True).tolist()
    assert default_store().folder.name == "indexes"
