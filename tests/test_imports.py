"""Imports point one way, the method needs torch alone, and `import vcc` does nothing but import."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "vcc"
FILES = sorted(SOURCE.rglob("*.py"))

# Each part may import itself and the parts before it.
ORDER = [
    {"errors", "files"},
    {"core"},
    {"attention"},
    {"config"},
    {"encode"},
    {"testing"},
    {"hosts"},
    {"vcc"},  # the package itself: the public names
    {"data"},
    {"tasks", "qa"},
    {"documents"},
    {"train", "bench"},
    {"commands"},
    {"cli", "__main__"},
]
RANK = {part: rank for rank, parts in enumerate(ORDER) for part in parts}

HEAVY = {"accelerate", "bs4", "datasets", "docx", "lxml", "matplotlib", "nltk", "pandas", "PIL", "pyarrow", "pypdf"}
HEAVY |= {"rouge_score", "scipy", "selectolax", "sentencepiece", "sklearn", "tensorboard", "torchvision", "triton"}


def part_of(module: str) -> str:
    """vcc.core.cut -> core; vcc -> vcc; vcc.encode -> encode."""
    return module.split(".")[1] if module.count(".") else module


def name_of(file: Path) -> str:
    relative = file.relative_to(SOURCE.parent).with_suffix("")
    return ".".join(part for part in relative.parts if part != "__init__")


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
            module = node.module or ""
            for alias in node.names:  # `from vcc import core` names a part too
                inner = SOURCE.parent.joinpath(*module.split("."), alias.name)
                is_module = module.split(".")[0] == "vcc" and (inner.is_dir() or inner.with_suffix(".py").is_file())
                # vcc.encode and vcc.compile are functions when taken from the package itself
                yield (f"{module}.{alias.name}" if is_module and module != "vcc" else module), id(node) not in later


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_imports_point_one_way(file: Path) -> None:
    here = part_of(name_of(file))
    for module, _ in imports(file):
        if module.split(".")[0] == "vcc":
            there = part_of(module)
            assert RANK[there] <= RANK[here], f"{name_of(file)} imports {module}: {there} comes after {here}"


def test_parts_of_one_rank_do_not_import_in_a_circle() -> None:
    edges = {
        (part_of(name_of(file)), part_of(module))
        for file in FILES
        for module, _ in imports(file)
        if module.split(".")[0] == "vcc"
    }
    for here, there in edges:
        assert here == there or (there, here) not in edges, f"{here} and {there} import each other"


@pytest.mark.parametrize("file", [file for file in FILES if part_of(name_of(file)) == "core"], ids=name_of)
def test_the_method_needs_torch_alone(file: Path) -> None:
    for module, at_once in imports(file):
        top = module.split(".")[0]
        if module.startswith("vcc.attention"):
            assert not at_once, f"{name_of(file)} imports {module} at once; a kernel is optional"
        else:
            assert top in {"torch", "vcc"} or top in sys.stdlib_module_names, f"{name_of(file)} imports {module}"


def statements(file: Path) -> Iterator[str]:
    """The file's own imports of torch and transformers, as they stand at its top."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        line = ast.unparse(node) if isinstance(node, (ast.Import, ast.ImportFrom)) else ""
        if line.startswith(("import torch", "from torch", "import transformers", "from transformers")):
            yield line


WATCHED = """
import json, sys
{preload}
import torch
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


def test_importing_vcc_opens_nothing_and_loads_nothing_heavy() -> None:
    """What transformers loads and opens for the classes we name is not ours to choose, so it is loaded before."""
    needed = [file for file in FILES if RANK[part_of(name_of(file))] <= RANK["vcc"]]
    preload = "\n".join(sorted({line for file in needed for line in statements(file)}))
    result = subprocess.run(
        [sys.executable, "-c", WATCHED.format(preload=preload)], capture_output=True, text=True, check=True
    )
    loaded, opened, calls = json.loads(result.stdout.splitlines()[-1])
    assert "vcc.encode" in loaded
    assert not {name.split(".")[0] for name in loaded} & HEAVY
    assert {part_of(name) for name in loaded if name.split(".")[0] == "vcc"} <= {
        part for part, rank in RANK.items() if rank <= RANK["vcc"]
    }
    assert opened == []
    assert calls == []
