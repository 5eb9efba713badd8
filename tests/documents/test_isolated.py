"""A file is read in a process of its own: the same text, and whatever the file does, its reader alone dies of it."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.documents.samples import epub_bytes, pdf_bytes
from vcc.documents import isolated
from vcc.documents.formats.gate import DEFAULT_LIMITS, Limits
from vcc.documents.formats.read import read_data
from vcc.documents.isolated import ReadingError, read_isolated
from vcc.documents.text import Text
from vcc.errors import DocumentError

MIB = 2**20
FILES = {
    "a.txt": "Ein schöner Text.\n\n1. TERM\n\nIt ends.".encode(),
    "a.pdf": pdf_bytes([["One line"], ["Another"]], "Title"),
    "a.epub": epub_bytes(["<h1>One</h1><p>First.</p>", "<p>Second.</p>"]),
}


def read(
    data: bytes, name: str = "a.txt", seconds: float = 20, memory: int = 500 * MIB, limits: Limits = DEFAULT_LIMITS
) -> Text:
    return read_isolated(data, name, limits, seconds, memory)


def plant(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> None:
    """New children read a file by running `code` before: what a fault in a library would do."""
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'vcc.documents.isolated' in ' '.join(sys.orig_argv):\n"
        "    from vcc.documents.formats import read\n"
        "    def read_file(file, old=read.read_file):\n"
        "        if b'poison' in file.data:\n"
        f"            {code}\n"
        "        return old(file)\n"
        "    read.read_file = read_file\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, sys.path)]))
    isolated.end_children()


@pytest.fixture(autouse=True)
def no_children_left() -> None:
    isolated.end_children()


def test_a_reader_that_is_killed_before_it_is_ready_is_not_the_files_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class Unlucky(isolated.Child):
        def __init__(self) -> None:
            super().__init__()
            started.append(self)
            if len(started) < 3:
                self.process.kill()

    monkeypatch.setattr(isolated, "Child", Unlucky)
    assert read(FILES["a.txt"]) == read_data(FILES["a.txt"], "a.txt")
    assert len(started) == 3


@pytest.mark.parametrize("name", FILES)
def test_it_is_the_text_that_is_read_at_home(name: str) -> None:
    assert read(FILES[name], name) == read_data(FILES[name], name)


def test_a_broken_file_breaks_the_same_rule_and_keeps_the_child() -> None:
    with pytest.raises(DocumentError, match="is not a PDF") as raised:
        read(b"no pdf", "a.pdf")
    assert not isinstance(raised.value, ReadingError)
    (child,) = isolated._idle
    assert read(FILES["a.txt"]).text.startswith("Ein")
    assert isolated._idle == [child]


def test_limits_hold_there_too() -> None:
    with pytest.raises(DocumentError, match="above the limit of 5"):
        read(b"six by", limits=Limits(file_bytes=5))


@dataclass(frozen=True)
class Fault:
    code: str
    kind: str
    rule: str


FAULTS = (
    Fault("import os; os.kill(os.getpid(), 11)", "crash", "SIGSEGV"),
    Fault("import os; os._exit(7)", "crash", "exit code 7"),
    Fault("while True: pass", "hang", "within 1 seconds"),
    Fault("import signal, time; signal.alarm(0); time.sleep(60)", "hang", "within 1 seconds"),
    Fault("bytearray(10**9)", "memory", "200 MiB"),
    Fault("[b'x' * 2**20 + bytes([i % 256]) for i in range(10**6)]", "memory", "200 MiB"),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind}: {fault.code[-30:]}")
def test_a_fault_costs_one_file(fault: Fault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant(monkeypatch, tmp_path, fault.code)
    assert read(b"before", seconds=20).text == "before"
    with pytest.raises(ReadingError, match=fault.rule) as raised:
        read(b"poison", "bad.txt", 1 if fault.kind == "hang" else 60, 200 * MIB)
    assert (raised.value.kind, raised.value.source) == (fault.kind, "bad.txt")
    assert isolated._idle == []
    assert read(b"after").text == "after"


def test_a_fault_that_a_format_takes_for_a_broken_file_is_still_out_of_memory() -> None:
    zeros = epub_bytes(["0" * (80 * MIB)])
    with pytest.raises(ReadingError) as raised:
        read(zeros, "a.epub", 20, 60 * MIB)
    assert raised.value.kind == "memory"


def test_children_import_no_torch_and_see_no_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant(monkeypatch, tmp_path, "print('to nobody'); raise RuntimeError('torch' in sys.modules, sys.stdin.read())")
    with pytest.raises(DocumentError, match=r"RuntimeError: \(False, ''\)"):
        read(b"poison")


def test_threads_have_a_child_each_and_leave_them_to_the_next() -> None:
    texts: list[str] = []
    threads = [threading.Thread(target=lambda i=i: texts.append(read(b"%d" % i).text)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(texts) == ["0", "1", "2", "3"]
    some = len(isolated._idle)
    assert 1 <= some <= 4
    read(b"one more")
    assert len(isolated._idle) == some


ESCAPES = {  # what a fault in a library, taken over by a file, could try
    "the network": "import socket; socket.socket()",
    "another program": "import os; os.execv('/bin/true', ['true'])",
    "another process": "import os; os.fork()",
    "the parent": "import os; os.kill(os.getppid(), 0)",
    "the parent's environment": "import os; open(f'/proc/{os.getppid()}/environ').read()",
    "the user's files": "open(PLACE + '/secret').read()",
    "a list of them": "import os; os.listdir(PLACE)",
    "a new file": "open(PLACE + '/new', 'w')",
    "an old file": "open(PLACE + '/secret', 'a')",
    "removing": "import os; os.unlink(PLACE + '/secret')",
    "permissions": "import os; os.chmod(PLACE + '/secret', 0o777)",
    "the parent's limits": "import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
}
CODE = """
try:
                ESCAPE
            except PermissionError:
                raise ValueError('not permitted') from None
            raise ValueError('done')
"""


@pytest.mark.skipif(bool(isolated.open_doors()), reason="this system has no sandbox")
@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_a_reader_that_is_taken_over_can_do_little(
    escape: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    code = CODE.strip().replace("ESCAPE", escape.replace("PLACE", repr(str(tmp_path))))
    plant(monkeypatch, tmp_path, code)
    with pytest.raises(DocumentError, match="not permitted"):
        read(b"poison")
    assert (tmp_path / "secret").read_text() == "secret" and not (tmp_path / "new").exists()


def test_a_reader_has_no_token_and_few_rights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("VCC_TOKEN", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "HOME"):
        monkeypatch.setenv(name, "of-the-parent")
    limits = "[resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)]"
    plant(monkeypatch, tmp_path, f"import os, resource; raise ValueError('of-the-parent' in str(os.environ), {limits})")
    with pytest.raises(DocumentError, match=r"\(False, \[0, 64\]\)"):
        read(b"poison")


ORPHAN = """
import sys
from vcc.documents import isolated
from vcc.documents.formats.gate import Limits
child = isolated.Child()
print(child.process.pid, flush=True)
child.ask(b"poison", "bad.txt", Limits(), 3, 2**30)
"""


def test_a_child_does_not_outlive_its_parent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Killed while the child works on a file that never ends, the parent cannot end it: the child does."""
    plant(monkeypatch, tmp_path, "while True: pass")
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(0.5)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    for _ in range(200):
        if not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text():
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("the child runs on")
