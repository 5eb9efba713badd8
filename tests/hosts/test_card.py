"""A wrapped model that is pushed to the Hub has a card that says how to load it, and loads without remote code."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from huggingface_hub.errors import EntryNotFoundError
from transformers import BertConfig, BertForQuestionAnswering, LlamaConfig, LlamaForCausalLM
from transformers.utils import hub

import vcc

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 99}


def encoder() -> Any:
    return vcc.wrap(BertForQuestionAnswering(BertConfig(**SIZES, sep_token_id=2)), vcc.VccConfig(budget=(7,)))


def decoder() -> Any:
    return vcc.wrap(LlamaForCausalLM(LlamaConfig(**SIZES)), vcc.DecoderConfig(budget=7))


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the Hub: what an upload would contain is copied there."""
    there = tmp_path / "hub"

    def upload(self: Any, working_dir: str, repo_id: str, *args: Any, **options: Any) -> str:
        shutil.copytree(working_dir, there, dirs_exist_ok=True)
        return repo_id

    def load(repo_id: str, **options: Any) -> ModelCard:
        if not (there / "README.md").exists():
            raise EntryNotFoundError("no card")
        return real(there / "README.md")

    real = ModelCard.load
    api = SimpleNamespace(create_repo=lambda repo_id, **options: SimpleNamespace(repo_id=repo_id))
    monkeypatch.setattr(hub, "hf_api", lambda: api, raising=False)
    monkeypatch.setattr(hub, "create_repo", api.create_repo, raising=False)  # older transformers
    monkeypatch.setattr(hub.PushToHubMixin, "_upload_modified_files", upload)
    monkeypatch.setattr(hub.ModelCard, "load", load)
    return there


@pytest.mark.parametrize(
    ("make", "auto", "task"),
    [
        (encoder, "AutoModelForQuestionAnswering", "question-answering"),
        pytest.param(decoder, "AutoModelForCausalLM", "text-generation", marks=pytest.mark.slow),
    ],
)
def test_a_pushed_model_has_a_card_and_loads_as_the_card_says(make: Any, auto: str, task: str, remote: Path) -> None:
    model = make()
    model.push_to_hub("somebody/long-reader", tags=["mine"])
    card = ModelCard.load(remote / "README.md")
    assert card.data.library_name == "transformers" and card.data.pipeline_tag == task
    assert {"vcc", "long-context"} <= set(card.data.tags) and card.data.base_model is None
    assert "| `budget` | (7,) |" in card.text or "| `budget` | 7 |" in card.text
    code = next(part for part in card.text.split("```") if part.startswith("python")).removeprefix("python\n")
    assert auto in code and "trust_remote_code" not in code
    code = "\n".join(line for line in code.splitlines() if "AutoTokenizer.from" not in line)
    code = code.replace("somebody/long-reader", str(remote)) + "\nprint(type(model).__name__, type(plain).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [type(model).__name__, type(vcc.unwrap(model)).__name__]
    assert not list(remote.glob("*.py"))


def test_a_card_that_a_user_wrote_is_kept(remote: Path) -> None:
    remote.mkdir()
    (remote / "README.md").write_text("---\nlicense: mit\n---\n\n# Mine\n")
    encoder().push_to_hub("somebody/long-reader")
    card = ModelCard.load(remote / "README.md")
    assert "# Mine" in card.text and card.data.license == "mit" and "vcc" in card.data.tags


def test_loading_gives_the_same_result(tmp_path: Path) -> None:
    from transformers import AutoModelForQuestionAnswering

    model = encoder().eval()
    model.save_pretrained(tmp_path)
    ids = torch.randint(5, 99, (1, 400), generator=torch.Generator().manual_seed(0))
    ids[0, 9] = 2
    with torch.no_grad():
        first, second = (
            each(ids).start_logits for each in (model, AutoModelForQuestionAnswering.from_pretrained(tmp_path))
        )
    assert torch.allclose(first, second, atol=1e-6)
