"""Documents longer than memory: the tree is built in pieces on disk, and a question reads only the nodes it visits.

Vectors are kept in 6 bits a number (`vcc.qa.packed_rows`). The files are memory-mapped copy-on-write: a question
changes its own copies of the few rows and pages it touches. Coarser scales are added above the model's own until the
coarsest has few nodes.
"""

import copy
import json
import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from vcc.config import VccConfig
from vcc.core.tree import SegmentTree, read_tokens, tree_from_parts, tree_parts
from vcc.data.answers import without_overlaps
from vcc.data.framing import framed
from vcc.encode import ask, read_once
from vcc.files import force
from vcc.qa.model import READ_AT_ONCE, Asked, FirstReading, Progress, QaModel, Seen, no_progress
from vcc.qa.packed_rows import PackedRows
from vcc.qa.second_look import best_nodes
from vcc.qa.six_bits import STEPS, pack
from vcc.qa.windows import Found, Ints, best_found

ROOTS = 4096  # maximum nodes of the coarsest scale
FAN_OUT = 16  # of each added scale
OPENED = 512  # nodes of each added scale
MAP = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000 if hasattr(mmap, "MAP_POPULATE") else 0)
SHAPE = "shape.json"


def deepened(config: VccConfig, n: int) -> VccConfig:
    """The model's settings with coarser scales added for n tokens."""
    scales, budget = config.scales, config.budget
    while n / scales[0] > ROOTS:
        scales, budget = (scales[0] * FAN_OUT, *scales), (OPENED, *budget)
    return replace(config, scales=scales, budget=budget)


@dataclass(frozen=True)
class LongTree:
    """A tree on disk."""

    folder: Path

    def write(self, trees: Iterator[SegmentTree]) -> None:
        """Join the trees of consecutive pieces; all but the last have whole coarsest nodes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        shapes: dict[str, list[int]] = {}
        length = width = 0
        scales: tuple[int, ...] = ()
        with ExitStack() as files:
            opened: dict[str, IO[bytes]] = {}
            for tree in trees:
                length, scales = length + tree.length, tree.scales
                width = tree.means.shape[2]
                for name, part in stored_parts(tree).items():
                    if name not in opened:
                        opened[name] = files.enter_context((self.folder / name).open("wb"))
                        shapes[name] = [0, *part.shape[1:]]
                    opened[name].write(part.contiguous().numpy().tobytes())
                    shapes[name][0] += len(part)
        for name in shapes:
            force(self.folder / name)
        about = {"scales": scales, "length": length, "width": width, "shapes": shapes}
        (self.folder / SHAPE).write_text(json.dumps(about), encoding="utf-8")

    @contextmanager
    def opened(self) -> Iterator[Callable[[], SegmentTree]]:
        """A function that maps the tree again, as a batch of one; in-place changes do not reach the files. All files
        are opened first, so they may be removed meanwhile."""
        about = json.loads((self.folder / SHAPE).read_text(encoding="utf-8"))
        with ExitStack() as stack:
            files = {name: stack.enter_context((self.folder / name).open("rb")) for name in about["shapes"]}

            def mapped_tree() -> SegmentTree:
                parts: dict[str, Any] = {name: mapped(file, about["shapes"][name]) for name, file in files.items()}
                for name in [name for name in parts if name.endswith(STEPS)]:
                    steps, vectors = parts.pop(name), name.removesuffix(STEPS)
                    parts[vectors] = PackedRows.of(parts[vectors], steps, about["width"])
                parts["means"] = parts["means"].unpacked()[0]  # they are few
                kept = {name: part if isinstance(part, PackedRows) else part[None] for name, part in parts.items()}
                return tree_from_parts(tuple(about["scales"]), about["length"], kept)  # type: ignore[arg-type]

            yield mapped_tree

    def open(self) -> SegmentTree:
        """The tree, mapped; its differences are `PackedRows`."""
        with self.opened() as mapped_tree:
            return mapped_tree()


def stored_parts(tree: SegmentTree) -> dict[str, Tensor]:
    """The tensors of a tree of one document as they are stored, by file."""
    parts: dict[str, Tensor] = {}
    for name, part in tree_parts(tree).items():
        if part.dim() == 3:
            parts[name], parts[name + STEPS] = pack(part[0].cpu())
        else:
            parts[name] = part[0].cpu()
    return parts


def mapped(file: IO[bytes], shape: Sequence[int]) -> Tensor:
    """Numbers of a file, mapped copy-on-write: bytes, or in 32 bits."""
    pages = mmap.mmap(file.fileno(), 0, flags=MAP, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    if hasattr(mmap, "MADV_RANDOM"):
        pages.madvise(mmap.MADV_RANDOM)  # no read-ahead: nodes are scattered
    dtype = torch.uint8 if len(pages) == math.prod(shape) else torch.float32
    return torch.frombuffer(pages, dtype=dtype).view(*shape)


@torch.inference_mode()
def read_long(qa: QaModel, ids: Ints, folder: Path, progress: Progress = no_progress) -> LongTree:
    """Read tokens (n,), which may be on disk, into a tree on disk, with the memory of one piece."""
    tree = LongTree(folder)
    tree.write(read_pieces(qa, ids, deepened(qa.config, len(ids)), progress))
    return tree


def read_pieces(qa: QaModel, ids: Ints, config: VccConfig, progress: Progress = no_progress) -> Iterator[SegmentTree]:
    """The trees of consecutive pieces of tokens (n,); all but the last have whole coarsest nodes."""
    window, frame = config.window, qa.frame
    around = qa.settings.framed_windows
    room = window - len(frame.before) - len(frame.after) if around else window
    step = math.lcm(window, config.scales[0])
    at_once = READ_AT_ONCE.get(qa.device.type, 4096)
    step *= max(at_once // step, 1)
    part = max(at_once // window, 1) * window  # rows in memory at a time
    some = step // window * room  # tokens of the document in a piece
    progress(0, len(ids))
    for first in range(0, len(ids), some):
        piece = np.asarray(ids[first : first + some])
        last = first + some >= len(ids)
        after = frame.after if last else frame.after[:0]
        full = torch.as_tensor(framed(piece, window, frame) if around else np.concatenate([piece, after]))[None]
        at = first // room * window
        end = torch.tensor([at + full.shape[1]])
        pieces = (qa.rows(full[:, a : a + part], end, frame.second_type, at + a) for a in range(0, full.shape[1], part))
        yield read_once(qa.host, pieces, config)
        progress(min(first + some, len(ids)), len(ids))


@torch.inference_mode()
def best_spans_on_disk(
    qa: QaModel,
    tree: LongTree,
    ids: Ints,
    questions: Sequence[Ints],
    top: int = 1,
    progress: Progress = no_progress,
) -> Asked:
    """Like `QaModel.best_spans`, one question at a time; spans lie only around the best nodes."""
    qa = on_cpu(qa)  # the tree is too large for a GPU, and few of its nodes are visited
    settings, config, places = qa.settings, deepened(qa.config, len(ids)), qa.places(len(ids))
    most, reach = max(settings.candidates, top), qa.config.window // 2
    seen = Seen()
    with tree.opened() as mapped_tree:

        def first_reading(batch: Sequence[Ints]) -> FirstReading:
            vips, own = ask(qa.host, qa.vips(batch), mapped_tree(), config, seen, in_place=True)
            assert seen.cut is not None
            nodes = best_nodes(seen.cut, own, places, settings.nodes)
            none = qa.head(vips.hidden[:, :1]).float()
            spans: list[Found] = []
            for first, last in regions([(node.first, node.last) for node in nodes[0]], reach, len(ids)):
                tokens = qa.head(read_tokens(own, torch.as_tensor(places[first:last]))).float()
                spans += best_found(torch.cat([none, tokens], 1), [first], most, settings.longest_answer)[0]
            return FirstReading([without_overlaps(spans, most)], nodes)

        found, passages = qa.in_two_readings(first_reading, 1, ids, questions, top, progress=progress)
    return Asked(found, seen.all_rows, passages)


def on_cpu(qa: QaModel) -> QaModel:
    return qa if qa.device.type == "cpu" else QaModel(copy.deepcopy(qa.model).cpu(), qa.tokenizer)


def regions(spans: Sequence[tuple[int, int]], reach: int, n: int) -> list[tuple[int, int]]:
    """The stretches first..last - 1 around spans (first, last), merged if they meet."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted((max(first - reach, 0), min(last + 1 + reach, n)) for first, last in spans):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined
