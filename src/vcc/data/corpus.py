"""Text for pretraining: read it, drop components that the tokenizer does not fit, keep the tokens on disk.

    prepare(source, tokenizer, folder) -> TokenStore

Texts are tokenized a shard at a time, on all threads of the tokenizer, and an interrupted run goes on behind its last
shard (`vcc/data/token_shards.py`). The store is two memory-mapped files with random access: data order is a function of
(seed, i), and a resumed training run reads exactly what an uninterrupted one would.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcc.data.features import tokenize_texts
from vcc.data.records import Record, hub_rows, open_text, read_records
from vcc.data.token_shards import TokenShards, in_shards
from vcc.errors import DataError
from vcc.files import one_at_a_time, sha256_of, write_whole

PLAIN = (".txt", ".md", ".text")
RECORDS = (".jsonl", ".json", ".parquet")
TOKENS, ENDS, FACTS = "tokens.bin", "ends.npy", "facts.json"
KEPT = {"made_of", "dtype", "tokens", "documents", "report", "sha256"}  # the keys of facts.json


@dataclass(frozen=True)
class CorpusText:
    """One document and the part of the corpus it belongs to."""

    component: str
    text: str


def stream_texts(source: str, field: str = "text") -> Iterator[CorpusText]:
    """Every document of a file, a folder (plain text, JSON lines, Parquet; sub-folders too) or a hub data set.

    The component is The Pile's `meta.pile_set_name` where there is one, else the file's folder.
    """
    path = Path(source).expanduser()
    if not path.exists():
        if path.is_absolute() or source.startswith((".", "~")) or source.count("/") > 1:
            raise DataError(f"{source}: no such file or folder")
        yield from (_text(record, field, source) for record in hub_rows(source, "train", streaming=True))
        return
    found = 0
    for file in source_files(path):
        suffixes = set(file.suffixes)
        if suffixes & set(RECORDS):
            for record in read_records(file):
                yield _text(record, field, file.parent.name)
                found += 1
        elif suffixes & set(PLAIN):
            with open_text(file) as opened:
                yield CorpusText(file.parent.name, opened.read())
            found += 1
    if not found:
        raise DataError(f"{source}: must hold documents, in files that end in {', '.join(PLAIN + RECORDS)}")


def _text(record: Record, field: str, component: str) -> CorpusText:
    meta = record.fields.get("meta")
    if isinstance(meta, dict) and isinstance(meta.get("pile_set_name"), str):
        component = meta["pile_set_name"]
    return CorpusText(component, record.get(field))


# --- the paper's filter ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Component:
    """A part of the corpus, and the tokens of its first documents, the sample."""

    name: str
    documents: int = 0
    bytes: int = 0
    sample_bytes: int = 0
    sample_tokens: int = 0

    @property
    def tokens_per_byte(self) -> float:
        return self.sample_tokens / max(self.sample_bytes, 1)


@dataclass(frozen=True)
class FilterReport:
    """Which components are kept: those with at most `limit` tokens per byte (the paper: 0.3)."""

    limit: float
    components: tuple[Component, ...]

    def keeps(self, name: str) -> bool:
        return any(c.name == name and c.tokens_per_byte <= self.limit for c in self.components)

    def __str__(self) -> str:
        lines = [f"tokens per byte, at most {self.limit:g} is kept:"]
        for c in sorted(self.components, key=lambda c: c.tokens_per_byte):
            verdict = "kept" if self.keeps(c.name) else "DROPPED"
            held = f"{c.documents:,} documents, {c.bytes:,} bytes"
            lines.append(f"  {c.tokens_per_byte:.3f}  {verdict:8}{c.name} ({held})")
        dropped = [c for c in self.components if not self.keeps(c.name)]
        documents, size = sum(c.documents for c in dropped), sum(c.bytes for c in dropped)
        share = size / max(sum(c.bytes for c in self.components), 1)
        lines.append(
            f"dropped: {len(dropped)} of {len(self.components)} components, {documents:,} documents, "
            f"{100 * share:.1f}% of the bytes"
        )
        return "\n".join(lines)


def measure_components(
    texts: Iterator[CorpusText], tokenizer: Any, limit: float = 0.3, sample: int = 200
) -> FilterReport:
    """Tokens per byte of each component, on its first `sample` documents."""
    seen: dict[str, Component] = {}

    def sampled() -> Iterator[CorpusText]:
        """Count all texts, and yield those of the samples."""
        for text in texts:
            one = seen.get(text.component, Component(text.component))
            size = len(text.text.encode())
            seen[text.component] = replace(one, documents=one.documents + 1, bytes=one.bytes + size)
            if one.documents < sample:
                yield text

    for shard in in_shards(sampled(), lambda text: len(text.text)):
        for text, ids in zip(shard, tokenize_texts([text.text for text in shard], tokenizer), strict=True):
            one, size = seen[text.component], len(text.text.encode())
            seen[text.component] = replace(
                one, sample_bytes=one.sample_bytes + size, sample_tokens=one.sample_tokens + len(ids)
            )
    return FilterReport(limit, tuple(seen.values()))


# --- tokens on disk --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenStore:
    """All tokens of a corpus, document after document: document d is `tokens[ends[d - 1]:ends[d]]`."""

    tokens: NDArray[Any]  # (N,), memory-mapped
    ends: NDArray[np.int64]  # (documents,)
    report: str
    digest: str = ""  # of all of it

    @staticmethod
    def open(folder: str | Path) -> "TokenStore":
        """Check every byte against its hash: training on damaged tokens would go unnoticed."""
        folder = Path(folder)
        facts = read_facts(folder)
        for name in (TOKENS, ENDS):
            if not (folder / name).is_file() or sha256_of(folder / name) != facts["sha256"][name]:
                raise DataError(f"{folder / name} does not match its hash: delete {folder} and prepare again")
        tokens = np.memmap(folder / TOKENS, dtype=facts["dtype"], mode="r")
        ends = np.load(folder / ENDS, mmap_mode="r")
        if len(tokens) != facts["tokens"] or len(ends) != facts["documents"]:
            raise DataError(
                f"{folder}: holds {len(tokens)} tokens of {len(ends)} documents, must be {facts['tokens']} "
                f"of {facts['documents']}: damaged, delete it and prepare again"
            )
        return TokenStore(tokens, ends, facts["report"], "".join(facts["sha256"].values()))


def split_documents(store: TokenStore, share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of the training documents and of the held-out ones: about this share, evenly spaced, at least one."""
    number = len(store.ends)
    if number < 2:
        raise DataError(f"{number} document: held-out documents need at least two")
    wanted = min(max(1, round(share * number)), number - 1)
    held = np.unique(np.linspace(0, number - 1, wanted + 2)[1:-1].round().astype(np.int64))
    return np.setdiff1d(np.arange(number), held), held


def read_facts(folder: Path) -> dict[str, Any]:
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        well_formed = (
            facts.keys() >= KEPT and facts["sha256"].keys() == {TOKENS, ENDS} and isinstance(facts["made_of"], dict)
        )
    except (OSError, ValueError, RecursionError, AttributeError, TypeError) as error:
        raise DataError(f"{folder}: {FACTS} cannot be read ({error}): delete {folder} and prepare again") from error
    if not well_formed:
        raise DataError(f"{folder}: {FACTS} is damaged or of another version: delete {folder} and prepare again")
    return facts


def source_digest(source: str) -> str:
    """SHA-256 of all files of a source, by name and content; "" for a hub name."""
    path = Path(source).expanduser()
    if not path.exists():
        return ""
    digest = hashlib.sha256()
    for file in source_files(path):
        digest.update(f"{file.relative_to(path)} {sha256_of(file)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def source_files(path: Path) -> list[Path]:
    """The file itself, or the readable files of a folder."""
    if path.is_file():
        return [path]
    known = set(PLAIN + RECORDS)
    return sorted(file for file in path.rglob("*") if set(file.suffixes) & known and file.is_file())


def prepare(
    source: str,
    tokenizer: Any,
    folder: str | Path,
    *,
    field: str = "text",
    limit: float = 0.3,
    sample: int = 200,
    say: Callable[[str], None] = lambda line: None,
) -> TokenStore:
    """Filter and tokenize a corpus into a folder, or open the folder if it exists. `say` is given lines on progress.

    The folder is complete or absent: it is written under a temporary name and renamed. Among concurrent processes, one
    prepares while the others wait.
    """
    folder = Path(folder)
    if folder.exists():  # it may be read-only
        return _prepare(source, tokenizer, folder, field, limit, sample, say)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(folder.with_name(f".{folder.name}.lock")):
        return _prepare(source, tokenizer, folder, field, limit, sample, say)


def _prepare(
    source: str, tokenizer: Any, folder: Path, field: str, limit: float, sample: int, say: Callable[[str], None]
) -> TokenStore:
    wanted = {
        "source": source,
        "source_sha256": source_digest(source),
        "field": field,
        "limit": limit,
        "tokenizer": _fingerprint(tokenizer),
    }
    if folder.exists():
        there = read_facts(folder)["made_of"]
        if {**there, "source_sha256": wanted["source_sha256"]} == wanted != there:
            raise DataError(
                f"{source} has changed since {folder} was prepared from it: delete {folder} to use the new text"
            )
        if there != wanted:
            raise DataError(f"{folder}: was prepared from {there}, not {wanted}: delete it or name another folder")
        return TokenStore.open(folder)
    dtype = "uint16" if len(tokenizer) <= 2**16 else "uint32"
    end_mark = tokenizer.sep_token_id if tokenizer.cls_token_id is not None else tokenizer.eos_token_id
    aside = folder.with_name(folder.name + ".partial")
    with TokenShards.open(aside, TOKENS, dtype, {**wanted, "sample": sample}) as shards:
        if shards.documents:
            say(f"{aside} holds {shards.tokens:,} tokens of {shards.documents:,} documents: going on behind them")
        report = measured(shards, lambda: measure_components(stream_texts(source, field), tokenizer, limit, sample))
        kept = (text.text for text in stream_texts(source, field) if report.keeps(text.component))
        shards.add(kept, lambda texts: tokenize_texts(texts, tokenizer), end_mark, say)
        if not shards.documents:
            raise DataError(f"{source}: the filter drops every component\n{report}")
        shards.finish(ENDS)
    facts = {
        "made_of": wanted,
        "dtype": dtype,
        "tokens": shards.tokens,
        "documents": shards.documents,
        "report": str(report),
        "sha256": {name: sha256_of(aside / name) for name in (TOKENS, ENDS)},
    }
    write_whole(aside / FACTS, json.dumps(facts, indent=1))
    aside.rename(folder)
    return TokenStore.open(folder)


def measured(shards: TokenShards, measure: Callable[[], FilterReport]) -> FilterReport:
    """The report, kept with the shards: an interrupted run need not read the whole corpus for it again."""
    if not shards.notes:
        shards.note(asdict(measure()))
    return FilterReport(shards.notes["limit"], tuple(Component(**one) for one in shards.notes["components"]))


def _fingerprint(tokenizer: Any) -> str:
    """A digest of a tokenizer's vocabulary."""
    return hashlib.sha256(json.dumps(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()[:16]
