"""Saved wrapped models load through transformers' Auto classes after `import vcc`, which does not import transformers.

Importing it takes seconds, so we wait until someone else does: then transformers' table of configurations gets a dict
that knows our names, and looking up one of them, such as "vcc-bert", makes and enters the wrapped classes of that
family. PEFT's tables of what to adapt in a family get rows for its wrapped models in the same way, and transformers'
table of pipelines gets "question-answering" (`vcc.pipeline`).
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from vcc.hosts import PREFIX

TASK = "question-answering"
REGISTERS = ("vcc.hosts.register", "vcc.decoders.register")  # each makes the wrapped classes of its own families


class RegisteredTypes(dict[str, Any]):
    """The table's registered entries, which it searches first; our families are registered at their first lookup."""

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str) and name.startswith(PREFIX):
            for module in REGISTERS:
                importlib.import_module(module).register_type(name)
        return super().__contains__(name)


class AfterImport(MetaPathFinder):
    """Changes a module once, right after its import."""

    def __init__(self, name: str, change: Callable[[Any], None]) -> None:
        self.name, self.change = name, change

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_change(module: ModuleType) -> None:
                run(module)
                self.change(module)

            spec.loader.exec_module = run_and_change  # type: ignore[method-assign]
        return spec


def add_types(table: Any) -> None:
    table.CONFIG_MAPPING._extra_content = RegisteredTypes(table.CONFIG_MAPPING._extra_content)


def name_adapters(constants: Any) -> None:
    """Copy the rows of PEFT's tables of default targets to the wrapped models of the same families."""
    families = importlib.import_module("vcc.hosts.families").FAMILIES
    for name, table in vars(constants).items():
        if name.startswith("TRANSFORMERS_MODELS_TO_") and isinstance(table, dict):
            known = [family.model_type for family in families if family.model_type in table]
            table.update({PREFIX + model_type: table[model_type] for model_type in known})


class LateTask(dict[str, Any]):
    """A row of transformers' table of pipelines that is filled when it is used: filling it imports our models."""

    def __missing__(self, key: str) -> Any:
        self.update(importlib.import_module("vcc.integrations.hugging_face").task())
        return dict(self)[key]


def add_task(pipelines: Any) -> None:
    """Bring "question-answering" back, unless transformers or another package has it."""
    if TASK not in pipelines.PIPELINE_REGISTRY.supported_tasks:
        pipelines.PIPELINE_REGISTRY.supported_tasks[TASK] = LateTask(type="text")
        getattr(pipelines, "REMOVED_TASKS", {}).pop(TASK, None)  # these names raise before the table is looked at


TABLES: dict[str, Callable[[Any], None]] = {
    "transformers.models.auto.configuration_auto": add_types,
    "transformers.pipelines": add_task,
    "peft.utils.constants": name_adapters,
}


def enter() -> None:
    """Change tables that are already imported now, others after their import."""
    for name, change in TABLES.items():
        if name in sys.modules:
            change(sys.modules[name])
        else:
            sys.meta_path.insert(0, AfterImport(name, change))
