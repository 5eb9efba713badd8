"""Without an extra, the error is one line that names it; no message of a missing package is a traceback."""

import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from vcc.cli import guarded, main
from vcc.errors import UsageError
from vcc.extras import EXTRAS, how_to_install

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def hide(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this package were not installed; those of ours that import it are imported again."""
    for name in list(sys.modules):
        if name.partition(".")[0] == module:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize("module", EXTRAS)
def test_the_extra_of_the_table_has_the_package(module: str) -> None:
    packages = {name.lower().replace("_", "-") for name in metadata.packages_distributions().get(module, [module])}
    extras, wanted = (
        PROJECT["optional-dependencies"],
        " ".join(PROJECT["optional-dependencies"][EXTRAS[module]]).lower(),
    )
    wanted += " " + " ".join(extras["documents"]) if "[documents]" in wanted else ""
    through = {"pandas": "datasets", "text-to-num": "text2num", "multipart": "python-multipart"}
    assert any(through.get(name, name) in wanted.replace("_", "-") for name in {*packages, module.replace("_", "-")})


@pytest.mark.parametrize(
    ("module", "command", "extra"), [("uvicorn", ["serve"], "serve"), ("mcp", ["mcp", "."], "mcp")]
)
def test_a_command_without_its_extra_names_it(
    module: str, command: list[str], extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hide(module, monkeypatch)
    assert main(command) == 2
    told = capsys.readouterr().err
    assert f"pip install 'vcc-transformers[{extra}]'" in told and told.count("\n") == 1


def test_files_and_tables_without_the_extra_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vcc.documents.show.spreadsheet import xlsx_bytes

    hide("openpyxl", monkeypatch)
    with pytest.raises(UsageError, match=r"needs openpyxl: pip install 'vcc-transformers\[documents\]'"):
        xlsx_bytes(SimpleNamespace())  # type: ignore[arg-type]


def test_a_missing_package_of_an_extra_is_no_bug_wherever_it_is_imported(capsys: pytest.CaptureFixture[str]) -> None:
    def train() -> None:
        raise ImportError("Using the `Trainer` with `PyTorch` requires `accelerate>=1.1.0`")

    def evaluate() -> None:
        raise ModuleNotFoundError("No module named 'rouge_score'", name="rouge_score.rouge_scorer")

    for work, module in ((train, "accelerate"), (evaluate, "rouge_score")):
        assert guarded(work) == 2
        told = capsys.readouterr().err
        assert f"{module}: pip install 'vcc-transformers[train]'" in told and "Traceback" not in told


def test_any_other_import_error_stays_a_bug() -> None:
    assert how_to_install(ModuleNotFoundError("No module named 'vcc.nothing'", name="vcc.nothing")) is None
    assert how_to_install(ImportError("cannot import name 'x' from 'torch'", name="torch")) is None
