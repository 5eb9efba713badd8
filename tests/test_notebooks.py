"""The notebooks of examples/ run top to bottom, and are stored without outputs."""

import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def cells(notebook: Path) -> list[dict[str, Any]]:
    return json.loads(notebook.read_text())["cells"]


def code(notebook: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in cells(notebook) if cell["cell_type"] == "code"]


def test_there_are_three_and_none_keeps_outputs() -> None:
    assert [notebook.stem for notebook in NOTEBOOKS] == ["contract", "encoder", "folder"]
    for notebook in NOTEBOOKS:
        assert all(not cell["outputs"] for cell in cells(notebook) if cell["cell_type"] == "code")
        assert any("assert " in source for source in code(notebook))
        for source in code(notebook):
            compile(source, notebook.name, "exec")


@pytest.mark.parametrize(
    "notebook",
    [
        pytest.param(notebook, id=notebook.stem, marks=pytest.mark.slow if notebook.stem == "contract" else ())
        for notebook in NOTEBOOKS
    ],
)
def test_a_notebook_runs_top_to_bottom(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(EXAMPLES)
    names: dict[str, Any] = {}
    for source in code(notebook):
        exec(source, names)
