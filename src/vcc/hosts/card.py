"""The model card of a wrapped model on the Hub: how to load it, with which settings it reads.

transformers writes a card that says nothing, after it has saved the model and before it uploads. A card that a user
has written, on the Hub before, is kept.
"""

from pathlib import Path
from typing import Any

TEMPLATE = """---
{data}
---

# {title}

`{plain}` that reads long documents by VCC (VIP-token centric compression). Loading it needs
`pip install vcc-transformers` and no remote code:

```python
import vcc
from transformers import {auto}, AutoTokenizer

model = {auto}.from_pretrained("{repo}")
tokenizer = AutoTokenizer.from_pretrained("{repo}")
plain = vcc.unwrap(model)  # the untouched Hugging Face model, with the same weights
```

## Settings

| | |
|---|---|
{settings}

## Training and results

Not filled in: what it was trained on, how it was measured, and the licence of the weights. With a budget, a model
reads well only after training on compressed inputs.
"""
# The end of a class's name: its Auto class, and the Hub's name of the task.
AUTO = {
    "ForQuestionAnswering": ("AutoModelForQuestionAnswering", "question-answering"),
    "ForSequenceClassification": ("AutoModelForSequenceClassification", "text-classification"),
    "ForTokenClassification": ("AutoModelForTokenClassification", "token-classification"),
    "ForMultipleChoice": ("AutoModelForMultipleChoice", "multiple-choice"),
    "ForMaskedLM": ("AutoModelForMaskedLM", "fill-mask"),
    "ForCausalLM": ("AutoModelForCausalLM", "text-generation"),
    "ForConditionalGeneration": ("AutoModelForSeq2SeqLM", "text2text-generation"),
}
PLAIN = ("AutoModel", "feature-extraction")


def card_of(model: Any, repo: str, tags: list[str] | None = None) -> str:
    """Return the card of a wrapped model under this name."""
    from dataclasses import asdict

    from huggingface_hub import ModelCardData

    name = type(model).__name__.removeprefix("Vcc")
    auto, task = next((value for end, value in AUTO.items() if name.endswith(end)), PLAIN)
    base = getattr(model.config, "_name_or_path", "") or None
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=task,
        tags=[*dict.fromkeys(["vcc", "long-context", *(tags or [])])],
        base_model=base if base and not Path(base).exists() else None,  # no folder of this machine
    )
    settings = "\n".join(f"| `{key}` | {value} |" for key, value in asdict(model.vcc).items())
    title = repo.rpartition("/")[2]
    return TEMPLATE.format(data=data.to_yaml(), title=title, plain=name, auto=auto, repo=repo, settings=settings)


class Carded:
    """A model whose upload has a card of ours in place of transformers' empty one."""

    def push_to_hub(self, repo_id: str, *, tags: list[str] | None = None, **options: Any) -> Any:
        return super().push_to_hub(repo_id, tags=[*dict.fromkeys(["vcc", *(tags or [])])], **options)  # type: ignore[misc]

    def _upload_modified_files(self, working_dir: Any, repo_id: str, *args: Any, **options: Any) -> Any:
        card = Path(working_dir) / "README.md"
        if not card.exists() or "has been automatically generated" in card.read_text(encoding="utf-8"):
            card.write_text(card_of(self, repo_id), encoding="utf-8")
        return super()._upload_modified_files(working_dir, repo_id, *args, **options)  # type: ignore[misc]
