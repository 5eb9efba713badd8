"""Sketches and catalogues: against cosines and BM25 that are worked out document by document."""

from pathlib import Path

import numpy as np
import pytest

from tests.documents import small_model
from vcc.core.tree import SegmentTree
from vcc.documents import finding
from vcc.documents.asker import Asker
from vcc.documents.finding import (
    WEIGHTS,
    Catalogue,
    Sketch,
    Weights,
    element,
    question_vectors,
    vectors_of,
    weights_of,
    words_of,
)
from vcc.documents.formats.read import read_data
from vcc.documents.index import DiskIndex, MemoryIndex
from vcc.documents.ranking import MOST_READ, relevance, worth_reading

pytestmark = pytest.mark.usefixtures("exact_indexes")

QUESTION = "w1 w2 w2 ?"
LENGTHS = (1, 7, 40, 130, 300, 700)


@pytest.fixture(scope="module")
def asker() -> Asker:
    return small_model.asker()


def texts() -> list[str]:
    return [small_model.text(length, seed) for seed, length in enumerate(LENGTHS)]


def indexes(asker: Asker) -> list[MemoryIndex]:
    return [MemoryIndex.read(read_data(text.encode(), "a.txt"), asker.qa) for text in texts()]


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def token_states(tree: SegmentTree) -> np.ndarray:
    nodes = tree.means[0]
    for difference, fan_out in zip(tree.differences, tree.fan_outs, strict=True):
        nodes = nodes.repeat_interleave(fan_out, 0) - difference[0]
    return nodes[: tree.length].numpy()


def node_means(tree: SegmentTree, scale: int) -> list[np.ndarray]:
    states = token_states(tree)
    return [states[at : at + scale].mean(0) for at in range(0, len(states), scale)]


def test_the_best_coarse_node_counts(asker: Asker) -> None:
    made = indexes(asker)
    catalogue = Catalogue.of([Sketch.of(index, asker) for index in made])
    [vector] = question_vectors(asker, [QUESTION])
    expected = [max(cosine(node, vector) for node in node_means(index.tree, 8)) for index in made]
    np.testing.assert_allclose(catalogue.by_coarse_nodes(vector), expected, atol=0.02)  # 8 bits


def test_of_the_finer_nodes_those_least_like_their_parent_are_kept(asker: Asker) -> None:
    tree = indexes(asker)[3].tree
    [vector] = question_vectors(asker, [QUESTION])
    parents, children = node_means(tree, 8), node_means(tree, 2)
    kept = []
    for number, parent in enumerate(parents):
        own = children[4 * number : 4 * number + 4]
        kept += sorted(own, key=lambda child: cosine(child, parent))[: finding.FINE_KEPT]  # noqa: B023
    _, fine = vectors_of(tree, (8, 2, 1))
    assert len(fine) == len(kept)
    for found, wanted in zip(fine, kept, strict=True):
        assert cosine(found.astype(float), wanted) > 0.999
    catalogue = Catalogue.of([Sketch.of(indexes(asker)[3], asker)])
    best = max(cosine(node, vector) for node in kept)
    assert catalogue.by_fine_nodes(vector, np.array([0]))[0] == pytest.approx(best, abs=0.02)


def test_the_words_of_the_best_passage_count(asker: Asker) -> None:
    made = indexes(asker)
    catalogue = Catalogue.of([Sketch.of(index, asker) for index in made])
    passages = [
        [list(index.ids[at : at + finding.PASSAGE]) for at in range(0, len(index.ids), finding.PASSAGE)]
        for index in made
    ]
    every = [passage for own in passages for passage in own]
    asked = set(asker.qa.ids_of(QUESTION).tolist())
    rarity = {t: np.log(1 + (len(every) - n + 0.5) / (n + 0.5)) for t in asked for n in [sum(t in p for p in every)]}

    def score(passage: list[int]) -> float:
        return sum(rarity[t] * passage.count(t) * 2.2 / (passage.count(t) + 1.2) for t in asked)

    expected = [max(map(score, own)) / (2.2 * sum(rarity.values())) for own in passages]
    np.testing.assert_allclose(catalogue.by_words(asker.qa.ids_of(QUESTION)), expected, rtol=1e-4)


def test_a_match_is_the_weighted_sum_of_all_three(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = Catalogue.of([Sketch.of(index, asker) for index in indexes(asker)])
    [vector], ids = question_vectors(asker, [QUESTION]), asker.qa.ids_of(QUESTION)
    numbers = np.arange(len(LENGTHS))
    total = (
        2 * catalogue.by_coarse_nodes(vector)
        + 3 * catalogue.by_fine_nodes(vector, numbers)
        + 5 * catalogue.by_words(ids)
    )
    found = catalogue.find(vector, ids, 99, Weights(2, 3, 5))
    assert [match.number for match in found] == np.argsort(-total).tolist()
    assert [match.score for match in found] == pytest.approx(sorted(total, reverse=True))
    monkeypatch.setattr(finding, "SHORTLIST", 2)
    assert len(catalogue.find(vector, ids, 1, WEIGHTS)) == 1


def test_a_model_may_name_its_own_weights() -> None:
    asker = small_model.asker()
    assert weights_of(asker) == WEIGHTS
    asker.model.config.finding_weights = [1, 2, 3]
    assert weights_of(asker) == Weights(1, 2, 3)


def test_files_hold_what_memory_holds(asker: Asker, tmp_path: Path) -> None:
    sketches = [Sketch.of(index, asker) for index in indexes(asker)]
    for number, one in enumerate(sketches):
        one.save(tmp_path / f"{number}.safetensors")
    (tmp_path / "catalogue").mkdir()
    paths = [tmp_path / f"{number}.safetensors" for number in range(len(sketches))]
    Catalogue.write(tmp_path / "catalogue", lambda: map(Sketch.load, paths))
    mapped, memory = Catalogue.load(tmp_path / "catalogue"), Catalogue.of(sketches)
    assert isinstance(mapped.coarse, np.memmap)
    for name, array in vars(memory).items():
        np.testing.assert_array_equal(getattr(mapped, name), array, err_msg=name)


def test_a_long_document_has_the_sketch_of_a_short_one(asker: Asker, tmp_path: Path) -> None:
    """It is read piece by piece, and its tree has coarser scales."""
    text = read_data(small_model.text(900, 5).encode(), "a.txt")
    short, long = MemoryIndex.read(text, asker.qa), DiskIndex.read(text, asker.qa)
    one, other = Sketch.of(short, asker), Sketch.of(long, asker)
    np.testing.assert_allclose(one.coarse.astype(int), other.coarse, atol=4)  # of 127; both are kept in 6 bits
    np.testing.assert_array_equal(one.words, other.words)


def test_a_token_that_no_document_holds_matches_nothing() -> None:
    ids = np.array([7, 7, 9])
    one = Sketch(np.ones((1, 4), np.int8), np.ones((0, 4), np.int8), *words_of(ids))
    catalogue = Catalogue.of([one])
    assert catalogue.by_words(np.array([8, 10, 5000])).tolist() == [0.0]
    assert catalogue.by_fine_nodes(np.ones(4), np.array([0])).tolist() == [0.0]


def test_an_element_of_a_batch_has_the_sketch_of_the_text_alone(asker: Asker) -> None:
    ids = [index.ids for index in indexes(asker)]
    tree = asker.qa.read(ids)
    for number, own in enumerate(ids):
        together = vectors_of(element(tree, number), (8, 2, 1))[0]
        np.testing.assert_allclose(together.astype(int), vectors_of(asker.qa.read([own]), (8, 2, 1))[0], atol=1)


def test_relevance_is_that_of_a_catalogue_of_the_texts(asker: Asker) -> None:
    some = texts()
    catalogue = Catalogue.of([Sketch.of(index, asker) for index in indexes(asker)])
    [vector], ids = question_vectors(asker, [QUESTION]), asker.qa.ids_of(QUESTION)
    expected = {match.number: match.score for match in catalogue.find(vector, ids, 99, WEIGHTS)}
    steps: list[tuple[int, int]] = []
    found = relevance(asker, QUESTION, [some[0], "", *some[1:]], lambda *step: steps.append(step))
    assert steps[-1][1] == len(some), "others get their turn between batches"
    assert found[1] == 0 and relevance(asker, QUESTION, []) == []
    assert [found[0], *found[2:]] == pytest.approx([expected[n] for n in range(len(some))], abs=0.02)


def test_of_a_long_text_the_places_with_the_words_are_read() -> None:
    ids = np.arange(10, 10 + 3 * MOST_READ)
    ids[2 * MOST_READ : 2 * MOST_READ + 3] = (1, 2, 3)
    read = worth_reading(ids, np.array([1, 2, 3]))
    assert len(read) <= MOST_READ and {1, 2, 3} <= set(read.tolist())
    assert worth_reading(ids[:100], np.array([1])).tolist() == ids[:100].tolist()
    assert len(worth_reading(ids, np.array([5]))) == MOST_READ, "no word matches: its beginning"
