"""Find documents: a `Sketch` is what finding needs of one document, a `Catalogue` the sketches of many.

A sketch holds vectors and words. The vectors are nodes of the tree that reading leaves, means of 128 and of 16 tokens
after the window layers, so reading once serves asking and finding. A question is compared with them by cosine, and with
the words of short passages by BM25. In both the best match counts: a document is as good as its best place.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from vcc.core.tree import SegmentTree, siblings
from vcc.documents.asker import Asker
from vcc.documents.index import DiskIndex, Index, MemoryIndex
from vcc.files import force, write_whole

Floats = NDArray[np.floating]
Ints = NDArray[np.integer]
NewArray = Callable[[str, tuple[int, ...], Any], Any]  # name, shape, dtype

LEVELS = 127  # of 8 bits with a sign
FINE_KEPT = 3  # of the 16-token nodes in a node of 128: those that differ most from it, which its mean hides
PASSAGE = 128  # tokens whose words are counted together
SATURATION = 1.2  # BM25's k1: how soon repetitions of a word stop counting. Passages are equally long: there is no b.
ROOTS = 256  # nodes of the coarsest scale that are taken from a tree at a time
SHORTLIST = 200  # documents whose fine nodes are compared
ROWS = 2048  # vectors compared at a time: their floats stay in the processor's cache


class Weights(NamedTuple):
    """How much the best match at each scale, and that of the words, count."""

    coarse: float
    fine: float
    words: float


# Nodes of a model that was not trained for finding say less than words. One that was names its own weights in its
# configuration, as benchmarks/folder.py has learnt them.
WEIGHTS = Weights(2.0, 2.0, 15.0)
SETTING = "finding_weights"


def weights_of(asker: Asker) -> Weights:
    """Return how much the three scores count with a model."""
    own = getattr(asker.model.config, SETTING, None)
    return WEIGHTS if own is None else Weights(*map(float, own))


@dataclass(frozen=True, eq=False)
class Sketch:
    """Vectors of 8 bits, and rows of (word, passage, count) in the order of words."""

    coarse: Ints  # (m, D)
    fine: Ints  # (k, D)
    words: Ints  # (w,) tokens
    passages: Ints  # (w,)
    counts: Ints  # (w,)

    @classmethod
    def of(cls, index: Index, asker: Asker) -> "Sketch":
        assert isinstance(index, (MemoryIndex, DiskIndex))
        tree = index.read_tree(asker.qa) if isinstance(index, MemoryIndex) else index.tree.open()
        return cls(*vectors_of(tree, asker.qa.config.scales), *words_of(index.ids))

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(getattr(self, field.name).nbytes for field in fields(self))

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, save({field.name: np.ascontiguousarray(getattr(self, field.name)) for field in fields(self)}))

    @classmethod
    def load(cls, path: Path) -> "Sketch":
        return cls(**load_file(path))


class Match(NamedTuple):
    """A document by its number, and how well it matches a question."""

    number: int
    score: float


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The sketches of many documents, in arrays that may be mapped into memory. Search is exact.

    Document i owns the coarse nodes coarse_first[i]..coarse_first[i + 1] - 1, and its fine nodes and passages likewise;
    token t the rows word_first[t]..word_first[t + 1] - 1.
    """

    coarse: Ints  # (m, D)
    coarse_lengths: Floats  # (m,) of those vectors, which 8 bits have changed
    coarse_first: Ints  # (d + 1,)
    fine: Ints  # (k, D)
    fine_lengths: Floats  # (k,)
    fine_first: Ints  # (d + 1,)
    passage_first: Ints  # (d + 1,)
    word_first: Ints  # (V + 1,)
    passages: Ints  # (r,) numbered through all documents
    counts: Ints  # (r,)

    def __len__(self) -> int:
        return len(self.coarse_first) - 1

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(getattr(self, field.name).nbytes for field in fields(self))

    @classmethod
    def of(cls, sketches: Sequence[Sketch]) -> "Catalogue":
        return cls(**filled(lambda: sketches, lambda name, shape, dtype: np.empty(shape, dtype)))

    @classmethod
    def write(cls, folder: Path, sketches: Callable[[], Iterable[Sketch]]) -> None:
        """Write the arrays to files, document by document: memory is that of one sketch. It goes through the sketches
        twice."""

        def on_disk(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
            path = folder / f"{name}.npy"
            if 0 in shape:  # cannot be mapped
                np.save(path, np.empty(shape, dtype))
                return np.empty(shape, dtype)
            return np.lib.format.open_memmap(path, "w+", dtype, shape)

        for name, array in filled(sketches, on_disk).items():
            if isinstance(array, np.memmap):
                array.flush()
            force(folder / f"{name}.npy")

    @classmethod
    def load(cls, folder: Path) -> "Catalogue":
        """Return the catalogue in a folder; large arrays are mapped, not read."""
        return cls(**{field.name: mapped(folder / f"{field.name}.npy") for field in fields(cls)})

    def find(self, vector: Floats, question: Ints, top: int, weights: Weights) -> list[Match]:
        """Return the documents that match a question best, by its vector (D,) and its tokens, best first.

        Coarse nodes and words of all documents are compared, fine nodes only of the best `SHORTLIST` by these.
        """
        coarse, words = self.by_coarse_nodes(vector), self.by_words(question)
        scores = weights.coarse * coarse + weights.words * words
        best = np.argsort(-scores, kind="stable")[: max(SHORTLIST, top)]
        totals = scores[best] + weights.fine * self.by_fine_nodes(vector, best)
        order = np.lexsort((best, -totals))[:top]
        return [Match(int(best[at]), float(totals[at])) for at in order]

    def by_coarse_nodes(self, vector: Floats) -> Floats:
        """Return the cosine of each document's best coarse node: (d,)."""
        cosines = np.empty(len(self.coarse), np.float32)
        for first in range(0, len(cosines), ROWS):
            some = slice(first, first + ROWS)
            cosines[some] = self.coarse[some].astype(np.float32) @ vector / self.coarse_lengths[some]
        return np.maximum.reduceat(cosines, self.coarse_first[:-1])

    def by_fine_nodes(self, vector: Floats, numbers: Ints) -> Floats:
        """Return the cosine of the best fine node of some documents; 0 for one that has none."""
        found = np.zeros(len(numbers), np.float32)
        for at, number in enumerate(numbers):
            own = slice(self.fine_first[number], self.fine_first[number + 1])
            if own.start < own.stop:
                found[at] = (self.fine[own].astype(np.float32) @ vector / self.fine_lengths[own]).max()
        return found

    def by_words(self, question: Ints) -> Floats:
        """Return BM25 of each document's best passage, as a share of what the question could reach: (d,)."""
        total = int(self.passage_first[-1])
        scores, reachable = np.zeros(total, np.float32), 1e-12
        for token in np.unique(question):
            first, last = self.word_first[token : token + 2] if token + 1 < len(self.word_first) else (0, 0)
            counts = self.counts[first:last].astype(np.float32)
            rarity = np.log1p((total - len(counts) + 0.5) / (len(counts) + 0.5))
            scores[self.passages[first:last]] += rarity * counts * (SATURATION + 1) / (counts + SATURATION)
            reachable += rarity * (SATURATION + 1)
        return np.maximum.reduceat(scores, self.passage_first[:-1]) / reachable


def mapped(path: Path) -> Any:
    header = 128  # bytes of an array without elements, which cannot be mapped
    return np.load(path, mmap_mode="r" if path.stat().st_size > header else None)


def filled(sketches: Callable[[], Iterable[Sketch]], new_array: NewArray) -> dict[str, Any]:
    """Return the arrays of a catalogue, filled sketch by sketch."""
    sizes: list[tuple[int, int, int]] = []
    times: Ints = np.zeros(1, np.int64)
    width = 0
    for one in sketches():
        sizes.append((len(one.coarse), len(one.fine), int(one.passages.max()) + 1))
        times, width = added(times, np.bincount(one.words)), one.coarse.shape[1]
    if not sizes:
        raise ValueError("a catalogue has at least one document")
    first = np.concatenate([np.zeros((1, 3), np.int64), np.cumsum(sizes, axis=0, dtype=np.int64)])
    nodes, details, _ = (int(number) for number in first[-1])
    rows = int(times.sum())
    made = {
        "coarse": new_array("coarse", (nodes, width), np.int8),
        "coarse_lengths": new_array("coarse_lengths", (nodes,), np.float32),
        "fine": new_array("fine", (details, width), np.int8),
        "fine_lengths": new_array("fine_lengths", (details,), np.float32),
        "passages": new_array("passages", (rows,), np.int32),
        "counts": new_array("counts", (rows,), np.uint8),
        "word_first": new_array("word_first", (len(times) + 1,), np.int64),
    }
    for name, own in zip(("coarse_first", "fine_first", "passage_first"), first.T, strict=True):
        made[name] = new_array(name, own.shape, np.int64)
        made[name][:] = own
    made["word_first"][0] = 0
    made["word_first"][1:] = np.cumsum(times)
    free = np.array(made["word_first"][:-1])  # the next row of each token
    for number, one in enumerate(sketches()):
        for name, start, vectors in (("coarse", first[number, 0], one.coarse), ("fine", first[number, 1], one.fine)):
            own = slice(start, start + len(vectors))
            made[name][own] = vectors
            made[f"{name}_lengths"][own] = np.linalg.norm(vectors.astype(np.float32), axis=1).clip(min=1)
        tokens, starts, number_of = np.unique(one.words, return_index=True, return_counts=True)
        at = np.repeat(free[tokens] - starts, number_of) + np.arange(len(one.words))
        made["passages"][at] = one.passages + first[number, 2]
        made["counts"][at] = one.counts
        free[tokens] += number_of
    return made


def added(one: Ints, other: Ints) -> Ints:
    """Return the sum of two arrays (a,) and (b,) of counts, as long as the longer one."""
    total = np.zeros(max(len(one), len(other)), np.int64)
    total[: len(one)] += one
    total[: len(other)] += other
    return total


@torch.inference_mode()
def vectors_of(tree: SegmentTree, scales: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Return the nodes of the model's coarsest scale (m, D), and the distinct ones of the scale below (k, D)."""
    coarse, fine = [], []
    for means, children in node_blocks(tree, scales):
        coarse.append(as_bytes(means))
        fine.append(as_bytes(distinct(means, children)))
    return np.concatenate(coarse), np.concatenate(fine)


def node_blocks(tree: SegmentTree, scales: tuple[int, ...]) -> Iterator[tuple[Floats, list[Floats]]]:
    """Return nodes (m, D) of length 1 at the model's coarsest scale, each with its children, some at a time.

    Padding is left out. The tree of a long document has coarser scales above those of the model. Nodes whose children
    are single tokens have none here.
    """
    depth = tree.scales.index(scales[0])
    for first in range(0, tree.means.shape[1], ROOTS):
        nodes, real = nodes_below(tree, first, depth)
        families = [nodes[:0]] * len(nodes)
        if len(scales) > 2:
            children, known = nodes_below(tree, first, depth + 1)
            each = children.reshape(len(nodes), -1, nodes.shape[1])
            families = [own[there] for own, there in zip(each, known.reshape(len(nodes), -1), strict=True)]
        yield nodes[real], [own for own, is_real in zip(families, real, strict=True) if is_real]


def nodes_below(tree: SegmentTree, first: int, depth: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the nodes (m, D) of a scale below `ROOTS` roots from the first one, and which are no padding (m,)."""
    nodes, start = tree.means[0, first : first + ROOTS], first
    for step, fan_out in enumerate(tree.fan_outs[:depth]):
        start *= fan_out
        differences = tree.differences[step].narrow(1, start, len(nodes) * fan_out)
        nodes = (nodes[:, None] - siblings(differences, fan_out)[0]).flatten(0, 1)
    real = tree.counts[depth][0, start : start + len(nodes)] > 0
    return unit(nodes.float().cpu().numpy()), real.cpu().numpy()


def element(tree: SegmentTree, number: int) -> SegmentTree:
    """Return the tree of one sequence of a batch."""
    own = slice(number, number + 1)

    def each(parts: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(part[own] for part in parts)

    return replace(
        tree,
        means=tree.means[own],
        differences=each(tree.differences),
        counts=each(tree.counts),
        positions=each(tree.positions),
    )


def distinct(means: Floats, children: Sequence[Floats]) -> Floats:
    """Return of each node's children the `FINE_KEPT` that are least like it."""
    kept = [own[np.argsort(own @ mean, kind="stable")[:FINE_KEPT]] for mean, own in zip(means, children, strict=True)]
    return np.concatenate(kept) if kept else means[:0]


def as_bytes(vectors: Floats) -> Ints:
    """Vectors of length 1 in 8 bits: each number is stored as a share of the largest one of its vector, whose length is
    restored when it is compared."""
    largest = np.maximum(np.abs(vectors).max(-1, keepdims=True, initial=0), 1e-12)
    return np.round(vectors / largest * LEVELS).astype(np.int8)


def words_of(ids: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the tokens of each passage, the passage and how often it holds the token; ordered by token."""
    ids = np.asarray(ids)
    keys = ids.astype(np.int64) << 32 | np.arange(len(ids)) // PASSAGE
    rows, counts = np.unique(keys, return_counts=True)
    return (rows >> 32).astype(np.int32), (rows & 0xFFFFFFFF).astype(np.int32), counts.clip(max=255).astype(np.uint8)


@torch.inference_mode()
def question_vectors(asker: Asker, questions: Sequence[str]) -> Floats:
    """Return the vector of each question, of length 1: (Q, D)."""
    return asker.qa.question_vectors([asker.qa.ids_of(question) for question in questions]).cpu().numpy()


def unit(vectors: Floats) -> Floats:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
