"""`docs/tasks.md`: its Python runs as it is pasted, with a tiny model in place of the one that would be downloaded."""

import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertModel

from reproduction.tasks.specs import LONG_TASKS, WAYS
from vcc.hosts.forward.wrapped import Wrapped

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.slow  # the snippets of the page run in tests/test_snippets.py
def test_wrapped_models_are_fine_tuned_with_hugging_faces_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=30522, **sizes)).save_pretrained("tiny")
    AutoTokenizer.from_pretrained(ROOT / "src" / "vcc" / "model").save_pretrained("tiny")
    code, number = re.subn(r'name = "[^"]+"', 'name = "tiny"', "\n".join(BLOCKS))
    code = code.replace("settings = dict(", "settings = dict(use_cpu=True, ")
    assert number == 1 and len(BLOCKS) == 3
    names: dict[str, object] = {}
    exec(code, names)
    vips, ids = names["vip_mask"], names["ids"]
    assert sum(vips) == 4 and {token for token, vip in zip(ids, vips, strict=True) if vip} == {101}  # type: ignore[call-overload, arg-type]
    compressed, read = names["model"].vcc_share()  # type: ignore[attr-defined]
    assert compressed == read > 0
    assert isinstance(AutoModelForSequenceClassification.from_pretrained("classes"), Wrapped)


def test_every_task_and_way_is_on_the_page() -> None:
    assert all(f"| `{name}` |" in PAGE for name in (*LONG_TASKS, *WAYS))
    assert all(f"{task.length:,}" in PAGE for task in LONG_TASKS.values())
