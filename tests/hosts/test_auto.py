"""`import vcc` is quick because it leaves transformers alone, and yet saved wrapped models load after it."""

import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoConfig

import vcc
from tests.hosts.models import REAL, build

QUIET = "import sys, vcc; assert 'transformers' not in sys.modules; assert 'wrap' in dir(vcc)"
LOAD = "model = AutoModelForQuestionAnswering.from_pretrained({!r}); print(type(model).__name__, model.vcc.scales)"
AUTO = "from transformers import AutoModelForQuestionAnswering"
HALF_WAY = "import transformers.modeling_layers"


def run(*lines: str) -> str:
    return subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("saved")
    vcc.wrap(build("bert", "AutoModelForQuestionAnswering"), REAL).save_pretrained(path)
    return str(path)


@pytest.mark.parametrize(
    "before",
    [
        (QUIET, AUTO),
        pytest.param((AUTO, "import vcc"), marks=pytest.mark.slow),
        pytest.param((QUIET, "vcc.wrap", AUTO), marks=pytest.mark.slow),
        pytest.param((QUIET, HALF_WAY, AUTO), marks=pytest.mark.slow),
    ],
    ids=["vcc first", "transformers first", "wrap between", "a module that imports the Auto classes half-way"],
)
def test_a_saved_model_loads_whatever_was_imported_first(before: tuple[str, ...], folder: str) -> None:
    assert run(*before, LOAD.format(folder)).split() == ["VccBertForQuestionAnswering", *str(REAL.scales).split()]


def test_names_nobody_has_registered_stay_unknown() -> None:
    with pytest.raises(ValueError, match="vcc-nothing"):
        AutoConfig.for_model("vcc-nothing")
    with pytest.raises(AttributeError, match="'nothing'"):
        vcc.nothing  # noqa: B018
