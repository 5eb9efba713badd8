"""CUAD on one GPU: MiniLM read through VCC beside the same MiniLM in 512-token sliding windows, same training time.

    python benchmarks/cuad.py prepare --data DATA --minilm FOLDER --out prepared     # CPU: tokens and 16-bit weights
    python benchmarks/cuad.py run --prepared prepared --out results --minutes 4      # GPU: train both, score both

Both start from the same weights and have the same head: start and end logits per token, "no answer" being the logits of
the CLS token; the loss is over all gold spans. VCC reads a contract once and asks all questions of it as one batch.
"""

import argparse
import json
import lzma
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

MAX_ANSWER = 256  # tokens in a predicted span
TOP = 10  # spans kept per question
SEPARATOR = 102  # BERT's [SEP]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


# ------------------------------------------------------------------------------------------------------------- prepare


def prepare(data: Path, minilm: Path, out: Path) -> None:
    """Contracts and questions as token ids, answers as token spans; the weights in bfloat16."""
    from safetensors.torch import load_file, save_file
    from transformers import AutoTokenizer

    from vcc.data.features import token_spans, tokenize_text
    from vcc.tasks.cuad import Cuad

    out.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    for split in ("train", "validation"):
        contracts: dict[str, dict[str, Any]] = {}
        for example in Cuad().load(split, str(data)):
            contract = contracts.get(example.group)
            if contract is None:
                tokens = tokenize_text(example.document, tokenizer)
                contract = contracts[example.group] = {
                    "id": example.group, "ids": tokens.ids.tolist(), "offsets": tokens.offsets, "questions": [],
                    "text": example.document,
                }
            spans = token_spans(example.answer_spans, contract["offsets"])
            contract["questions"].append({"id": example.id, "question": example.question, "answers": example.answers,
                                          "spans": spans})
        questions = sorted({q["question"] for c in contracts.values() for q in c["questions"]})
        with lzma.open(out / f"{split}.jsonl.xz", "wt") as file:
            file.write(json.dumps({q: tokenizer(q)["input_ids"] for q in questions}) + "\n")
            for contract in contracts.values():
                contract["offsets"] = contract["offsets"].tolist() if split == "validation" else []
                contract["text"] = contract["text"] if split == "validation" else ""
                file.write(json.dumps(contract) + "\n")
        print(split, len(contracts), "contracts", sum(len(c["ids"]) for c in contracts.values()), "tokens")
    weights = load_file(minilm / "model.safetensors")
    save_file({k: v.to(torch.bfloat16) if v.is_floating_point() else v for k, v in weights.items()},
              out / "model.safetensors")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        (out / name).write_bytes((minilm / name).read_bytes())


@dataclass(frozen=True)
class Contract:
    id: str
    ids: Tensor  # (n,)
    questions: list[dict[str, Any]]
    offsets: list[list[int]]
    text: str


def load(folder: Path, split: str) -> tuple[list[Contract], dict[str, list[int]]]:
    with lzma.open(folder / f"{split}.jsonl.xz", "rt") as file:
        questions = json.loads(next(file))
        contracts = [json.loads(line) for line in file]
    return [Contract(c["id"], torch.tensor(c["ids"], dtype=torch.int32), c["questions"], c["offsets"], c["text"])
            for c in contracts], questions


def question_batch(texts: list[str], questions: dict[str, list[int]]) -> tuple[Tensor, Tensor]:
    """[CLS] question [SEP], padded: ids and mask (Q, p)."""
    ids = [torch.tensor(questions[text]) for text in texts]
    padded = nn.utils.rnn.pad_sequence(ids, batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones_like(i) for i in ids], batch_first=True)
    return padded.to(DEVICE), mask.to(DEVICE)


def gold(spans: list[list[list[int]]], n: int) -> tuple[Tensor, Tensor]:
    """Token spans of each question -> right starts and ends (Q, 1 + n); no span: place 0, the CLS token."""
    starts, ends = torch.zeros(2, len(spans), 1 + n, dtype=torch.bool)
    for i, found in enumerate(spans):
        inside = [(a, b) for a, b in found if b < n]
        starts[i, [1 + a for a, _ in inside] or [0]] = True
        ends[i, [1 + b for _, b in inside] or [0]] = True
    return starts.to(DEVICE), ends.to(DEVICE)


def any_of(logits: Tensor, right: Tensor) -> Tensor:
    """-log P(one of the right places), (Q,)."""
    return logits.logsumexp(1) - logits.masked_fill(~right, -torch.inf).logsumexp(1)


# ------------------------------------------------------------------------------------------------------------- two ways


class ReadByVcc:
    """The contract once, then all questions as one batch over its tree."""

    def __init__(self, model: Any, chunk: int = 41) -> None:
        self.model, self.chunk = model, chunk
        self.last_cuts: list[tuple[Contract, int, Tensor]] = []  # contract, first question, segments opened (Q, h)

    def gold_opened(self) -> float:
        """The share of answers whose first segment the last layer opened, in percent."""
        hits = [bool((opened[i] == span[0] // 16).any())
                for contract, at, opened in self.last_cuts
                for i, question in enumerate(contract.questions[at : at + len(opened)])
                for span in question["spans"]]
        return 100 * sum(hits) / max(len(hits), 1)

    def logits(self, contract: Tensor, ids: Tensor, mask: Tensor, watch: Any = None) -> Tensor:
        """start and end logits of CLS and of the contract's tokens: (Q, 1 + n, 2)."""
        from vcc.core.rows import Rows
        from vcc.core.tree import SegmentTree, flatten_tree
        from vcc.encode import ask, read_once
        from vcc.hosts.reader import find_reader

        reader = find_reader(self.model)
        host, config = reader.host_class(reader), reader.vcc_settings

        def rows(ids: Tensor, mask: Tensor) -> Rows:
            places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
            return Rows(host.embed({"input_ids": ids}, None), mask.float(), places.float())

        tree = read_once(host, rows(contract[None], torch.ones_like(contract[None])), config)
        vips, tree = ask(host, rows(ids, mask), tree, config, watch)
        head = self.model.qa_outputs
        weight, bias = head.weight.float(), head.bias.float()
        # The head is linear, so it may be applied to means and differences before they are added up.
        means, differences = tree.means @ weight.t(), tuple(d @ weight.t() for d in tree.differences)
        small = SegmentTree(tree.scales, tree.length, means, differences, tree.counts, tree.positions)
        none = vips.hidden[:, :1].float() @ weight.t()
        return torch.cat([none, flatten_tree(small).hidden], 1) + bias

    def losses(self, contract: Contract, questions: dict[str, list[int]], length: int) -> Iterator[Tensor]:
        ids = contract.ids[:length].to(DEVICE)
        chosen = contract.questions
        logits = self.logits(ids, *question_batch([q["question"] for q in chosen], questions))
        starts, ends = gold([q["spans"] for q in chosen], len(ids))
        yield ((any_of(logits[..., 0], starts) + any_of(logits[..., 1], ends)) / 2).mean()

    @torch.no_grad()
    def candidates(self, contract: Contract, questions: dict[str, list[int]]) -> tuple[list[list[tuple]], list[float]]:
        ids = contract.ids.to(DEVICE)
        found: list[list[tuple]] = []
        nulls: list[float] = []
        for at in range(0, len(contract.questions), self.chunk):
            texts = [q["question"] for q in contract.questions[at : at + self.chunk]]
            steps: list[Any] = []
            logits = self.logits(ids, *question_batch(texts, questions), watch=steps.append).float()
            self.last_cuts.append((contract, at, steps[-1].cut.opened_nodes[0]))
            found += spans_of(logits[:, 1:], 60)
            nulls += logits[:, 0].sum(1).tolist()
        return found, nulls


class ReadByWindows:
    """Every question with every window of 512 tokens, 256 apart."""

    def __init__(self, model: Any, batch: int = 512, stride: int = 256) -> None:
        self.model, self.batch, self.stride = model, batch, stride

    def starts(self, tokens: int, question: list[int]) -> list[int]:
        """Where the pieces of a contract start, so that with the question each fills a window."""
        return list(range(0, max(tokens - room(question), 0) + self.stride, self.stride))

    def windows(self, contract: Tensor, question: list[int], starts: list[int]) -> tuple[Tensor, Tensor]:
        """(W, 512) ids and mask: [CLS] question [SEP] piece [SEP]."""
        rows = torch.zeros(len(starts), 512, dtype=torch.int64)
        mask = torch.zeros(len(starts), 512, dtype=torch.int64)
        rows[:, : len(question)] = torch.tensor(question)
        for row, start in enumerate(starts):
            piece = contract[start : start + room(question)]
            end = len(question) + len(piece)
            rows[row, len(question) : end], rows[row, end], mask[row, : end + 1] = piece, SEPARATOR, 1
        return rows, mask

    def logits(self, rows: Tensor, mask: Tensor, types: Tensor | None = None) -> Tensor:
        out = self.model(input_ids=rows, attention_mask=mask)
        return torch.stack([out.start_logits, out.end_logits], -1).float()

    def losses(self, contract: Contract, questions: dict[str, list[int]], length: int) -> Iterator[Tensor]:
        """All windows with an answer, and as many without; from all questions of the contract."""
        ids, rows, masks, starts, ends = contract.ids[:length], [], [], [], []
        for q in contract.questions:
            question = questions[q["question"]]
            at, first = self.starts(len(ids), question), len(question)
            inside = {s: [(first + a - s, first + b - s) for a, b in q["spans"]
                          if a >= s and b < min(s + room(question), len(ids))]
                      for s in at}
            positive = [s for s in at if inside[s]]
            negative = [s for s in at if not inside[s]]
            chosen = positive + random.sample(negative, min(len(negative), max(2, len(positive))))
            new_rows, new_masks = self.windows(ids, question, chosen)
            rows += new_rows
            masks += new_masks
            starts += [[a for a, _ in inside[s]] or [0] for s in chosen]
            ends += [[b for _, b in inside[s]] or [0] for s in chosen]
        order = list(range(len(rows)))
        random.shuffle(order)
        for at in range(0, len(order), self.batch // 4):
            part = order[at : at + self.batch // 4]
            right = torch.zeros(2, len(part), 512, dtype=torch.bool)
            for i, row in enumerate(part):
                right[0, i, starts[row]] = True
                right[1, i, ends[row]] = True
            mask = torch.stack([masks[i] for i in part]).to(DEVICE)
            logits = self.logits(torch.stack([rows[i] for i in part]).to(DEVICE), mask)
            logits = logits.masked_fill(mask[..., None] == 0, -1e9)
            right = right.to(DEVICE)
            yield ((any_of(logits[..., 0], right[0]) + any_of(logits[..., 1], right[1])) / 2).mean()

    @torch.no_grad()
    def candidates(self, contract: Contract, questions: dict[str, list[int]]) -> tuple[list[list[tuple]], list[float]]:
        rows, masks, owner, shift, skip = [], [], [], [], []
        for i, q in enumerate(contract.questions):
            question = questions[q["question"]]
            at = self.starts(len(contract.ids), question)
            new_rows, new_masks = self.windows(contract.ids, question, at)
            rows.append(new_rows)
            masks.append(new_masks)
            owner += [i] * len(at)
            shift += [s - len(question) for s in at]
            skip += [len(question)] * len(at)
        all_rows, all_masks = torch.cat(rows), torch.cat(masks)
        found: list[list[tuple]] = [[] for _ in contract.questions]
        nulls = [math.inf] * len(contract.questions)
        for at in range(0, len(all_rows), self.batch):
            mask = all_masks[at : at + self.batch].to(DEVICE)
            logits = self.logits(all_rows[at : at + self.batch].to(DEVICE), mask)
            place = torch.arange(512, device=DEVICE)
            skipped = torch.tensor(skip[at : at + self.batch], device=DEVICE)
            last = mask.sum(1) - 1  # the final [SEP]
            outside = (place < skipped[:, None]) | (place >= last[:, None])
            none = logits[:, 0].sum(1).tolist()
            for row, spans in enumerate(spans_of(logits.masked_fill(outside[..., None], -torch.inf), 12)):
                i = owner[at + row]
                found[i] += [(s, a + shift[at + row], b + shift[at + row]) for s, a, b in spans]
                nulls[i] = min(nulls[i], none[row])
        return found, nulls


def room(question: list[int]) -> int:
    """Tokens of a contract that fit into a window beside the question."""
    return 512 - len(question) - 1


def spans_of(logits: Tensor, top: int) -> list[list[tuple[float, int, int]]]:
    """The best end for each of the best starts: (score, first, last) tokens, for each row of (Q, n, 2)."""
    n = logits.shape[1]
    size = min(MAX_ANSWER, n)
    ends = F.pad(logits[..., 1], (0, size - 1), value=-torch.inf)
    best, where = F.max_pool1d(ends[:, None], size, stride=1, return_indices=True)
    total = logits[..., 0] + best[:, 0]
    score, first = total.topk(min(top, n), dim=1)
    last = where[:, 0].gather(1, first)
    return [[(s, a, b) for s, a, b in zip(*row, strict=True) if s > -1e8]
            for row in zip(score.tolist(), first.tolist(), last.tolist(), strict=True)]


# --------------------------------------------------------------------------------------------------- train and evaluate


def train(way: Any, contracts: list[Contract], questions: dict, minutes: float, rate: float, accumulate: int,
          length: int, log: Callable[[str], None]) -> dict[str, float]:
    """Adam with a linear schedule over wall-clock time, bf16 autocast; the head at five times the rate."""
    model = way.model
    model.train()
    head = list(model.qa_outputs.parameters())
    body = [p for p in model.parameters() if all(p is not h for h in head)]
    optimizer = torch.optim.AdamW([{"params": body, "lr": rate}, {"params": head, "lr": 5 * rate}],
                                  weight_decay=0.01, fused=True)
    factors = [1.0, 5.0]
    random.seed(0)
    start, step, seen, total = time.time(), 0, 0, 0.0
    order: list[int] = []
    while (elapsed := time.time() - start) < 60 * minutes:
        if not order:
            order = random.sample(range(len(contracts)), len(contracts))
        contract = contracts[order.pop()]
        seen += 1
        for loss in way.losses(contract, questions, length):
            (loss / accumulate).backward()
            total += float(loss.detach())
            step += 1
            if step % accumulate == 0:
                part = (time.time() - start) / (60 * minutes)
                now = rate * min(part / 0.05, max(1 - part, 0) / 0.95)
                for group, factor in zip(optimizer.param_groups, factors, strict=True):
                    group["lr"] = now * factor
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            if step % 200 == 0:
                log(f"{elapsed:6.0f} s  step {step}  contracts {seen}  loss {total / 200:.3f}")
                total = 0.0
    return {"steps": step, "contracts": seen, "epochs": seen / len(contracts)}


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def evaluate(way: Any, contracts: list[Contract], questions: dict) -> dict[str, float]:
    """CUAD's scores on whole contracts, and seconds a contract for all its questions."""
    from vcc.data.example import Example, Prediction
    from vcc.tasks.metrics import best_of, clause_scores, mean_scores, word_f1

    way.model.eval()
    predictions, examples, answerable, f1s, none_scores, seconds = [], [], [], [], [], []
    for contract in contracts:
        wait()
        start = time.perf_counter()
        found, nulls = way.candidates(contract, questions)
        wait()
        seconds.append(time.perf_counter() - start)
        for q, spans, null in zip(contract.questions, found, nulls, strict=True):
            kept: list[tuple[float, int, int]] = []
            for span in sorted(spans, reverse=True):
                if len(kept) == TOP:
                    break
                if all(span[2] < other[1] or span[1] > other[2] for other in kept):
                    kept.append(span)
            scores = torch.tensor([s for s, _, _ in kept] + [null]).softmax(0).tolist()
            texts = [contract.text[contract.offsets[a][0] : contract.offsets[b][1]] for _, a, b in kept]
            example = Example(q["id"], q["question"], "", tuple(q["answers"]), (), group=contract.id)
            examples.append(example)
            predictions.append(Prediction(q["id"], texts[0] if texts else "",
                                          spans=tuple(zip(texts, scores, strict=False))))
            none_scores.append((kept[0][0] if kept else -99) - null)
            if q["answers"]:
                answerable.append(example)
                f1s.append(best_of(word_f1, texts[0] if texts else "", q["answers"]))
    result = clause_scores(predictions, examples)
    result |= mean_scores({"best_span_f1": f1s}, answerable)
    labels = np.array([bool(e.answers) for e in examples])
    ranks = np.argsort(np.argsort(none_scores))
    positives = labels.sum()
    result["answer_or_none_auc"] = 100 * float((ranks[labels].sum() - positives * (positives - 1) / 2)
                                               / (positives * (~labels).sum()))
    result["seconds_a_contract"] = float(np.mean(seconds[1:]))
    if isinstance(way, ReadByVcc):
        result["gold_segment_opened"] = way.gold_opened()
    return result


def run(prepared: Path, out: Path, minutes: float, ways: list[str], window_layers: int, budget: int, rate: float,
        contracts: int | None) -> None:
    from transformers import AutoModelForQuestionAnswering

    import vcc

    out.mkdir(parents=True, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = True
    train_set, questions = load(prepared, "train")
    test_set, test_questions = load(prepared, "validation")
    train_set, test_set = train_set[:contracts], test_set[:contracts]
    print(len(train_set), "training contracts,", len(test_set), "to score", flush=True)
    results: dict[str, Any] = {}
    for name in ways:
        torch.manual_seed(0)
        base = AutoModelForQuestionAnswering.from_pretrained(prepared, dtype=torch.float32).to(DEVICE)
        if name == "vcc":
            settings = vcc.VccConfig(scales=(16, 1), budget=(budget,), window_layers=window_layers, vip_window="own",
                                     dense_below=0)
            way: Any = ReadByVcc(vcc.wrap(base, settings))
        else:
            way = ReadByWindows(base)
        with torch.autocast(DEVICE, torch.bfloat16):
            log = lambda text, name=name: print(f"[{name}] {text}", flush=True)
            training = train(way, train_set, questions, minutes, rate, 1, 32_768, log)
            scores = evaluate(way, test_set, test_questions)
        results[name] = {"training": training, "scores": scores, "minutes": minutes,
                         "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if DEVICE == "cuda" else None}
        print(json.dumps({name: results[name]}, indent=1), flush=True)
        way.model.half().save_pretrained(out / name)
        (out / "cuad.json").write_text(json.dumps(results, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    one = commands.add_parser("prepare")
    one.add_argument("--data", type=Path, required=True)
    one.add_argument("--minilm", type=Path, required=True)
    one.add_argument("--out", type=Path, required=True)
    two = commands.add_parser("run")
    two.add_argument("--prepared", type=Path, required=True)
    two.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    two.add_argument("--minutes", type=float, default=4.0)
    two.add_argument("--ways", nargs="+", default=["vcc", "windows"])
    two.add_argument("--window-layers", type=int, default=3)
    two.add_argument("--budget", type=int, default=128)
    two.add_argument("--rate", type=float, default=5e-5)
    two.add_argument("--contracts", type=int, help="only so many, to try the script")
    options = vars(parser.parse_args())
    {"prepare": prepare, "run": run}[options.pop("command")](**options)


if __name__ == "__main__":
    main()
