"""Every Python block of docs/integrations.md runs as it is pasted, offline: tiny models stand in for downloads."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForQuestionAnswering, BertModel

from tests.documents.samples import pdf_bytes

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "integrations.md").read_text(), re.DOTALL)
NEEDS = ("mcp", "haystack", "langchain_core", "llama_index", "sentence_transformers", "pandas")
CONTRACT = (ROOT / "examples" / "contract.txt").read_text()
DOWNLOADS = {
    "deepset/roberta-base-squad2": BertForQuestionAnswering,
    "sentence-transformers/all-MiniLM-L6-v2": BertModel,
}
SAID = {  # what a block must print, by words in it
    "call_tool": "New Hampshire",
    "relevance(": "[",
    "roberta-base": "answer",
    "vcc.pipeline()": "New Hampshire",
    "VccReader": "New Hampshire",
    "VccCompressor": "contract",
    "VccFileRetriever": "contract",
    "read_long": "(32,)",
    "vcc.review": "New Hampshire",
}


def key_of(block: str) -> str:
    (found,) = [key for key in SAID if key in block]
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the blocks open: a piece of the contract, so that two cores read it in a second."""
    law = next(line for line in CONTRACT.splitlines() if "Governing law." in line)
    lines = [law[start : start + 80] for start in range(0, len(law), 80)]
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "contract.pdf").write_bytes(pdf_bytes([["A contract."], lines]))
    (tmp_path / "contract.txt").write_text(f"A contract.\n\n{law}\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tiny(folder: Path, kind: Any) -> str:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
    kind(BertConfig(vocab_size=30522, **sizes)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(ROOT / "src" / "vcc" / "model").save_pretrained(folder)
    return str(folder)


def test_every_block_is_run() -> None:
    assert {key_of(block) for block in BLOCKS} == set(SAID)


@pytest.mark.parametrize("block", BLOCKS, ids=key_of)
def test_a_block_prints_what_the_page_promises(block: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = key_of(block)
    for package in {"VccCompressor": ["langchain_core"], "VccFileRetriever": ["llama_index.core"]}.get(key, []):
        pytest.importorskip(package)
    for package in NEEDS:
        if re.search(rf"^from {package}\b", block, re.MULTILINE):
            pytest.importorskip(package)
    for name, kind in DOWNLOADS.items():
        if name in block:
            block = block.replace(name, tiny(folder / "model", kind))
    exec(block, {"__name__": "__main__"})
    assert SAID[key] in " ".join(capsys.readouterr().out.split())
