"""`docs/adding-a-host.md` is true: the host written there, taken from the page, is a host like the others."""

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import DistilBertConfig, PreTrainedModel

import vcc
from tests.hosts.models import OPEN, REAL, Batch, difference, encoded, one, ragged
from vcc.hosts.families import Family
from vcc.hosts.register import register

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-host.md"
HEADS = (
    "AutoModel",
    "AutoModelForMaskedLM",
    "AutoModelForSequenceClassification",
    "AutoModelForTokenClassification",
    "AutoModelForQuestionAnswering",
    "AutoModelForMultipleChoice",
)


def code_of(page: Path) -> str:
    return page.read_text().split("```python\n")[1].split("```")[0]


def row_of(page: Path) -> str:
    """The row of the table, as the page has it."""
    return page.read_text().split("    Family(")[1].split(",\n\n")[0].join(["Family(", ""])


@pytest.fixture(scope="module", autouse=True)
def distilbert() -> Iterator[Any]:
    module = types.ModuleType("vcc_distilbert")
    exec(compile(code_of(PAGE), str(PAGE), "exec"), module.__dict__)
    sys.modules[module.__name__] = module
    register(eval(row_of(PAGE).replace("vcc.hosts.families.distilbert", module.__name__), {"Family": Family}))
    yield module.DistilBertHost


def build(head: str = "AutoModel", dtype: torch.dtype = torch.float64, **changes: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    sizes = {"vocab_size": 120, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "pad_token_id": 0}
    config = DistilBertConfig(**sizes, max_position_embeddings=80, **changes)
    return getattr(transformers, head).from_config(config, dtype=dtype).eval()


def arguments(batch: Batch, head: str) -> dict[str, torch.Tensor]:
    return batch.arguments("bert", head)


@pytest.mark.parametrize("head", HEADS)
def test_open_cut_equals_untouched_model(head: str) -> None:
    model, batch = build(head), ragged()
    wrapped = vcc.wrap(model, OPEN)
    with torch.no_grad():
        expected = model(**batch.inputs("bert", head))
        assert difference(wrapped(**arguments(batch, head)), expected, batch.real) < 1e-12
    assert len(wrapped.vcc_report()) == 3 and type(wrapped).__name__ == f"Vcc{type(model).__name__}"


@pytest.mark.parametrize("head", HEADS)
def test_it_is_stored_loaded_and_unwrapped(head: str, tmp_path: Path) -> None:
    wrapped, batch = vcc.wrap(build(head), REAL, max_length=150), ragged(120)
    wrapped.save_pretrained(tmp_path)
    loaded = getattr(transformers, head).from_pretrained(tmp_path, dtype=torch.float64)
    assert type(loaded) is type(wrapped) and loaded.config.max_position_embeddings == 150
    with torch.no_grad():
        assert difference(loaded(**arguments(batch, head)), wrapped(**arguments(batch, head))) == 0
    assert type(vcc.unwrap(loaded)) is type(build(head))


def test_positions_repeat_with_and_without_extension() -> None:
    model, batch = build(), one(170)
    with torch.no_grad():
        kept, longer = (vcc.wrap(model, REAL, n)(**arguments(batch, "AutoModel")) for n in (None, 200))
    assert difference(longer, kept) == 0


def test_checkpointing_gives_the_same_gradients() -> None:
    found = []
    for checkpointing in (False, True):
        model = build(dropout=0.0, attention_dropout=0.0)
        wrapped = vcc.wrap(model, REAL).train()
        if checkpointing:
            wrapped.gradient_checkpointing_enable()
        encoded(wrapped(**arguments(ragged(), "AutoModel"))).square().sum().backward()
        found.append([p.grad for p in model.parameters()])
    for ours, theirs in zip(*found, strict=True):
        assert float((ours - theirs).abs().max()) < 1e-9


def test_a_row_of_a_batch_is_the_row_alone() -> None:
    wrapped, batch = vcc.wrap(build(), REAL), ragged()
    with torch.no_grad():
        together = encoded(wrapped(**arguments(batch, "AutoModel")))
        for index in (0, 2):
            alone = encoded(wrapped(**arguments(batch.row(index), "AutoModel")))
            assert difference(together[index, batch.real[index].bool()], alone[0]) < 1e-10


def test_the_host_is_short() -> None:
    assert len(code_of(PAGE).splitlines()) <= 70
