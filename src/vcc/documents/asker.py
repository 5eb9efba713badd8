"""Ask a document: it is read once into an `Index`, and every question is a small pass over that.

A question sits in a window of its own, so the first layers' states of the document and its tree do not depend on it.
The tokens are those of training: [CLS] question [SEP] as VIPs; as context document [SEP] or, if the model's
configuration says so, [CLS] window [SEP] for every window. A model trained for it takes a second look at what it found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vcc.core.cut import Cut
from vcc.core.rows import Rows
from vcc.core.tree import SegmentTree, build_tree, flatten_tree, project_tree
from vcc.data.answers import ScoredSpan, apart, best_spans
from vcc.data.features import Frame, tokenize_text
from vcc.data.framing import framed, framed_places
from vcc.documents.answers import Reply, answer_at, merge_overlaps
from vcc.documents.layer_view import Floats, LayerView, openness_of
from vcc.documents.text import Text
from vcc.encode import Step, ask, run_windows
from vcc.errors import DocumentError, ModelError
from vcc.hosts.long_input import LongInputEncoder, Wrapped, find_encoder
from vcc.qa.second_look import batch as window_batch
from vcc.qa.second_look import best_nodes, passages, room, window_logits

READ_AT_ONCE = 8192  # tokens between two steps of the progress bar
ASKED_AT_ONCE = {"cpu": 2**25, "cuda": 2**30}  # bytes of a batch's trees; a CPU is no faster with more
UNLIKELY = 0.01  # a second answer with a smaller score is none
CANDIDATES = 20  # spans that share their probability with "no answer"
LONGEST_ANSWER = 256  # tokens
NODES = 40  # that may point to passages
WINDOWS_AT_ONCE = 64  # of a second look
# Of the model's configuration:
LEAD = "answer_lead"  # how far an answer must lead over "no answer"; else 0
CLAUSE_LEAD = "clause_lead"  # the same for the questions of `vcc review`; else as above
FRAMED = "framed_windows"  # whether each window of a document stands between special tokens
LOOKS = "second_looks"  # passages of a document, at most, that are read again with the question; else none

Ints = NDArray[np.integer]
Progress = Callable[[int, int], None]  # tokens read or questions asked, and all of them


@dataclass(frozen=True, eq=False)
class Index:
    """A document as a model has read it: all that asking needs."""

    tree: SegmentTree  # of one sequence: the document and what the tokenizer puts after it
    offsets: Ints  # (n, 2) first and last + 1 character of each token of the document
    ids: Ints  # (n,) those tokens
    seconds: float  # reading took

    @property
    def tokens(self) -> int:
        return len(self.offsets)


@dataclass(frozen=True)
class Facts:
    """How a document was read and asked."""

    tokens: int  # of the document, all of them read
    questions: int
    rows: tuple[tuple[int, int], ...]  # (layer, rows of document and question it saw), for each compressed layer
    reading: float  # seconds; 0 where the index was there
    asking: float  # seconds for all questions together
    passages: int = 0  # read again, in windows, for all questions together

    @property
    def compression(self) -> float:
        """Tokens a row in the compressed layers."""
        return self.tokens * len(self.rows) / max(sum(rows for _, rows in self.rows), 1)

    def shown(self) -> dict[str, str]:
        """For people."""
        layers = ", ".join(f"{rows:,} in layer {layer + 1}" for layer, rows in self.rows)
        if len({rows for _, rows in self.rows}) == 1:
            first, last = self.rows[0][0] + 1, self.rows[-1][0] + 1
            layers = f"{self.rows[0][1]:,} in " + (f"layers {first} to {last}" if first < last else f"layer {first}")
        reading = f"{self.reading:.2f} s" if self.reading else "from the index"
        return {
            "tokens": f"{self.tokens:,}, none cut",
            "rows": layers or "none",
            **({"read again": f"{self.passages:,} passage{'s' * (self.passages > 1)}"} if self.passages else {}),
            "compression": f"{self.compression:.1f}x",
            "reading": reading,
            "asking": f"{self.asking:.2f} s",
        }

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            "tokens": self.tokens,
            "tokens_cut": 0,
            "questions": self.questions,
            "rows": [{"layer": layer + 1, "rows": rows} for layer, rows in self.rows],
            "passages_read_again": self.passages,
            "compression": round(self.compression, 2),
            "reading_seconds": round(self.reading, 3),
            "asking_seconds": round(self.asking, 3),
        }


@dataclass(frozen=True, eq=False)
class Asker:
    """A wrapped question-answering model and its tokenizer. `index` once, `ask` many times."""

    model: Any
    tokenizer: Any

    def __post_init__(self) -> None:
        name = type(self.model).__name__
        if not isinstance(self.model, Wrapped):
            raise ModelError(f"{name} is not wrapped by VCC: make it with vcc.wrap and save it")
        modules: dict[str, Any] = dict(self.model.named_children())  # type: ignore[attr-defined]
        head = modules.get("qa_outputs")
        if not isinstance(head, torch.nn.Linear) or head.out_features != 2:
            raise ModelError(f"{name} has no linear layer qa_outputs with 2 outputs: give a ...ForQuestionAnswering")
        if self.model.vcc.vip_window != "own":
            raise ModelError(
                f'{name} was made with vip_window={self.model.vcc.vip_window!r}: only with "own" is the reading of a '
                "document independent of the question"
            )
        if not self.tokenizer.is_fast:
            raise ModelError(f"{type(self.tokenizer).__name__} gives no character offsets: a fast tokenizer is needed")
        if self.tokenizer.cls_token_id is None:
            raise ModelError(f"{type(self.tokenizer).__name__} has no CLS token, which stands for no answer")

    @cached_property
    def reader(self) -> LongInputEncoder:
        return find_encoder(self.model)

    @cached_property
    def host(self) -> Any:
        return self.reader.host

    @cached_property
    def frame(self) -> Frame:
        return Frame.of(self.tokenizer)

    @property
    def framed(self) -> bool:
        return bool(getattr(self.model.config, FRAMED, False))

    @property
    def lead(self) -> float:
        """How far an answer must lead over "no answer"."""
        return float(getattr(self.model.config, LEAD, None) or 0.0)

    @property
    def clause_lead(self) -> float:
        """The same for the questions of `vcc review`, which the model may know by heart."""
        return float(getattr(self.model.config, CLAUSE_LEAD, self.lead))

    def places(self, n: int) -> Ints:
        """Where the n tokens of a document stand among those that are read, (n,)."""
        return framed_places(n, self.reader.vcc_settings.window, self.frame) if self.framed else np.arange(n)

    @torch.inference_mode()
    def index(self, document: Text, progress: Progress = lambda done, total: None) -> Index:
        """Read the whole document, some windows at a time."""
        start = time.perf_counter()
        text = tokenize_text(document.text, self.tokenizer)
        if not len(text.ids):
            raise DocumentError(document.source, "holds no text that the tokenizer knows")
        config, total = self.reader.vcc_settings, len(text.ids)
        ids = framed(text.ids, config.window, self.frame) if self.framed else [*text.ids, *self.frame.after]
        ids = np.asarray(ids)
        step = max(READ_AT_ONCE // config.window, 1) * config.window
        parts: list[Rows] = []
        progress(0, total)
        for first in range(0, len(ids), step):
            rows = self.rows(ids[None, first : first + step], self.frame.second_type, first)
            parts += run_windows(self.host, [rows], config)
            progress(min(first + step, total), total)
        whole = Rows(
            torch.cat([part.hidden for part in parts], 1),
            torch.cat([part.counts for part in parts], 1),
            torch.cat([part.positions for part in parts], 1),
        )
        return Index(build_tree(whole, config.scales), text.offsets, text.ids, time.perf_counter() - start)

    def rows(self, ids: Ints, token_type: int, first: int, lengths: Tensor | None = None) -> Rows:
        """Embedded tokens (B, n), the first of which stands at place `first` of its text; `lengths` (B,) are real.

        A question's positions count up to 0, where the document's begin, as if one stood before the other.
        """
        device = self.model.device
        tokens = torch.as_tensor(np.ascontiguousarray(ids), dtype=torch.long, device=device)
        places = torch.arange(first, first + tokens.shape[1], device=device).expand_as(tokens)
        real, positions = torch.ones_like(tokens, dtype=torch.bool), places
        if lengths is not None:
            real, positions = places < lengths[:, None], places - lengths[:, None]
        inputs = {"input_ids": tokens}
        if token_type and self.host.has_token_types:
            inputs["token_type_ids"] = torch.full_like(tokens, token_type)
        hidden = self.host.embed(inputs, torch.where(real, places, -1))
        return Rows(hidden, real.float(), positions.float())

    def vips(self, questions: Sequence[str]) -> Rows:
        """The questions, as long as they are, with the special tokens around them: (Q, p)."""
        asked = [tokenize_text(question, self.tokenizer).ids for question in questions]
        for question, ids in zip(questions, asked, strict=True):
            if not len(ids):
                raise ValueError(f"question {question!r} holds no word")
        full = [np.concatenate([self.frame.before, ids, self.frame.between]) for ids in asked]
        padded = np.full((len(full), max(map(len, full))), self.tokenizer.pad_token_id or 0)
        for row, ids in zip(padded, full, strict=True):
            row[: len(ids)] = ids
        return self.rows(padded, 0, 0, torch.tensor([len(ids) for ids in full], device=self.model.device))

    def logits(self, index: Index, questions: Sequence[str], watch: Callable[[Step], None]) -> tuple[Tensor, Tensor]:
        """Start and end logits of the document's tokens (Q, n, 2), and of no answer (Q,)."""
        vips, tree = ask(self.host, self.vips(questions), index.tree, self.reader.vcc_settings, watch)
        head = self.model.qa_outputs
        # Nothing follows BERT's last layer and the head is linear: 2 numbers a token are added up instead of D.
        if self.host.finish_is_identity:
            logits = flatten_tree(project_tree(tree, head.weight.to(tree.means.dtype).t())).hidden + head.bias
        else:
            logits = head(self.host.finish(flatten_tree(tree).hidden.to(head.weight.dtype)))
        none = head(self.host.finish(vips.hidden[:, :1]))[:, 0].sum(1)
        return logits[:, torch.as_tensor(self.places(index.tokens), device=logits.device)].float(), none.float()

    @torch.inference_mode()
    def ask(
        self,
        document: Text,
        index: Index,
        questions: Sequence[str],
        top: int = 3,
        progress: Progress = lambda done, total: None,
        lead: float | None = None,
    ) -> tuple[tuple[Reply, ...], Facts]:
        """All questions, as many at once as memory allows. A reply without answers: the model finds none.

        `lead`: how far an answer must lead over "no answer"; unless given, as the model's configuration says.
        """
        if top < 1:
            raise ValueError(f"top {top} must be at least 1")
        start = time.perf_counter()
        replies: list[Reply] = []
        looks = 0
        seen: dict[int, int] = {}
        cut: Cut | None = None

        def watch(step: Step) -> None:
            nonlocal cut
            seen[step.layer] = max(seen.get(step.layer, 0), step.rows)
            cut = step.cut

        size = sum(part.nbytes for part in (index.tree.means, *index.tree.differences))
        some = max(1, ASKED_AT_ONCE.get(self.model.device.type, 0) // max(size, 1))
        for first in range(0, len(questions), some):
            batch = questions[first : first + some]
            logits, none = self.logits(index, batch, watch)
            found, nones, more = self.spans(index, batch, logits, none, cut, top)
            looks += more
            replies += [
                self.reply(document, index, *one, top, self.lead if lead is None else lead)
                for one in zip(batch, found, nones, strict=True)
            ]
            progress(len(replies), len(questions))
        asking = time.perf_counter() - start
        facts = Facts(index.tokens, len(questions), tuple(sorted(seen.items())), index.seconds, asking, looks)
        return tuple(replies), facts

    def spans(
        self, index: Index, questions: Sequence[str], logits: Tensor, none: Tensor, cut: Cut | None, top: int
    ) -> tuple[list[list[ScoredSpan]], list[float], int]:
        """For each question the best spans of logits (Q, n, 2) and the score of no answer, and how many passages were
        read again. `cut`: the last layer's."""
        # Some tokenizers give tokens that cover no character of their own.
        empty = torch.as_tensor(index.offsets[:, 0] >= index.offsets[:, 1])
        starts, ends = logits.cpu().masked_fill(empty[:, None], -torch.inf).unbind(2)
        most = max(CANDIDATES, top)
        found = [best_spans(*row, most, LONGEST_ANSWER) for row in zip(starts, ends, strict=True)]
        looks = int(getattr(self.model.config, LOOKS, None) or 0)
        if not looks:
            return found, none.tolist(), 0
        leads = [
            [replace(span, score=span.score - null) for span in some]
            for some, null in zip(found, none.tolist(), strict=True)
        ]
        nodes = [[] for _ in found] if cut is None else best_nodes(cut, index.tree, self.places(index.tokens), NODES)
        better, number = self.look_again(index, questions, leads, nodes, looks, most)
        return better, [0.0] * len(found), number

    def look_again(
        self,
        index: Index,
        questions: Sequence[str],
        found: Sequence[Sequence[ScoredSpan]],
        nodes: Sequence[Sequence[ScoredSpan]],
        looks: int,
        most: int,
    ) -> tuple[list[list[ScoredSpan]], int]:
        """The best spans of the passages around spans and nodes that were found, scored by their lead over no answer,
        and how many passages these are.

        A question that fills most of a window leaves no room to look: what was found for it stays.
        """
        window = self.reader.vcc_settings.window
        asked = [tokenize_text(question, self.tokenizer).ids for question in questions]
        rooms = [room(ids, self.frame, window) for ids in asked]
        rooms = [size if size >= window // 4 else 0 for size in rooms]
        chosen = passages(found, nodes, rooms, index.tokens, looks)
        better = [[] if size else list(some) for some, size in zip(found, rooms, strict=True)]
        for at in range(0, len(chosen), WINDOWS_AT_ONCE):
            some = chosen[at : at + WINDOWS_AT_ONCE]
            pairs = [(asked[i], index.ids[start : start + rooms[i]]) for i, start in some]
            given = window_batch(pairs, self.frame)
            logits = window_logits(self.model, given).cpu()
            none = logits[:, 0].sum(1).tolist()
            logits[:, 0] = -torch.inf
            for passage, row, null, first in zip(some, logits, none, given.first.tolist(), strict=True):
                by = passage.start - first
                better[passage.question] += [
                    ScoredSpan(span.first + by, span.last + by, span.score - null)
                    for span in best_spans(row[:, 0], row[:, 1], most, LONGEST_ANSWER)
                ]
        return [apart(some, most) for some in better], len(chosen)

    def reply(
        self,
        document: Text,
        index: Index,
        question: str,
        found: Sequence[ScoredSpan],
        none: float,
        top: int,
        needed: float,
    ) -> Reply:
        """The best spans; their scores are probabilities among themselves and "no answer"."""
        if not found:
            return Reply(question, ())
        chances = torch.tensor([span.score for span in found] + [none]).softmax(0).tolist()
        answers = [
            answer_at(document, question, int(index.offsets[span.first, 0]), int(index.offsets[span.last, 1]), chance)
            for span, chance in zip(found, chances, strict=False)
            if span is found[0] or chance >= UNLIKELY
        ]
        kept = merge_overlaps((answer for answer in answers if answer.text), top)
        lead = found[0].score - none
        if lead < needed:
            return Reply(question, (), nearest=kept[0] if kept and lead > 0 else None)
        return Reply(question, kept)

    @torch.inference_mode()
    def see(self, document: Text, index: Index, question: str, top: int = 3) -> tuple[LayerView, Facts]:
        """What each compressed layer opened for one question, and how much of its attention each token got."""
        start = time.perf_counter()
        steps: list[Step] = []
        logits, none = self.logits(index, [question], steps.append)
        found, nones, looks = self.spans(index, [question], logits, none, steps[-1].cut if steps else None, top)
        places = self.places(index.tokens)
        steps = [step for step in steps if step.cut is not None]
        scales = index.tree.scales
        if not steps or len(scales) < 2:
            raise ModelError(f"the model has no compressed layer: scales={scales}, {self.reader.vcc_settings}")
        cuts = [step.cut for step in steps if step.cut is not None]
        opened = [[nodes[0].cpu().numpy() for nodes in cut.opened_nodes] for cut in cuts]
        reading = LayerView(
            question,
            index.offsets,
            np.stack([openness_of(scales, nodes, index.tree.length)[places] for nodes in opened]),
            np.stack(
                [
                    token_scores(scales, nodes, [score[0].cpu().numpy() for score in cut.scores])[places]
                    for cut, nodes in zip(cuts, opened, strict=True)
                ]
            ),
            tuple(f"layer {step.layer + 1}" for step in steps),
            scales,
            self.reply(document, index, question, found[0], nones[0], top, self.lead).answers,
        )
        rows = tuple((step.layer, step.rows) for step in steps)
        return reading, Facts(index.tokens, 1, rows, index.seconds, time.perf_counter() - start, looks)


def token_scores(scales: tuple[int, ...], opened: Sequence[Ints], scores: Sequence[Floats]) -> Floats:
    """The share of the question's attention that falls on each token, from the scores of the visited nodes.

    Scores at a finer scale share out what the opened nodes had; a node's share spreads evenly over its tokens.
    """
    share = np.repeat(scores[0].astype(np.float64) / scales[0], scales[0])
    for depth in range(1, len(scores)):
        fan_out, size = scales[depth - 1] // scales[depth], scales[depth]
        visited = (opened[depth - 1][:, None] * fan_out + np.arange(fan_out)).ravel()
        tokens = (visited[:, None] * size + np.arange(size)).ravel()
        mass = share[tokens].sum()
        share[tokens] = mass * np.repeat(scores[depth] / size, size)
    return share
