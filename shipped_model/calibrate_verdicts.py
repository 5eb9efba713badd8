"""Fit the verdict head's scale and biases, so that its probabilities hold for statements about whole documents.

python -m shipped_model.calibrate_verdicts --prepared prepared --model results/stored

The head learns from single windows, a third of them of each kind. In use the least silent window of a document decides,
and few statements are contradicted: unfitted, it contradicts too often. Printed is the accuracy on documents that are
left out of the fit in turn. A fitted head needs no further fit.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from shipped_model.data import Unit, load
from shipped_model.verdicts import KINDS, save_head
from vcc.commands.options import call
from vcc.documents.shipped import load_asker
from vcc.errors import UsageError
from vcc.qa.verdicts import ABSENT, FILE, load_head, passages, states_of_windows
from vcc.qa.windows import WindowReader

ROUNDS = 20  # of choosing the deciding windows anew; the choice settles after a few


@dataclass(frozen=True)
class CalibrateVerdictsOptions:
    """Inputs; the model's head is replaced."""

    prepared: Annotated[Path, "output folder of `prepare`"]
    model: Annotated[Path, "folder of the model"]
    documents: Annotated[int, "validation documents, at most"] = 1000


class Stated(NamedTuple):
    """A statement about a document: the head's logits (windows, 3), and the right verdict as their index."""

    document: int
    logits: Tensor
    right: int


class HeadFit(NamedTuple):
    scale: float = 1.0
    supported: float = 0.0
    contradicted: float = 0.0

    @property
    def bias(self) -> Tensor:
        return torch.tensor([self.supported, self.contradicted, 0.0], dtype=torch.float64)

    def deciding(self, logits: Tensor) -> Tensor:
        """The logits of the least silent window, as fitted."""
        fitted = self.scale * logits.double() + self.bias
        return fitted[fitted.softmax(1)[:, ABSENT].argmin()]


def calibrate_verdicts(options: CalibrateVerdictsOptions) -> None:
    """Print the fit and the accuracy on documents left out of it in turn; replace the model's head."""
    if options.documents < 2:
        raise UsageError(f"documents is {options.documents}: it must be at least 2, to leave one out")
    qa = load_asker(str(options.model)).qa
    head = load_head(options.model, qa.model)
    if head is None:
        raise UsageError(f"{options.model} has no {FILE}, a verdict head")
    units = load(options.prepared / "tokens.npz.xz").units.get("verdicts_validation", ())
    units = units[:: max(1, len(units) // options.documents)][: options.documents]
    stated = [one for i, unit in enumerate(units) for one in statements(qa.windows, head, unit, i)]
    if len({one.document for one in stated}) < 2:
        raise UsageError(
            f"there are statements about {len(units)} documents: there must be at least 2, to leave one out"
        )
    fitted = fit(stated)
    print(f"{len(stated)} statements about {len(units)} documents: {fitted}")
    print(
        f"right: {accuracy(stated, HeadFit()):.1%} as trained, {left_out(stated):.1%} in documents left out of the fit"
    )
    save_head(with_fit(head, fitted), options.model)


@torch.inference_mode()
def statements(reader: WindowReader, head: nn.Linear, unit: Unit, document: int) -> list[Stated]:
    """All statements about a document, in the windows in which the product would judge them."""
    found = []
    for question in unit.questions:
        starts, size = passages(reader, unit.ids, question.ids, ())
        read = states_of_windows(reader, unit.ids, question.ids, starts, size)
        logits = [head(states[:, 0].float()) for states, *_ in read]
        if logits:
            found.append(Stated(document, torch.cat(logits).cpu(), KINDS.index(question.kind)))
    return found


def fit(stated: Sequence[Stated]) -> HeadFit:
    """The likeliest scale and biases, of the windows that decide under them."""
    right = torch.tensor([one.right for one in stated])
    fitted = HeadFit()
    for _ in range(ROUNDS):
        before = fitted
        chosen = torch.stack([fitted.deciding(one.logits) for one in stated])
        chosen = (chosen - fitted.bias) / fitted.scale
        fitted = likeliest(chosen, right)
        if max(abs(a - b) for a, b in zip(fitted, before, strict=True)) < 0.01:
            break
    return HeadFit(*(round(value, 2) for value in fitted))


def likeliest(logits: Tensor, right: Tensor) -> HeadFit:
    found = torch.zeros(3, dtype=torch.float64, requires_grad=True)  # logarithm of the scale, two biases
    optimizer = torch.optim.LBFGS([found], max_iter=200, line_search_fn="strong_wolfe")

    def cost() -> Tensor:
        optimizer.zero_grad()
        bias = torch.cat([found[1:], found.new_zeros(1)])
        loss = cross_entropy(found[0].exp() * logits + bias, right)
        loss.backward()
        return loss

    optimizer.step(cost)
    scale, *biases = found.detach().tolist()
    return HeadFit(math.exp(scale), *biases)


def accuracy(stated: Sequence[Stated], fitted: HeadFit) -> float:
    hits = [int(fitted.deciding(one.logits).argmax()) == one.right for one in stated]
    return sum(hits) / max(len(hits), 1)


def left_out(stated: Sequence[Stated]) -> float:
    """The accuracy on each document, with the fit to the others."""
    hits = 0.0
    for document in sorted({one.document for one in stated}):
        own = [one for one in stated if one.document == document]
        hits += len(own) * accuracy(own, fit([one for one in stated if one.document != document]))
    return hits / len(stated)


def with_fit(head: nn.Linear, fitted: HeadFit) -> nn.Linear:
    """The head with the fit in its weights."""
    new = nn.Linear(head.in_features, head.out_features)
    with torch.no_grad():
        new.weight.copy_(fitted.scale * head.weight)
        new.bias.copy_(fitted.scale * head.bias.cpu() + fitted.bias)
    return new


if __name__ == "__main__":
    call(calibrate_verdicts, sys.argv[1:], "python -m shipped_model.calibrate_verdicts")
