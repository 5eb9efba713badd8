"""Every script of the benchmarks and of the bundled model can be imported: they use names of many modules."""

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = [file for folder in ("benchmarks", "shipped_model") for file in sorted((ROOT / folder).glob("*.py"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: file.stem)
def test_a_script_can_be_imported(script: Path) -> None:
    import_module(f"{script.parent.name}.{script.stem}")
