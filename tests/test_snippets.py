"""Every Python block and every `vcc` command of the documentation works as it is pasted, offline.

Tiny models stand in for downloads, a contract of two pages for the reader's. The blocks of a page are one program,
except where a page lists alternatives. New blocks are found by themselves.
"""

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, LlamaConfig

from tests.documents.samples import pdf_bytes
from tests.serve.running import running
from vcc.cli import COMMANDS, main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "llms.txt", *sorted((ROOT / "docs").rglob("*.md"))]
CONTRACT = (ROOT / "examples" / "contract.txt").read_text()
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ALTERNATIVES = ("integrations.md", "README.md")  # pages whose blocks do not go on from each other
ELSEWHERE = {"adding-a-host.md": "tests/hosts/test_new_family.py", "README.md": "tests/test_readme.py"}
NEEDS = (
    "mcp",
    "haystack",
    "langchain_core",
    "llama_index.core",
    "sentence_transformers",
    "pandas",
    "httpx",
    "pydantic",
)
LATE = {"vcc.integrations.langchain": "langchain_core", "vcc.integrations.llama_index": "llama_index.core"}
DOWNLOADS = {
    "deepset/roberta-base-squad2": "BertForQuestionAnswering",
    "sentence-transformers/all-MiniLM-L6-v2": "BertModel",
    "HuggingFaceTB/SmolLM2-135M-Instruct": "LlamaForCausalLM",
    '"roberta-base"': "BertForSequenceClassification",
}
SLOW = (
    "service.md",
    "tasks.md",
    *(f"tutorials/{name}.md" for name in ("folder", "cluster", "service", "encoder")),
)  # make test-docs
BEFORE = {  # what a page takes for granted
    "decoders.md": "name = 'HuggingFaceTB/SmolLM2-135M-Instruct'; import torch\n"
    "ids = question_ids = torch.arange(5, 90)[None]; inputs = {'input_ids': ids}\n",
}
SAID = {  # what the output must contain, by page and, for alternatives, by words of the block
    "tutorials/contract.md": ["New Hampshire", "sure: True", "True", "governing_law", "supported"],
    "tutorials/folder.md": ["New Hampshire", "contract.pdf"],
    "folders.md": ["New Hampshire", "contract.pdf"],
    "tutorials/encoder.md": ["rows for", "loss", "VccBertForSequenceClassification BertForSequenceClassification"],
    "tutorials/decoder.md": ["TreeReport", "Where are the strings made?"],
    "tutorials/service.md": ["New Hampshire", "page 2", "1 answers", "204"],
    "tutorials/cluster.md": ["New Hampshire"],
    "extraction.md": ["governing_law", "New Hampshire"],
    "tasks.md": [],
    "service.md": ["New Hampshire"],
    "call_tool": ["New Hampshire"],
    "relevance(": ["["],
    "roberta-base": ["answer"],
    "vcc.pipeline()": ["New Hampshire"],
    "VccReader": ["New Hampshire"],
    "VccCompressor": ["contract"],
    "VccFileRetriever": ["contract"],
    "read_long": ["(32,)"],
    "vcc.review": ["New Hampshire"],
}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT / "docs")) if page.is_relative_to(ROOT / "docs") else page.name


def fences(page: Path) -> list[tuple[str, str]]:
    return FENCE.findall(page.read_text())


def programs() -> Iterator[Any]:
    """Page and code of everything to run: Python, and the commands of `console` blocks, in the order of the page."""
    for page in PAGES:
        name = name_of(page)
        blocks = [block for block in fences(page) if block[0] in ("python", "console")]
        if not blocks or name in ELSEWHERE:
            continue
        if name in ALTERNATIVES:
            for block in blocks:
                (key,) = [key for key in SAID if key in block[1]]
                yield pytest.param(name, key, [block], id=key)
        else:
            yield pytest.param(name, name, blocks, id=name, marks=pytest.mark.slow if name in SLOW else ())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the blocks open: a piece of the contract, which two cores read in a second."""
    law = next(line for line in CONTRACT.splitlines() if "Governing law." in line)
    lines = textwrap.wrap(law, 80)
    (tmp_path / "contracts").mkdir()
    for place in ("contract.pdf", "contracts/contract.pdf"):
        (tmp_path / place).write_bytes(pdf_bytes([["A contract."], lines]))
    (tmp_path / "examples").mkdir()
    for place in ("contract.txt", "examples/contract.txt"):
        (tmp_path / place).write_text(f"A contract.\n\n{law}\n")
    (tmp_path / "questions.yaml").write_text("- Which law governs this agreement?\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tiny(folder: Path, kind: str) -> str:
    """A model of this class with random weights, in place of a download."""
    import transformers

    torch.manual_seed(0)
    sizes: Any = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
    config = LlamaConfig if kind.startswith("Llama") else BertConfig
    getattr(transformers, kind)(config(vocab_size=30522, **sizes)).save_pretrained(folder)
    inputs = ["input_ids", "attention_mask"] + ["token_type_ids"] * kind.startswith("Bert")
    AutoTokenizer.from_pretrained(ROOT / "src" / "vcc" / "model", model_input_names=inputs).save_pretrained(folder)
    return str(folder)


def needs(code: str) -> None:
    for package in NEEDS:
        if re.search(rf"^(from|import) {package}\b", code, re.MULTILINE):
            pytest.importorskip(package)
    for module, package in LATE.items():
        if module in code:
            pytest.importorskip(package)


@pytest.mark.parametrize(("name", "key", "blocks"), list(programs()))
def test_the_code_of_a_page_does_what_the_page_promises(
    name: str, key: str, blocks: list[tuple[str, str]], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "\n".join(text for _, text in blocks)
    needs(code)
    downloads = {place: kind for place, kind in DOWNLOADS.items() if place in BEFORE.get(name, "") + code}
    names: dict[str, Any] = {"__name__": "__main__"}
    with service_of(code, folder) as address:

        def ready(text: str) -> str:
            for place, kind in downloads.items():
                quote = '"' if place.startswith('"') else ""
                text = text.replace(place, f"{quote}{tiny(folder / 'model', kind)}{quote}")
            return text.replace("http://127.0.0.1:8756", address)

        exec(ready(BEFORE.get(name, "")), names)
        for language, text in blocks:
            if language == "python":
                exec(ready(text), names)
            for command in re.findall(r"^\$ vcc (.+)$", text, re.MULTILINE) if language == "console" else []:
                assert main(shlex.split(command)) == 0, f"vcc {command}: {capsys.readouterr().err}"
    told = " ".join(capsys.readouterr().out.split())
    for words in SAID.get(key, []):
        assert words in told, f"{key}: no {words!r} in {told}"


class service_of:
    """A service for code that talks to one; its address, else an address where nobody listens."""

    def __init__(self, code: str, folder: Path) -> None:
        self.started = running(folder / "service") if "http://127.0.0.1:8756" in code else None

    def __enter__(self) -> str:
        return self.started.__enter__().address if self.started else "http://127.0.0.1:9"

    def __exit__(self, *error: Any) -> None:
        if self.started:
            self.started.__exit__(*error)


def test_every_page_with_code_is_run_and_says_something() -> None:
    run = {(param.values[0], param.values[1]) for param in programs()}
    with_code = {name_of(page) for page in PAGES if any(language == "python" for language, _ in fences(page))}
    assert {name for name, _ in run} | set(ELSEWHERE) >= with_code
    assert {key for _, key in run} == set(SAID) | {"decoders.md"}


def options_of(command: str) -> set[str]:
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main([command, "--help"])
    return set(re.findall(r"--[a-z][\w-]*", printed.getvalue()))


def test_every_command_in_the_documentation_has_the_options_it_is_given() -> None:
    known: dict[str, set[str]] = {}
    seen = 0
    for page in [*PAGES, ROOT / "examples" / "README.md", ROOT / "CONTRIBUTING.md"]:
        code = [text for language, text in fences(page) if language in ("", "console")]
        code += re.findall(r"`((?:vcc|torchrun|\$ vcc)[^`]*)`", re.sub(FENCE, "", page.read_text()))
        for line in "\n".join(code).replace("\\\n", " ").splitlines():
            for command, rest in re.findall(r"(?:^|\s|\$ )vcc(?:\.cli)? ([a-z]+)((?: [^#;|]*)?)", line):
                if command in COMMANDS and not line.strip().startswith("#"):
                    known.setdefault(command, options_of(command))
                    for option in re.findall(r"(?<=\s)--[a-z][\w-]*", rest):
                        assert option in known[command], f"{name_of(page)}: vcc {command} has no {option}: {line}"
                    seen += 1
    assert seen > 100
