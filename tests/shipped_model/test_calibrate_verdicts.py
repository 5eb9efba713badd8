"""The verdict head's fit is the likeliest one for whole documents, as the product judges them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from shipped_model.calibrate_verdicts import (
    HeadFit,
    Stated,
    accuracy,
    calibrate_verdicts,
    fit,
    left_out,
    statements,
    with_fit,
)
from shipped_model.data import TokenQuestion, TokenSets, Unit, save
from shipped_model.verdicts import KINDS, new_head, save_head
from tests.documents import small_model
from tests.shipped_model.test_practice import FRAME
from tests.shipped_model.test_verdicts import contract
from tests.shipped_model.test_ways import model
from vcc.commands.options import call
from vcc.documents.shipped import load_asker
from vcc.errors import UsageError
from vcc.qa.verdicts import judge, load_head
from vcc.qa.windows import WindowReader

TRUE = HeadFit(0.7, -1.5, -2.5)


def drawn(number: int, documents: int = 10) -> list[Stated]:
    """Statements of three windows each, whose right verdicts follow the probabilities of a known fit."""
    torch.manual_seed(0)
    found = []
    for i in range(number):
        logits = 3 * torch.randn(3, 3)
        right = int(torch.multinomial(TRUE.deciding(logits).softmax(0), 1))
        found.append(Stated(i % documents, logits, right))
    return found


def test_the_fit_is_found_that_the_verdicts_follow() -> None:
    assert fit(drawn(4000)) == pytest.approx(TRUE, abs=0.2)


def test_a_fitted_head_needs_no_other_fit() -> None:
    stated = drawn(600)
    fitted = fit(stated)
    again = [one._replace(logits=fitted.scale * one.logits + fitted.bias) for one in stated]
    assert fit(again) == pytest.approx(HeadFit(), abs=0.03)


def test_documents_are_judged_by_a_fit_to_the_others() -> None:
    stated = drawn(400, documents=4)
    assert accuracy(stated, HeadFit()) + 0.05 < left_out(stated) <= accuracy(stated, fit(stated)) + 0.02
    strange = [*stated, *(Stated(99, torch.tensor([[9.0, 0.0, 0.0]]), 1) for _ in range(400))]
    assert left_out(strange) < accuracy(strange, fit(strange)), "the strange document is not in its own fit"


def test_the_windows_are_those_of_the_product() -> None:
    reader = WindowReader(model(), FRAME, 512, 30)
    head = new_head(reader.model)
    torch.nn.init.normal_(head.weight, std=2.0)
    fitted = HeadFit(1.5, -0.5, 0.25)
    unit = replace(contract(KINDS[0], 0), ids=np.random.default_rng(0).integers(40, 500, 3000))
    [one] = statements(reader, head, unit, 0)
    assert len(one.logits) > 3 and one.right == 0
    for own, said in ((head, HeadFit()), (with_fit(head, fitted), fitted)):
        judged = judge(reader, own, unit.ids, unit.questions[0].ids)
        assert judged is not None and said.deciding(one.logits).softmax(0).tolist() == pytest.approx(
            judged.chances, abs=1e-5
        )


def test_the_head_of_a_model_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(small_model.saved(tmp_path / "model"))
    units = tuple(
        Unit(np.arange(40) % 9 + i, (TokenQuestion(np.array([7, 8]), (), kind),), i) for i, kind in enumerate(KINDS)
    )
    save(TokenSets({"verdicts_validation": units}, {}), tmp_path / "tokens.npz.xz")
    line = ["--prepared", str(tmp_path), "--model", str(folder)]
    with pytest.raises(UsageError, match="verdict head"):
        call(calibrate_verdicts, line, "calibrate_verdicts")
    asked = load_asker(str(folder)).model
    head = new_head(asked)
    save_head(head, folder)
    with pytest.raises(UsageError, match="documents is 1: it must be at least 2"):
        call(calibrate_verdicts, [*line, "--documents", "1"], "calibrate_verdicts")
    call(calibrate_verdicts, line, "calibrate_verdicts")
    assert "3 statements about 3 documents" in capsys.readouterr().out
    again = load_head(folder, asked)
    assert again is not None and not torch.equal(again.bias, head.bias.half().float())
