"""Imports point one way, never in a circle; the method needs torch alone; `import vcc` does nothing but import."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "vcc"
RESEARCH = sorted(file for folder in ("reproduction", "shipped_model") for file in (ROOT / folder).rglob("*.py"))
FILES = sorted(SOURCE.rglob("*.py"))

# The floors of the house: what each rests on. It may import itself, these, and what these rest on.
RESTS_ON = {
    "errors": ("printable",),
    "extras": (),
    "files": ("errors",),
    "printable": (),
    "checkout": ("errors",),
    "child_process": ("errors",),
    "constant_result": (),
    "cuda_graph": (),
    "gpu_time": (),
    "has_triton": ("constant_result",),
    "kept_memory": (),
    "version": (),
    "core": ("errors", "files"),
    "attention": ("core", "has_triton"),
    "config": ("core",),
    "encode": ("attention", "config"),
    "hosts": ("encode", "cuda_graph"),
    "decoders": ("hosts",),
    "wrapping": ("decoders",),
    "testing": ("hosts",),
    "data": ("errors", "files", "has_triton"),
    "tasks": ("data",),
    "qa": ("hosts", "data"),
    "documents": ("qa", "child_process", "kept_memory"),
    "chat": ("documents", "decoders"),
    "pipeline": ("documents", "wrapping"),
    "integrations": ("fleet", "pipeline", "version"),
    "serve": ("documents", "integrations", "version"),
    "fleet": ("documents",),
    "train": ("hosts", "tasks", "checkout", "gpu_time"),
    "bench": ("hosts", "tasks", "child_process", "checkout", "version", "gpu_time"),
    "commands": ("chat", "serve", "fleet", "train", "bench", "wrapping"),
    "cli": ("commands", "extras"),
    "__main__": ("cli",),
    # The public names; nothing inside imports them: each is taken from where it is defined.
    "vcc": ("integrations",),
}


def below(part: str) -> set[str]:
    return {part}.union(*(below(other) for other in RESTS_ON[part]))


def part_of(module: str) -> str:
    """vcc.core.cut -> core; vcc.encode -> encode; vcc -> vcc."""
    return module.split(".")[1] if "." in module else module


def name_of(file: Path) -> str:
    base = SOURCE.parent if file.is_relative_to(SOURCE) else ROOT
    relative = file.relative_to(base).with_suffix("")
    return ".".join(part for part in relative.parts if part != "__init__")


MODULES = {name_of(file) for file in (*FILES, *RESEARCH)}


def imports(file: Path) -> Iterator[tuple[str, bool]]:
    """Every module a file imports, anywhere in it, and whether that happens when the file itself is imported."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    later = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        or (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"))
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) not in later) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: line {node.lineno}: imports are absolute"
            for alias in node.names:  # `from vcc.core import cut` names a file; `from vcc import encode` the function
                inner = f"{node.module}.{alias.name}"
                named = inner if inner in MODULES and node.module != "vcc" else node.module or ""
                yield named, id(node) not in later


def of_ours(file: Path) -> set[str]:
    return {module for module, _ in imports(file) if module.split(".")[0] in ("vcc", "reproduction", "shipped_model")}


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of files, each of which leads to every other of its group, and back to itself, by imports."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            for module in edges.get(waiting.pop(), set()) - found:
                found.add(module)
                waiting.append(module)
        return found

    leads_to = {module: reached(module) for module in edges}
    groups = {frozenset(b for b in leads_to[a] if a in leads_to.get(b, ())) for a in edges}
    return sorted(sorted(group) for group in groups if group)


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_imports_point_one_way(file: Path) -> None:
    here = part_of(name_of(file))
    for module in of_ours(file):
        assert module.split(".")[0] == "vcc", f"{name_of(file)} imports {module}, which the wheel does not have"
        assert part_of(module) in below(here), f"{name_of(file)} imports {module}: {here} does not rest on it"


@pytest.mark.parametrize("file", RESEARCH, ids=name_of)
def test_reproduction_does_not_import_the_shipped_model(file: Path) -> None:
    if name_of(file).startswith("reproduction"):
        assert not [module for module in of_ours(file) if module.startswith("shipped_model")]


def test_no_class_name_is_defined_twice_in_research_code() -> None:
    """Nor a name that the library has: one word, one thing."""
    where: dict[str, list[str]] = {}
    for file in (*FILES, *RESEARCH):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(name_of(file))
    ours = {name_of(file) for file in RESEARCH}
    assert {name: files for name, files in where.items() if len(files) > 1 and ours & set(files)} == {}


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports inside functions and those for type checkers count: a circle that is only put off is one."""
    assert circles({name_of(file): of_ours(file) for file in (*FILES, *RESEARCH)}) == []


def test_circles_are_found() -> None:
    edges = {"a": {"b", "e"}, "b": {"c"}, "c": {"a", "d"}, "d": {"d"}, "e": {"f"}, "f": set()}
    assert circles(edges) == [["a", "b", "c"], ["d"]]


def test_the_floors_are_those_of_the_house() -> None:
    assert {part_of(name_of(file)) for file in FILES} <= RESTS_ON.keys()
    assert "train" not in below("documents") and "tasks" not in below("qa") and "core" in below("cli")


@pytest.mark.parametrize("file", [file for file in FILES if part_of(name_of(file)) == "core"], ids=name_of)
def test_the_method_needs_torch_alone(file: Path) -> None:
    for module, _ in imports(file):
        top = module.split(".")[0]
        assert top in {"torch", "vcc"} or top in sys.stdlib_module_names, f"{name_of(file)} imports {module}"


WATCHED = """
import json, sys
import torch, transformers
state, dtype, threads = torch.get_rng_state(), torch.get_default_dtype(), torch.get_num_threads()
before, opened, calls = set(sys.modules), [], []
def hook(event, args):
    if event == "open" and not str(args[0]).endswith((".py", ".pyc", ".so", ".pth", ".zip")):
        opened.append(str(args[0]))
    elif event.split(".")[0] in ("socket", "subprocess", "urllib"):
        calls.append(event)
sys.addaudithook(hook)
import vcc
assert torch.equal(state, torch.get_rng_state()), "importing vcc drew random numbers"
assert (dtype, threads) == (torch.get_default_dtype(), torch.get_num_threads()), "importing vcc changed torch"
print(json.dumps([sorted(set(sys.modules) - before), opened, calls]))
"""


def test_importing_vcc_opens_nothing_and_loads_two_files_of_ours() -> None:
    result = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, check=True)
    loaded, opened, calls = json.loads(result.stdout.splitlines()[-1])
    assert [name for name in loaded if name not in sys.stdlib_module_names] == ["vcc", "vcc.hosts", "vcc.hosts.auto"]
    assert opened == []
    assert calls == []
