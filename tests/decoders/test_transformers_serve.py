"""`transformers serve`: what it can do with a wrapped model. docs/decoders.md says so."""

import asyncio
from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig

import vcc
from tests.data.words import bert_like
from tests.decoders.models import CLOSED, ids, tiny
from vcc.errors import UsageError

serving = pytest.importorskip("transformers.cli.serving.utils")
managing = pytest.importorskip("transformers.cli.serving.model_manager")
pytest.importorskip("fastapi")


def test_a_saved_wrapped_model_is_not_served(tmp_path: Path) -> None:
    """`transformers serve FOLDER` looks for the class of a model among transformers' own; the plain model is served."""
    for name, model in (("plain", tiny()), ("wrapped", vcc.wrap(tiny(), CLOSED))):
        model.save_pretrained(tmp_path / name)
        bert_like("a b c").save_pretrained(tmp_path / name)
    assert managing.ModelManager(device="cpu", force_model=str(tmp_path / "plain")).loaded_models
    with pytest.raises((AttributeError, ValueError)):
        managing.ModelManager(device="cpu", force_model=str(tmp_path / "wrapped"))


def test_its_sequential_way_runs_a_model_that_is_already_wrapped() -> None:
    """The thread that it generates in, with a wrapped model in its hands, writes what `generate` writes."""
    wrapped, prompt = vcc.wrap(tiny(), CLOSED), ids(1, 60)
    settings = GenerationConfig(max_new_tokens=12, do_sample=False)
    expected = wrapped.generate(prompt, generation_config=settings)[0, 60:]
    given = {"input_ids": prompt, "attention_mask": torch.ones_like(prompt)}
    words = bert_like(" ".join(f"w{i}" for i in range(99)))
    _, read, found = asyncio.run(
        serving.GenerateManager().generate_non_streaming(wrapped, words, given, settings, request_id="1")
    )
    assert read == 60 and torch.equal(found, expected)
    assert wrapped.vcc_report()[0].rows < 60  # with trees


def test_its_continuous_batching_refuses_a_wrapped_model() -> None:
    state = serving.GenerationState(continuous_batching=True)
    wrapped = vcc.wrap(tiny(), CLOSED)
    manager = state.get_manager("model@main", use_cb=state.use_continuous_batching(wrapped, serving.Modality.LLM))
    with pytest.raises(UsageError, match="continuous batching keeps keys in pages of its own"):
        manager.init_cb(wrapped, GenerationConfig())
