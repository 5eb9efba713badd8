"""The README's Python runs as it is pasted: offline, with a tiny model in place of the one that would be downloaded."""

import re
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForQuestionAnswering

from tests.documents.samples import pdf_bytes

ROOT = Path(__file__).parents[1]
BUNDLED = ROOT / "src" / "vcc" / "model"
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
CONTRACT = (ROOT / "examples" / "contract.txt").read_text()
QUESTION = "Which law governs this agreement?"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the blocks open, in an empty folder; indexes are kept there, too."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "contract.txt").write_text(CONTRACT)
    law = next(line for line in CONTRACT.splitlines() if "Governing law." in line)
    lines = [law[start : start + 80] for start in range(0, len(law), 80)]
    (tmp_path / "contract.pdf").write_bytes(pdf_bytes([["A contract."], lines]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tiny_model(folder: Path) -> Path:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
    BertForQuestionAnswering(BertConfig(vocab_size=30522, **sizes)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(BUNDLED).save_pretrained(folder)
    return folder


def block_with(words: str) -> str:
    (found,) = [block for block in BLOCKS if words in block]
    return found


def test_every_python_block_is_run_here() -> None:
    assert set(BLOCKS) == {block_with("vcc.read("), block_with("vcc.wrap(")}


def test_the_block_that_asks_a_document_prints_the_page_and_the_law(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(block_with("vcc.read("), {})
    score, page, text = capsys.readouterr().out.split(maxsplit=2)
    assert 0.4 < float(score) <= 1 and page == "2" and "New Hampshire" in text


def test_the_block_that_wraps_compresses_the_contract_and_comes_back(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, number = re.subn(r'name = "[^"]+"', f"name = {str(tiny_model(folder / 'tiny'))!r}", block_with("vcc.wrap("))
    assert number == 1
    names: dict[str, object] = {}
    exec(code, names)
    rows = [int(line.split()[2]) for line in capsys.readouterr().out.splitlines()]
    tokens = names["inputs"]["input_ids"].shape[1]  # type: ignore[index]
    assert tokens > 5_000 and rows[0] == tokens and rows[-1] < tokens / 2  # one window layer of three, then cuts
    plain, model = names["plain"], names["model"]
    assert type(plain) is type(model) is BertForQuestionAnswering
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), model.parameters(), strict=True))


def test_the_answer_printed_in_the_readme_is_that_of_the_contract() -> None:
    shown = " ".join(TEXT.split("»")[1].split("«")[0].split())
    assert shown in " ".join(CONTRACT.split())
    assert QUESTION in TEXT


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), ROOT / "llms.txt", ROOT / "examples" / "README.md", BUNDLED / "README.md"]
    pages += (ROOT / "docs").rglob("*.md")
    for page in pages:
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert "://" in link or (page.parent / link).exists(), f"{page.name}: {link}"
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        place = page.relative_to(ROOT / "docs")
        assert page.name == "README.md" or f"]({place})" in index, f"docs/README.md does not list {page.name}"
