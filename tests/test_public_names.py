"""What `import vcc` gives: every public name, when it is used, whatever was imported before."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import vcc

SOURCE = Path(vcc.__file__)
HEAVY = ("torch", "transformers", "numpy", "rich")


def fresh(code: str) -> str:
    """What this code prints in a new process."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("work", ["import vcc; dir(vcc)", "from vcc.cli import main; main(['--help'])"])
def test_importing_vcc_and_its_help_load_nothing_heavy(work: str) -> None:
    code = f"import sys\n{work}\nprint([name for name in {HEAVY} if name in sys.modules])"
    assert fresh(code).splitlines()[-1] == "[]"


FIRST = [
    "import vcc",
    "import vcc.encode",
    "from vcc.encode import Step",
    "import vcc; vcc.encode; import vcc.encode",
    "import importlib; assert importlib.import_module('vcc.encode').Step",
    "from vcc import encode; assert callable(encode)",
]

IN_EVERY_ORDER = """
import os, sys, types
import torch  # seconds, spent once; none of our files is imported yet

def check(first):
    exec(first, {{}})
    import vcc
    from vcc.encode import Step
    assert isinstance(vcc.encode, types.FunctionType) and vcc.encode.__module__ == "vcc.encode"
    assert isinstance(sys.modules["vcc.encode"], types.ModuleType) and sys.modules["vcc.encode"].Step is Step

assert not any(name.startswith("vcc") for name in sys.modules)
for first in {orders}:
    child = os.fork()
    if not child:
        check(first)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, first
"""


def test_encode_is_the_function_whatever_was_imported_first() -> None:
    fresh(IN_EVERY_ORDER.format(orders=FIRST))


STAR = """
before = {*globals(), "before"}
from vcc import *
print(sorted(set(globals()) - before))
import sys, types, vcc
for name, where in vcc.PUBLIC.items():
    module, _, attribute = where.partition(":")
    value = globals()[name]
    assert value is getattr(vcc, name) is getattr(sys.modules[module], attribute or name), name
    assert not isinstance(value, types.ModuleType) and name in dir(vcc), name
"""


def test_star_gives_the_public_names_and_dir_shows_them() -> None:
    names = [
        "Cut",
        "DecoderConfig",
        "Host",
        "Rows",
        "SegmentTree",
        "VccConfig",
        "build_tree",
        "choose_cut",
        "compile",
        "compile_seconds",
    ]
    names += [
        "encode",
        "flatten_tree",
        "folder",
        "join_vips",
        "pipeline",
        "read",
        "read_cut",
        "review",
        "split_vips",
        "unwrap",
    ]
    names += ["wrap", "write_cut"]
    assert sorted(vcc.PUBLIC) == names == sorted(vcc.__all__)
    assert fresh(STAR).strip() == str(names)
    assert fresh(f"import vcc\nprint([name for name in {names} if name not in dir(vcc)])").strip() == "[]"


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'vcc' has no attribute 'nothing'"):
        vcc.nothing  # noqa: B018


def test_values_travel_to_a_process_that_has_imported_nothing() -> None:
    packed = fresh(
        "import pickle, torch, vcc\n"
        "rows = vcc.Rows(torch.ones(1, 2, 3), torch.ones(1, 2), torch.zeros(1, 2))\n"
        "print(pickle.dumps((rows, vcc.VccConfig(), vcc.encode)).hex())"
    ).strip()
    code = f"import pickle; rows, config, encode = pickle.loads(bytes.fromhex({packed!r}))\n"
    fresh(code + "import vcc; assert rows.hidden.sum() == 6 and type(rows) is vcc.Rows and encode is vcc.encode")


def test_type_checkers_read_the_same_table() -> None:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imported = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in block.body:  # read = read_document
        if isinstance(node, ast.Assign):
            imported[ast.unparse(node.targets[0])] = imported.pop(ast.unparse(node.value))
    table = {name: where.partition(":")[::2] for name, where in vcc.FOUND.items()}
    assert imported == {name: (module, attribute or name) for name, (module, attribute) in table.items()}
    assert SOURCE.with_name("py.typed").exists()
