"""Saved wrapped models load through transformers' Auto classes after `import vcc`, which does not import transformers.

That takes seconds, so it waits: when transformers' table of configurations is imported it gets a door for our names,
and whoever looks up one of them, such as "vcc-bert", has the wrapped classes of that family made and entered.
"""

import importlib
import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from vcc.hosts import PREFIX

TABLE = "transformers.models.auto.configuration_auto"


class Door(dict[str, Any]):
    """What others have registered with the table; its lookups ask first whether a name is in here."""

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str) and name.startswith(PREFIX):
            importlib.import_module("vcc.hosts.register").register_type(name)
        return super().__contains__(name)


class Waiting(MetaPathFinder):
    """Opens the door right after the table's import, once."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != TABLE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_open(module: ModuleType) -> None:
                run(module)
                open_door(module)

            spec.loader.exec_module = run_and_open  # type: ignore[method-assign]
        return spec


def open_door(table: Any) -> None:
    table.CONFIG_MAPPING._extra_content = Door(table.CONFIG_MAPPING._extra_content)


def enter() -> None:
    """Now if the table is there, else when it comes."""
    if TABLE in sys.modules:
        open_door(sys.modules[TABLE])
    else:
        sys.meta_path.insert(0, Waiting())
