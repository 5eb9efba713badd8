"""The text of the small scale as token ids: packed once into compressed pieces, unpacked on the machine that trains.

A piece is a run of 16-bit ids, compressed by itself, so all pieces are unpacked side by side. The unpacked folder is a
`TokenStore`: training reads it as it reads any other corpus.
"""

import hashlib
import json
import lzma
import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction.cuad_split import official_test
from vcc.data.corpus import ENDS, FACTS, TOKENS, TokenStore
from vcc.data.features import tokenize_texts
from vcc.data.records import read_records
from vcc.errors import DataError
from vcc.files import sha256_of, write_whole

PIECE = 4_000_000  # tokens
HELD_OUT = 40  # every 40th text is held out
BATCH = 64  # texts tokenized together
PIECES = "piece-*.xz"
IDS = np.dtype("<u2")
# Two bytes belong together: the position in a pair and the last byte predict the next one.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 3, "lp": 1, "pb": 1}]


@dataclass(frozen=True)
class TextSource:
    """A set of texts. `documents`: they are in docs.jsonl; those that the training split asks about are read."""

    name: str
    field: str = "text"
    documents: bool = False


SOURCES = (
    TextSource("books"),
    TextSource("wikipedia_schools"),
    TextSource("openstax"),
    TextSource("wikitext2"),
    TextSource("sumpubmed", "document"),
    TextSource("crd3", "document"),
    TextSource("maud", "document", documents=True),
    TextSource("cuad", "document", documents=True),
)


def texts(data: Path, source: TextSource) -> Iterator[str]:
    """The texts of a source. Contracts of CUAD's published test are never among them."""
    folder = data / source.name
    split = next((file for kind in ("train", "test") for file in sorted(folder.glob(f"{kind}*.jsonl*"))), None)
    if split is None:
        return
    if not source.documents:
        yield from (record.get(source.field) for record in read_records(split))
        return
    asked = {record.get("doc_id") for record in read_records(split)}
    if source.name == "cuad":
        asked -= official_test(str(data))
    for record in read_records(next(folder.glob("docs.jsonl*"))):
        if record.get("doc_id") in asked:
            yield record.get(source.field)


def pack_tokens(data: Path, tokenizer: Any, out: Path, most: int | None = None) -> dict[str, int]:
    """Write all texts as ids under `out`/train and `out`/validation, at most `most` training tokens; -> tokens by
    source."""
    if len(tokenizer) > 2**16:
        raise DataError(f"the tokenizer has {len(tokenizer):,} words: it must have at most {2**16:,}")
    parts = {"train": PieceWriter(out / "train"), "validation": PieceWriter(out / "validation")}
    counted: dict[str, int] = {}

    def full() -> bool:
        return most is not None and parts["train"].tokens >= most

    for source in SOURCES:
        found = list(texts(data, source)) if (data / source.name).is_dir() else []
        order = np.random.default_rng(0).permutation(len(found))
        before = parts["train"].tokens
        for start in range(0, len(found), BATCH):
            if full() and parts["validation"].tokens:
                break
            some = order[start : start + BATCH]
            for i, ids in zip(some, tokenize_texts([found[j] for j in some], tokenizer), strict=True):
                split = "validation" if i % HELD_OUT == 0 else "train"
                if split == "validation" or not full():
                    parts[split].add(ids)
        counted[source.name] = parts["train"].tokens - before
    for part in parts.values():
        part.finish()
    if not all(part.tokens for part in parts.values()):
        names = ", ".join(source.name for source in SOURCES)
        raise DataError(f"{data}: must hold some of {names}, with texts to pretrain on")
    return counted


class PieceWriter:
    """Writes documents as pieces of ids, and where each document ends."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.tokens, self.pieces = folder, 0, 0
        self.ends: list[int] = []
        self.waiting: list[NDArray[Any]] = []
        self.compressing = ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0))))  # while others are tokenized
        self.writing: list[Future[None]] = []

    def add(self, ids: NDArray[Any]) -> None:
        if not len(ids):
            return
        self.tokens += len(ids)
        self.ends.append(self.tokens)
        self.waiting.append(ids.astype(IDS))
        if sum(map(len, self.waiting)) >= PIECE:
            self.write()

    def write(self) -> None:
        raw, file = np.concatenate(self.waiting).tobytes(), self.folder / f"piece-{self.pieces:03}.xz"
        self.writing.append(self.compressing.submit(compress, raw, file))
        self.pieces, self.waiting = self.pieces + 1, []

    def finish(self) -> None:
        if self.waiting:
            self.write()
        for one in self.writing:
            one.result()
        self.compressing.shutdown()
        np.save(self.folder / ENDS, np.asarray(self.ends, dtype=np.int64))


def compress(raw: bytes, file: Path) -> None:
    file.write_bytes(lzma.compress(raw, lzma.FORMAT_XZ, filters=FILTERS))


def unpack_tokens(packed: Path, folder: Path) -> TokenStore:
    """The store of a packed split, unpacked into `folder` at the first call."""
    if folder.exists():
        return TokenStore.open(folder)
    pieces = sorted(packed.glob(PIECES))
    if not pieces:
        raise DataError(f"{packed}: must hold pieces of tokens; made by --pack true with --data and --model")
    aside = folder.with_name(f"{folder.name}.partial")
    aside.mkdir(parents=True, exist_ok=True)
    ends = np.load(packed / ENDS)
    with (aside / TOKENS).open("wb") as file, ProcessPoolExecutor() as pool:
        for raw in pool.map(unpack_piece, pieces):
            file.write(raw)
    np.save(aside / ENDS, ends)
    digest = hashlib.sha256("".join(sha256_of(piece) for piece in pieces).encode()).hexdigest()
    facts = {
        "made_of": {"packed": digest},
        "dtype": IDS.str,
        "tokens": int(ends[-1]),
        "documents": len(ends),
        "report": f"{int(ends[-1]):,} tokens of {len(ends):,} documents",
        "sha256": {name: sha256_of(aside / name) for name in (TOKENS, ENDS)},
    }
    write_whole(aside / FACTS, json.dumps(facts, indent=1))
    aside.rename(folder)
    return TokenStore.open(folder)


def unpack_piece(piece: Path) -> bytes:
    return lzma.decompress(piece.read_bytes())
