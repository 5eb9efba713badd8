"""Use a wheel as a stranger would: in an empty environment, in an empty folder, with no checkout on the path.

    python tests/wheel.py dist/vcc_transformers-1.0.0-py3-none-any.whl [--pip "uv pip"]

The interpreter that runs this file gets the wheel: first without extras (what is missing names its extra), then with
`serve` and `mcp`. It prints sizes and times, and ends with an error at the first thing that does not work. Standard
library only.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 60e6
LAW = "Which law governs this agreement?"
FRAME = {"jsonrpc": "2.0"}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}

WRAP = """
import torch, vcc
from transformers import AutoModelForQuestionAnswering, BertConfig, BertForQuestionAnswering
sizes = dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48, sep_token_id=2)
model = BertForQuestionAnswering(BertConfig(vocab_size=99, max_position_embeddings=512, **sizes)).eval()
wrapped = vcc.wrap(model, vcc.VccConfig(scales=(16, 1), budget=(20,), dense_below=0))
ids = torch.randint(5, 99, (1, 3000)); ids[0, 9] = 2
with torch.no_grad():
    assert wrapped(ids).start_logits.shape == (1, 3000)
assert wrapped.vcc_report()[-1].rows < 1500
wrapped.save_pretrained("wrapped")
print(type(AutoModelForQuestionAnswering.from_pretrained("wrapped")).__name__, vcc.__file__)
"""


class Installed:
    """An environment with the wheel, and commands that run in an empty folder."""

    def __init__(self, folder: Path, pip: list[str]) -> None:
        self.pip = pip
        self.bin, self.work = folder / "env" / "bin", folder / "work"
        venv.create(folder / "env", with_pip=True)
        self.work.mkdir()
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VCC_"))}
        self.environment = {**kept, "XDG_CACHE_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}

    def command(self, *words: str) -> list[str]:
        return [words[0] if words[0] in self.pip else str(self.bin / words[0]), *words[1:]]

    def run(self, *words: str, code: int = 0) -> str:
        """What a command prints that must end with this code: its output, or its errors where it must fail."""
        done = subprocess.run(self.command(*words), cwd=self.work, env=self.environment, capture_output=True, text=True)
        if done.returncode != code:
            sys.exit(f"{' '.join(words)[:200]} ended with {done.returncode}, not {code}:\n{done.stdout}\n{done.stderr}")
        return done.stderr if code else done.stdout

    def start(self, *words: str) -> "subprocess.Popen[str]":
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        return subprocess.Popen(self.command(*words), cwd=self.work, env=self.environment, **pipes)

    def install(self, *what: str) -> None:
        if self.pip:
            self.run(*self.pip, "install", "--quiet", "--python", str(self.bin / "python"), *what)
        else:
            self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what)

    def packages(self) -> str:
        """How many packages there are, and their size."""
        names = json.loads(self.run("python", "-m", "pip", "list", "--format=json", "--disable-pip-version-check"))
        found = sum(file.stat().st_size for file in self.bin.parent.glob("lib/**/*") if file.is_file())
        return f"{len(names) - 1} packages, {found / 1e9:.2f} GB"


def check(what: str, work: Callable[[], str]) -> None:
    start = time.perf_counter()
    told = work()
    print(f"{what:34} {time.perf_counter() - start:6.1f} s  {told}", flush=True)


def need(condition: object, told: str) -> str:
    return told if condition else sys.exit(f"not as expected: {told}")


def missing_extra(installed: Installed, extra: str, *words: str) -> str:
    told = installed.run(*words, code=2).strip()
    return need(f"vcc-transformers[{extra}]" in told and "Traceback" not in told, told.splitlines()[-1])


def ask(installed: Installed) -> str:
    told = installed.run("vcc", "ask", "contract.txt", LAW, "--top", "1", "--json")
    return need("New Hampshire" in told, "New Hampshire")


def review(installed: Installed) -> str:
    (installed.work / "own.yaml").write_text(f"- {LAW}\n- When does it end?\n")
    installed.run("vcc", "review", "contract.txt", "--questions", "own.yaml", "--out", "review.csv")
    return need("New Hampshire" in (installed.work / "review.csv").read_text(), "review.csv")


def wrap(installed: Installed) -> str:
    told = installed.run("python", "-c", WRAP).strip().splitlines()[-1]
    return need(str(installed.bin.parent) in told and str(ROOT / "src") not in told, told.split()[0])


def serve(installed: Installed) -> str:
    service = installed.start("vcc", "serve", "--port", "0", "--folder", "kept")
    try:
        assert service.stdout is not None
        address = service.stdout.readline().split()[-1]
        until = time.monotonic() + 120
        while time.monotonic() < until:
            try:
                with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
                    return need(answer.status == 200, f"healthy: {answer.read().decode()}")
            except OSError:
                time.sleep(0.5)
        return sys.exit("vcc serve was not healthy after two minutes")
    finally:
        service.terminate()
        service.wait(30)


def mcp(installed: Installed) -> str:
    server = installed.start("vcc", "mcp", ".")
    try:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(json.dumps({**FRAME, "id": 1, "method": "initialize", "params": HELLO}) + "\n")
        server.stdin.flush()
        info = json.loads(server.stdout.readline())["result"]["serverInfo"]
        server.stdin.write(json.dumps({**FRAME, "method": "notifications/initialized"}) + "\n")
        server.stdin.write(json.dumps({**FRAME, "id": 2, "method": "tools/list"}) + "\n")
        server.stdin.flush()
        tools = [tool["name"] for tool in json.loads(server.stdout.readline())["result"]["tools"]]
        return need({"ask", "review", "find", "quote"} <= set(tools), f"{info['name']}: {', '.join(tools)}")
    finally:
        server.terminate()
        server.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--pip", default="", help="another installer, such as 'uv pip'; it must be on the path")
    given = parser.parse_args()
    wheel: Path = given.wheel.resolve()
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.1f} MB; Python {sys.version.split()[0]}")
    need(size < LIMIT, f"a wheel of {size / 1e6:.1f} MB: it must be under {LIMIT / 1e6:.0f} MB")
    with tempfile.TemporaryDirectory() as temporary:
        installed = Installed(Path(temporary), given.pip.split())
        (installed.work / "contract.txt").write_bytes((ROOT / "examples" / "contract.txt").read_bytes())
        constraints = ["-c", str(ROOT / "constraints.txt")]
        torch = next(line for line in constraints_of(ROOT / "constraints.txt") if line.startswith("torch=="))

        def base() -> str:
            installed.install(torch, *constraints)
            installed.install(str(wheel), *constraints)
            return installed.packages()

        def extras() -> str:
            installed.install(f"{wheel}[serve,mcp]", *constraints)
            return installed.packages()

        check("pip install WHEEL", base)
        check("vcc --version", lambda: installed.run("vcc", "--version").strip())
        check("vcc ask", lambda: ask(installed))
        check("import vcc; vcc.wrap", lambda: wrap(installed))
        check("vcc serve without its extra", lambda: missing_extra(installed, "serve", "vcc", "serve"))
        check("vcc mcp without its extra", lambda: missing_extra(installed, "mcp", "vcc", "mcp", "."))
        check("pip install WHEEL[serve,mcp]", extras)
        check("vcc review", lambda: review(installed))
        check("vcc serve", lambda: serve(installed))
        check("vcc mcp", lambda: mcp(installed))


def constraints_of(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line and not line.startswith("#")]


if __name__ == "__main__":
    main()
