"""The README's Python runs as it is pasted: offline, with a tiny model in place of the one that would be downloaded."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForQuestionAnswering

from vcc.cli import main

ROOT = Path(__file__).parents[1]
BUNDLED = ROOT / "src" / "vcc" / "model"
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
CONTRACT = (ROOT / "examples" / "contract.txt").read_text()
QUESTION = "Which law governs this agreement?"
PRINTED = re.findall(r"^```\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
SHOWN_SCORE = float(re.findall(r"([\d.]+) is the probability", TEXT)[0])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the blocks open, in an empty folder; indexes are kept there, too."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "contract.txt").write_text(CONTRACT)
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


def test_the_block_that_asks_a_document_prints_the_place_and_the_law(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(block_with("vcc.read("), {})
    score, told = capsys.readouterr().out.split(maxsplit=1)
    assert abs(float(score) - SHOWN_SCORE) < 0.02 and "15.3 Governing law" in told and "New Hampshire" in told


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


def test_the_answer_printed_in_the_readme_is_that_of_the_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (command,) = re.findall(r"^vcc (ask .+)$", TEXT, re.MULTILINE)
    assert main(shlex.split(command)) == 0
    told = capsys.readouterr().out.split("\n\n")
    assert score_apart(told[0]) == score_apart(next(text for text in PRINTED if text.startswith(QUESTION)))
    rows, tokens = re.findall(r"saw ([\d,]+) rows for the contract's ([\d,]+) tokens", TEXT)[0]
    assert f"tokens {tokens}," in told[1] and f"rows {rows} " in told[1]


def score_apart(text: str) -> list[str]:
    """What is printed, without the score's last digit, which depends on the processor."""
    return re.sub(r"(?<= 0\.\d)\d", "", text.strip()).split()


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
