"""Import research code: a checkout has the folder `reproduction/`, an installed wheel does not."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

from vcc.errors import UsageError

ROOT = Path(__file__).parents[2]
FOLDER = "reproduction"


def has_research() -> bool:
    return (ROOT / FOLDER / "__init__.py").is_file()


def research(module: str, wanted: str) -> ModuleType:
    """Import `reproduction.MODULE`; the error names what was `wanted` and how to get it."""
    if not has_research():
        raise UsageError(
            f"{wanted} needs the folder {FOLDER}/, which is not part of the installed package: "
            "clone the source repository and run `pip install -e .` in it"
        )
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    return importlib.import_module(f"{FOLDER}.{module}")
