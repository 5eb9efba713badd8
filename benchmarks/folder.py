"""Does a folder find the right document? One folder of real documents, questions that no model was trained on.

Measured: how often the right document is first (R@1), among the first five (R@5), nDCG@10, milliseconds a question, and
bytes a document. Beside the product: BM25 over documents, plain MiniLM over chunks of 150 words with a dot product, and
the ranks of both added up. Questions are split in two by their documents: the weights of the product's three scores are
learnt on one half, and every row is measured on the other.

    python -m benchmarks.folder --data DATA --minilm FOLDER                                       # all documents: a GPU
    python -m benchmarks.folder --data DATA --minilm FOLDER --documents 300 --questions 240 --longest 30000
    python -m benchmarks.folder --data DATA --model FOLDER --read 5                         # then ask the best five
    python -m benchmarks.folder --many 100000 --out out/folder     # the catalogue, repeated with noise: time and memory
    python -m benchmarks.folder --data DATA --rerank 20 --tokens 30000     # books through POST /v1/rerank of a service

What models make of documents is kept under --out, by text and model, and is not made again. Questions are timed through
`vcc.folder`'s `find`, from words to a list of documents.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import pickle
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.folder_data import Folder, load_folder, records
from tests.serve.running import running
from vcc.data.features import tokenize_text
from vcc.documents.asker import Asker
from vcc.documents.finding import (
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
from vcc.documents.ranking import batches
from vcc.documents.shipped import load_asker
from vcc.documents.store import model_hash
from vcc.fleet.collection import ABOUT, CATALOGUE, Collection
from vcc.fleet.job import Job
from vcc.fleet.sources import Item
from vcc.integrations.folder import Folder as OpenedFolder

Floats = NDArray[np.floating]
Ints = NDArray[np.integer]

CHUNK = 150  # words: what fits into MiniLM's 256 tokens
HELD_BACK = 60  # of reciprocal rank fusion
QUESTIONS = 50  # compared at a time
ASKED = (  # of a simulation
    "Which company makes the drums that the band plays?",
    "What are the symptoms of Lyme disease?",
    "Who was the first president of the university?",
    "When did the king of France sign the treaty?",
    "Why did the fox go back to the old woman in the forest?",
    "How is high blood pressure treated in children?",
    "Which team did he play for from 1998 to 2003?",
    "What is the population of the capital of Nigeria?",
    "Which law governs this agreement?",
)
SOME = 512  # documents read between two looks at what is kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--minilm", type=Path, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--model", action="append", help="folder of a wrapped model; unless given, the bundled one")
    parser.add_argument("--documents", type=int, default=10**9)
    parser.add_argument("--questions", type=int, default=10**9)
    parser.add_argument("--longest", type=int, default=10**9, help="characters of a document, at most")
    parser.add_argument("--read", type=int, default=0, help="documents that are asked for each question")
    parser.add_argument("--timed", type=int, default=200, help="questions that are timed, at most")
    parser.add_argument("--asked", type=int, default=10**9, help="with --read: questions, at most")
    parser.add_argument("--many", type=int, default=0, help="documents of a simulation")
    parser.add_argument("--rerank", type=int, default=0, help="books that are reranked")
    parser.add_argument("--tokens", type=int, default=30_000, help="with --rerank: of a book")
    parser.add_argument("--out", type=Path, default=Path("out/folder"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    name, work = "folder", measured
    if given.many or given.rerank:
        name, work = ("many", simulated) if given.many else ("rerank", reranked)
    result = work(given)
    print(json.dumps(result, indent=1))
    (given.out / f"{name}.json").write_text(json.dumps(result, indent=1))


def sampled(given: argparse.Namespace) -> Folder:
    path = given.out / f"sample-{given.documents}-{given.questions}-{given.longest}.pickle"
    if not path.exists():
        path.write_bytes(pickle.dumps(load_folder(given.data).sample(given.documents, given.questions, given.longest)))
    return pickle.loads(path.read_bytes())


def measured(given: argparse.Namespace) -> dict[str, Any]:
    folder = sampled(given)
    names = list(folder.texts)
    right = np.array([names.index(asked.document) for asked in folder.asked])
    learnt_on = np.array([zlib.crc32(asked.document.encode()) % 2 == 0 for asked in folder.asked])
    questions = [asked.question for asked in folder.asked]
    rows: dict[str, Any] = {}

    def add(name: str, scores: Floats, size: float, seconds: float = 0.0) -> None:
        rows[name] = quality(scores[~learnt_on], right[~learnt_on]) | {"bytes": round(size / len(names))}
        if seconds:
            rows[name]["ms"] = round(1000 * seconds / len(questions), 1)

    start = time.perf_counter()
    words, size = bm25(list(folder.texts.values()), questions)
    add("BM25", words, size, time.perf_counter() - start)
    if given.minilm:
        chunks, seconds, size = minilm(given, folder, questions)
        add("MiniLM chunks", chunks, size, seconds)
        add("both, ranks added", 1 / (HELD_BACK + ranks(words)) + 1 / (HELD_BACK + ranks(chunks)), size)
    for place in given.model or [None]:
        asker = load_asker(place)
        name = f"VCC, {Path(place).name if place else 'bundled model'}"
        paths = sketched(asker, folder, given.out / "sketches" / model_hash(asker)[:16])
        key = hashlib.sha256("".join(path.name for path in paths).encode()).hexdigest()[:16]
        found = opened(given.out / f"collection-{key}", names, partial(map, Sketch.load, paths), place)
        catalogue = found.collection.catalogue
        vectors = np.concatenate([question_vectors(asker, [one]) for one in questions])
        ids = [asker.qa.ids_of(one) for one in questions]
        parts = features(catalogue, vectors, ids)
        weights = Weights(*learnt(parts[learnt_on], right[learnt_on]))
        add(f"{name}, vectors", parts[..., :2].sum(-1), catalogue.size)
        add(f"{name}, words", parts[..., 2], catalogue.size)
        add(f"{name}, weights as they are", parts @ np.array(weights_of(asker)), catalogue.size)
        add(f"{name}, weights learnt", parts @ np.array(weights), catalogue.size)
        four = np.concatenate([parts, (words / words.max(1, keepdims=True).clip(min=1e-9))[..., None]], -1)
        add(f"{name}, and BM25, weights learnt", four @ learnt(four[learnt_on], right[learnt_on]), catalogue.size)
        rows[f"{name}, weights as they are"] |= timed(found, questions[: given.timed])
        rows[f"{name}, weights learnt"]["weights"] = [round(float(weight), 2) for weight in weights]
        if given.read:
            rows[f"{name}, then read"] = read_best(given, folder, asker, parts @ np.array(weights), right, ~learnt_on)
    tokens = sum(map(len, folder.texts.values())) / len(names)
    return {
        "documents": len(names),
        "characters a document": round(tokens),
        "questions": dict(Counter(a.kind for a, own in zip(folder.asked, learnt_on, strict=True) if not own)),
        "rows": rows,
    }


def ranks(scores: Floats) -> Ints:
    """Return the place of each document for each question, from 0."""
    return (-scores).argsort(1, kind="stable").argsort(1, kind="stable")


def quality(scores: Floats, right: Ints) -> dict[str, float]:
    place = np.take_along_axis(ranks(scores), right[:, None], 1)[:, 0]
    gain = np.where(place < 10, 1 / np.log2(place + 2), 0)
    shares = {"R@1": place == 0, "R@5": place < 5, "nDCG@10": gain}
    return {name: round(100 * float(share.mean()), 1) for name, share in shares.items()}


def bm25(texts: Sequence[str], questions: Sequence[str], k1: float = 1.2, b: float = 0.75) -> tuple[Floats, int]:
    """Return BM25 of whole documents over lower-case words, and the bytes of its rows."""
    rows: dict[str, list[tuple[int, int]]] = {}
    lengths = np.zeros(len(texts))
    for number, text in enumerate(texts):
        words = re.findall(r"\w+", text.lower())
        lengths[number] = len(words)
        for word, count in Counter(words).items():
            rows.setdefault(word, []).append((number, count))
    scores = np.zeros((len(questions), len(texts)))
    relative = k1 * (1 - b + b * lengths / lengths.mean())
    for own, question in zip(scores, questions, strict=True):
        for word in set(re.findall(r"\w+", question.lower())) & rows.keys():
            numbers, counts = np.array(rows[word]).T
            rarity = np.log1p((len(texts) - len(numbers) + 0.5) / (len(numbers) + 0.5))
            own[numbers] += rarity * counts * (k1 + 1) / (counts + relative[numbers])
    return scores, 5 * sum(map(len, rows.values()))


def minilm(given: argparse.Namespace, folder: Folder, questions: Sequence[str]) -> tuple[Floats, float, int]:
    """Return the best dot product of each document's chunks, the seconds of all questions, and bytes of 32 bits."""
    from transformers import AutoModel, AutoTokenizer

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = AutoTokenizer.from_pretrained(given.minilm)
    model = AutoModel.from_pretrained(given.minilm).eval().float().to(device)

    @torch.inference_mode()
    def embedded(texts: Sequence[str], at_once: int) -> Floats:
        made = []
        for first in range(0, len(texts), at_once):
            some = texts[first : first + at_once]
            batch = tokenizer(some, padding=True, truncation=True, max_length=256, return_tensors="pt").to(device)
            mask = batch["attention_mask"][..., None].float()
            mean = (model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
            made.append(torch.nn.functional.normalize(mean, dim=1).cpu().numpy())
        return np.concatenate(made)

    first, chunks = [0], []
    for text in folder.texts.values():
        words = text.split()
        chunks += [" ".join(words[at : at + CHUNK]) for at in range(0, max(len(words), 1), CHUNK)]
        first.append(len(chunks))
    key = hashlib.sha256("\0".join(chunks).encode()).hexdigest()[:16]
    path = given.out / f"minilm-{key}.npy"
    if not path.exists():
        np.save(path, embedded(chunks, 256 if device.type == "cuda" else 16).astype(np.float16))
    vectors = np.load(path).astype(np.float32)
    start = time.perf_counter()
    scores = [np.maximum.reduceat(vectors @ embedded([one], 1)[0], first[:-1]) for one in questions]
    return np.stack(scores), time.perf_counter() - start, vectors.nbytes


def sketched(asker: Asker, folder: Folder, kept: Path) -> list[Path]:
    """Return the sketches of a folder; each text is read once, those of similar lengths in a batch."""
    paths = [kept / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.safetensors" for text in folder.texts.values()]
    missing = [(path, text) for path, text in zip(paths, folder.texts.values(), strict=True) if not path.exists()]
    start, done = time.perf_counter(), 0
    missing.sort(key=lambda one: len(one[1]))
    for first in range(0, len(missing), SOME):
        some = missing[first : first + SOME]
        ids: dict[int, Ints] = {
            number: tokenize_text(text, asker.tokenizer).ids for number, (_, text) in enumerate(some)
        }
        for batch in batches(ids):
            with torch.inference_mode():
                tree = asker.qa.read([ids[number] for number in batch])
            for at, number in enumerate(batch):
                nodes = vectors_of(element(tree, at), asker.qa.config.scales)
                Sketch(*nodes, *words_of(ids[number])).save(some[number][0])
            done += sum(len(ids[number]) for number in batch)
        print(f"read {first + len(some):,} of {len(missing):,}, {done / (time.perf_counter() - start):,.0f} tokens/s")
    return paths


def opened(
    place: Path, names: Sequence[str], sketches: Callable[[], Iterable[Sketch]], model: str | None = None
) -> OpenedFolder:
    """Return what `vcc.folder` returns for documents with these sketches, without their files."""
    if not (place / ABOUT).exists():
        (place / CATALOGUE).mkdir(parents=True, exist_ok=True)
        Catalogue.write(place / CATALOGUE, sketches)
        about = {"documents": [vars(Item(name, name, 0, "")) for name in names], "catalogue": CATALOGUE}
        (place / ABOUT).write_text(json.dumps(about))
    return OpenedFolder(Collection(place), Job("index", model), [])


def timed(folder: OpenedFolder, questions: Sequence[str]) -> dict[str, float]:
    """Return milliseconds of a question, from words to the best ten documents. The first one loads the model."""
    folder.find(questions[0])
    wall, processor = [], []
    for question in questions:
        start = time.perf_counter(), processor_ms()
        folder.find(question)
        wall.append(1000 * (time.perf_counter() - start[0]))
        processor.append(processor_ms() - start[1])
    found = {"ms": np.median(wall), "ms, 95%": np.quantile(wall, 0.95), "processor ms": np.median(processor)}
    return {name: round(float(value), 1) for name, value in found.items()}


def features(catalogue: Catalogue, vectors: Floats, ids: Sequence[Ints]) -> Floats:
    """Return the three scores of every document for every question: (Q, d, 3)."""
    words = np.stack([catalogue.by_words(own) for own in ids])
    coarse = best_cosines(vectors, catalogue.coarse, catalogue.coarse_lengths, catalogue.coarse_first)
    fine = best_cosines(vectors, catalogue.fine, catalogue.fine_lengths, catalogue.fine_first)
    return np.stack([coarse, fine, words], -1)


def best_cosines(vectors: Floats, nodes: Ints, lengths: Floats, first: Ints) -> Floats:
    """Return the cosine of each document's best node for every question, as `Catalogue` has it for one: (Q, d). A
    document without nodes has 0."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    units = (
        torch.from_numpy(np.array(nodes)).to(device).float() / torch.from_numpy(np.array(lengths)).to(device)[:, None]
    )
    found = np.zeros((len(vectors), len(first) - 1), np.float32)
    there = np.flatnonzero(np.diff(first))
    for at in range(0, len(vectors), QUESTIONS):
        some = torch.from_numpy(vectors[at : at + QUESTIONS]).to(device).float()
        found[at : at + QUESTIONS, there] = np.maximum.reduceat((some @ units.T).cpu().numpy(), first[there], 1)
    return found


def learnt(parts: Floats, right: Ints, steps: int = 400) -> list[float]:
    """Return the weights of scores (Q, d, n) with which the right document is most likely, by a softmax over all
    documents."""
    scores, wanted = torch.tensor(parts).float(), torch.tensor(right)
    weights = torch.full((parts.shape[-1],), 5.0, requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=0.2)
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(scores @ weights, wanted) + 1e-4 * weights.square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return weights.detach().tolist()


def read_best(
    given: argparse.Namespace, folder: Folder, asker: Asker, scores: Floats, right: Ints, tested: NDArray[np.bool_]
) -> dict[str, Any]:
    """Ask the best documents: how often the best answer of all is from the right one, and seconds a question."""
    texts = list(folder.texts.values())
    found, start = [], time.perf_counter()
    numbers = np.flatnonzero(tested)[: given.asked]
    indexes: dict[int, Any] = {}
    for number in numbers:
        best = []
        for rank, document in enumerate(np.argsort(-scores[number], kind="stable")[: given.read].tolist()):
            text = read_data(texts[document].encode(), "a.txt")
            index = indexes.setdefault(document, None) or asker.index(text)
            indexes[document] = index
            [reply], _ = asker.replies_to(text, index, [folder.asked[number].question], 1, 0.0)
            best += [(-answer.score, rank, document) for answer in reply.answers]
        found.append(min(best)[2] == right[number] if best else False)
    seconds = (time.perf_counter() - start) / len(numbers)
    return {"R@1": round(100 * float(np.mean(found)), 1), "questions": len(numbers), "s": round(seconds, 2)}


def simulated(given: argparse.Namespace) -> dict[str, Any]:
    """Search a folder of so many documents: the sketches that are kept, as they are, then repeated with noise on their
    vectors. Words are those of the documents, so every copy holds them too."""
    model = given.model[0] if given.model else None
    asker = load_asker(model)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:  # its memory is not counted
        facts = other.submit(built, given.out, model_hash(asker)[:16], given.many).result()
    question_vectors(asker, ASKED[:1])  # what the first call sets up
    without = memory()
    folder = OpenedFolder(Collection(given.out / f"many-{given.many}"), Job("index", model), [])
    facts |= {"documents": len(folder), "memory of the model alone, MB": without}
    start = time.perf_counter()
    folder.find(ASKED[0])
    facts["first question, ms"] = round(1000 * (time.perf_counter() - start), 1)
    facts |= {"question": timed(folder, ASKED), "memory after all questions, MB": memory()}
    catalogue = folder.collection.catalogue
    facts |= {"vectors": len(catalogue.coarse) + len(catalogue.fine), "bytes": catalogue.size}
    return facts


def built(out: Path, model: str, number: int) -> dict[str, Any]:
    """Make the folder of a simulation, and return facts about it."""
    paths = sorted((out / "sketches" / model).glob("*"))
    if not paths:
        raise SystemExit(f"no sketches in {out}: run this without --many first")
    sketches = [Sketch.load(path) for path in paths]
    longest = max(len(one.fine) + len(one.coarse) for one in sketches)
    noise = np.random.default_rng(0).integers(-12, 13, (longest + 9973, sketches[0].coarse.shape[1]), np.int8)

    def noisy(number: int) -> Sketch:
        one, start = sketches[number % len(sketches)], 7919 * number % 9973
        if number < len(sketches):
            return one

        def moved(vectors: Ints) -> Ints:
            return np.clip(vectors, -115, 115) + noise[start : start + len(vectors)]

        return replace(one, coarse=moved(one.coarse), fine=moved(one.fine))

    start = processor_ms()
    opened(out / f"many-{number}", [f"{at:07d}.txt" for at in range(number)], lambda: map(noisy, range(number)))
    tokens = sum(int(one.counts.sum()) for one in sketches) / len(sketches)
    return {
        "real documents": len(sketches),
        "tokens a document": round(tokens),
        "building, processor s": round((processor_ms() - start) / 1000, 1),
    }


def reranked(given: argparse.Namespace) -> dict[str, Any]:
    """Rank books through a service's POST /v1/rerank, and time it."""
    asker, texts = load_asker(None), []
    for one in records(given.data / "books/train.jsonl.xz"):
        offsets = tokenize_text(one["text"][: 8 * given.tokens], asker.tokenizer).offsets
        if len(offsets) > given.tokens:
            texts.append(one["text"][: offsets[given.tokens - 1, 1]])
        if len(texts) == given.rerank:
            break
    seconds = []
    with TemporaryDirectory() as place, running(Path(place), OMP_NUM_THREADS=str(os.cpu_count())) as service:
        with httpx.Client(base_url=service.address, timeout=600) as client:
            for question in ("Who is the captain of the ship?", *ASKED[:3]):
                start = time.perf_counter()
                answer = client.post("/v1/rerank", json={"query": question, "documents": texts})
                seconds.append(round(time.perf_counter() - start, 2))
                assert answer.status_code == 200 and len(answer.json()["results"]) == len(texts), answer.text
        peak = service.memory()
    return {"documents": len(texts), "tokens a document": given.tokens, "seconds": seconds, "memory, MB": peak // 10**6}


def processor_ms() -> float:
    """Of all threads of this process: other programs on the machine do not change it much."""
    return 1000 * time.process_time()


def memory() -> dict[str, int]:
    """Megabytes of this process: its own, and pages of mapped files, which the system takes back when it needs them."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(lines[key].split()[0]) // 1000 for name, key in (("own", "RssAnon"), ("mapped", "RssFile"))}


if __name__ == "__main__":
    main()
