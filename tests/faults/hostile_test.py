"""Hand the commands what nobody should: 1,000 generated files and command lines. None may hang, or end in a traceback.

    python tests/faults/hostile_test.py [--files 800] [--lines 200] [--seed 0] [--seconds 30]

Each case is a function of (seed, number), so a failure is made again with --only NUMBER. A case runs in a forked child
with a limit on its time and memory: torch and the models are imported once.
"""

import argparse
import contextlib
import importlib
import io
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "src")]

import torch  # noqa: E402

from tests.documents import small_model  # noqa: E402
from tests.documents.samples import epub_bytes, pdf_bytes  # noqa: E402
from tests.train import small  # noqa: E402
from vcc.cli import COMMANDS  # noqa: E402
from vcc.cli import main as command  # noqa: E402
from vcc.commands.shared import collection  # noqa: E402
from vcc.documents.formats.word import WORD  # noqa: E402
from vcc.documents.shipped import load_asker  # noqa: E402

torch.set_num_threads(1)  # threads do not survive a fork
MEMORY = 8 << 30  # bytes a case may map; torch alone maps several
PATIENCE = 20  # times the processor's seconds that a case may take on a busy machine
SUFFIXES = ("txt", "md", "html", "xhtml", "pdf", "docx", "epub", "text", "")
UNITS = (
    ' ', '\t', '\n', '\r', '\x0c', '\x0b', '\x00', 'a', 'w1 ', '\xe9', '\u0301', '\u0f73', '\u200b', '\u202e',
    '\x1b[2J', '\x9b', '\ufeff', '<a', '<!--', '<![', '</', '<h1>w1</h1>', '<p>', '<script>', '<b>w2', '<td>',
    '<a b="', '&#', '&#9999999999;', '&lt', '[', '](', '*w ', '`', '> ', '- ', '#', '1.', '1.1', '|', '---\n',
    'title: ', 'CHAPTER I\n\n', '%PDF-', '%', '{', '}', '\U0001f600', '\ud800', 'w3. W4', '=\n', '\\', "'", '"',
    '~', '```\n', '![', '<?xml ', '<!DOCTYPE html>', '<svg><title>',
)  # fmt: skip


def words(rng: random.Random, most: int) -> str:
    """Few kinds of pieces, some of them very often."""
    kinds = rng.sample(UNITS, rng.randint(1, 4))
    found: list[str] = []
    for _ in range(rng.randint(1, 6)):
        found.append(rng.choice(kinds) * int(most ** rng.random()))
    return small_model.text(20, rng.randint(0, 99)) + "".join(found) + "w5 w6"


def encoded(rng: random.Random, text: str) -> bytes:
    return text.encode(rng.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16", "cp1252", "utf-7"]), "ignore")


def docx_bytes(rng: random.Random) -> bytes:
    tags = ("p", "r", "t", "tr", "tc", "tbl", "txbxContent", "del", "sdt")
    opened, body = [], ""
    for _ in range(int(3000 ** rng.random())):
        if opened and rng.random() < 0.45:
            body += f"</w:{opened.pop()}>"
        else:
            opened.append(rng.choice(tags))
            body += f"<w:{opened[-1]}>w1"
    while opened:
        body += f"</w:{opened.pop()}>"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr(
            "word/document.xml", f'<w:document xmlns:w="{WORD[:-1]}"><w:p><w:t>w2</w:t></w:p>{body}</w:document>'
        )
        if rng.random() < 0.3:
            made.writestr("word/footnotes.xml", words(rng, 1000))
    return buffer.getvalue()


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Cut, flipped, doubled or with noise in the middle; one in four untouched."""
    place = rng.randrange(max(len(data), 1))
    kind = rng.randrange(4)
    if kind == 0:
        return data[:place]
    if kind == 1 and data:
        return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]
    if kind == 2:
        return data[:place] + rng.randbytes(rng.randint(1, 200)) + data[place:]
    return data


def content(rng: random.Random) -> bytes:
    kind = rng.randrange(8)
    if kind == 0:
        return damaged(
            rng,
            pdf_bytes(
                [[words(rng, 30).replace("\n", " ").encode("cp1252", "ignore").decode("cp1252")] for _ in range(3)]
            ),
        )
    if kind == 1:
        return damaged(
            rng, epub_bytes([words(rng, 2000).encode("utf-8", "ignore").decode() for _ in range(rng.randint(1, 5))])
        )
    if kind == 2:
        return damaged(rng, docx_bytes(rng))
    if kind == 3:
        return rng.randbytes(int(20_000 ** rng.random()))
    return damaged(rng, encoded(rng, words(rng, 30_000)))


def file_case(rng: random.Random, place: Path, model: str) -> list[str]:
    """A file, or a folder of odd things, and a question to it."""
    name = os.fsdecode(bytes(rng.choice(b"ab\x1b\xff\n .-[") for _ in range(rng.randint(1, 8))).strip(b" .-") or b"a")
    path = place / f"x{name}.{rng.choice(SUFFIXES)}"
    if rng.random() < 0.85:
        path.write_bytes(content(rng))
    else:
        path = place / "box"
        path.mkdir()
        (path / "good.txt").write_text(small_model.text(30))
        for make in rng.sample(ODD, 3):
            make(path)
        (path / f"c{name}.md").write_bytes(content(rng))
    extra = rng.choice([[], ["--json"], ["--top", "1"], ["--html", str(place / "page.html")], ["--no-cache"]])
    doing = rng.choice(["ask", "ask", "ask", "see", "index", "find", "extract", "verify"])
    if doing == "index":
        return ["index", str(path), "--model", model]
    if doing == "extract":
        schema = place / "schema.json"
        schema.write_text('{"type": "object", "properties": {"w1": {"type": "string", "format": "date"}}}')
        return ["extract", str(path), "--schema", str(schema), "--model", model]
    if doing == "verify" or (doing == "find" and path.is_dir()):
        return [doing, str(path), "w1 w2 w3 w4.", "--model", model]
    return [
        "see" if doing == "see" else "ask",
        str(path),
        "w1 w2 ?",
        *(extra if doing == "ask" or extra[:1] in ([], ["--top"], ["--html"]) else []),
        "--model",
        model,
    ]


def nested(folder: Path) -> None:
    for _ in range(250):
        folder = folder / "d"
        folder.mkdir()


ODD: tuple[Callable[[Path], object], ...] = (
    lambda box: os.mkfifo(box / "pipe.txt"),
    lambda box: (box / "zero.txt").symlink_to("/dev/zero"),
    lambda box: (box / "loop.txt").symlink_to("loop.txt"),
    lambda box: (box / "up").symlink_to(".."),
    lambda box: (box / "passwd.txt").symlink_to("/etc/passwd"),
    lambda box: (box / "empty.pdf").touch(),
    nested,
)

VALUES = (
    '0', '-1', '1', 'nan', 'inf', '-inf', '1e400', '2', '99999999999999999999999', '', 'x', '1,2', ',', 'true',
    '\udcff', '\x1b', '-', '--', '.', '/', '/dev/null', '/nowhere/x',
)  # fmt: skip
SENSIBLE = ("1", "2", "3", "7", "64", "100", "0.5", "4,1", "8,2,1", "true")
OPTIONS = {
    "ask": ("--top", "--threshold", "--html", "--json", "--no-cache", "--max-size", "--max-nesting", "--model"),
    "review": ("--top", "--html", "--json", "--max-size"),
    "see": ("--top", "--html", "--png", "--max-nesting"),
    "index": ("--list", "--clear", "--max-size"),
    "find": ("--top", "--json", "--seconds", "--memory", "--model"),
    "extract": ("--schema", "--out", "--threshold", "--json", "--max-nesting", "--seconds"),
    "verify": ("--json", "--no-cache", "--max-size", "--memory"),
    "finetune": ("--examples", "--eval-every", "--eval-examples", "--length", "--clip", "--lr", "--depths",
                 "--lengths", "--train-examples", "--pairs", "--seed", "--task-seed", "--batch-size", "--steps",
                 "--epochs", "--warmup", "--weight-decay", "--keep", "--save-every", "--minutes", "--head", "--scales",
                 "--budget", "--window", "--window-layers", "--explore", "--dense-below", "--max-vips",
                 "--gradient-accumulation", "--precision"),
    "evaluate": ("--examples", "--length", "--batch-size", "--depths", "--lengths", "--pairs", "--split", "--data",
                 "--out", "--precision", "--scales", "--budget", "--tokenizer"),
    "pretrain": ("--length", "--mask-ratio", "--mean-span", "--cluster-window", "--cluster-density", "--field",
                 "--tokens-per-byte", "--steps", "--lr", "--seed", "--batch-size"),
    "tasks": ("--results",),
}  # fmt: skip


def line_case(rng: random.Random, place: Path, model: str, encoder: str) -> list[str]:
    """A command line with values that make no sense."""
    name = rng.choice([*OPTIONS, "finetune", "evaluate"])
    (place / "a.txt").write_text(small_model.text(60))
    start = {
        "ask": ["ask", str(place / "a.txt"), "w1 w2", "--model", model],
        "review": ["review", str(place / "a.txt"), "--model", model, "--html", str(place / "r.html")],
        "see": ["see", str(place / "a.txt"), "w1", "--model", model],
        "index": ["index"],
        "find": ["find", str(place), "w1 w2", "--model", model],
        "extract": ["extract", str(place / "a.txt"), "--model", model],
        "verify": ["verify", str(place / "a.txt"), "w1 w2 w3 w4.", "--model", model],
        "finetune": ["finetune", "needle", "--model", encoder, "--fresh", "--out", str(place / "run"), "--steps", "1",
                     "--batch-size", "2", "--device", "cpu", "--lengths", "64", "--length", "64", "--examples", "4"],
        "evaluate": ["evaluate", "needle", "--model", encoder, "--fresh", "--device", "cpu", "--lengths", "64",
                     "--length", "64", "--examples", "2", "--out", str(place / "scores")],
        "pretrain": ["pretrain", "--data", str(place), "--model", encoder, "--fresh", "--out", str(place / "run"),
                     "--steps", "1", "--batch-size", "2", "--length", "32", "--device", "cpu"],
        "tasks": ["tasks"],
    }[name]  # fmt: skip
    more = []
    values = VALUES + SENSIBLE * 3  # many of one kind are refused at once, and nothing behind the parser is tried
    for option in rng.sample(OPTIONS[name], rng.randint(1, min(2, len(OPTIONS[name])))):
        more += [option, rng.choice(values)]
    if rng.random() < 0.1:
        rng.shuffle(more)
    if rng.random() < 0.1:
        more.append(rng.choice(VALUES))
    return [*start, *more]


def run(arguments: list[str], place: Path, seconds: int) -> tuple[int, str]:
    """The command in a child: its exit code (negative: the signal that ended it), and all it printed."""
    log = place.with_suffix(".log")
    child = os.fork()
    if child == 0:
        code = 70
        with contextlib.suppress(BaseException):
            opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for stream, target in ((0, nothing), (1, opened), (2, opened)):
                os.dup2(target, stream)
            os.chdir(place)
            os.environ["XDG_CACHE_HOME"] = str(place / "cache")
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
            signal.alarm(PATIENCE * seconds)  # one that waits takes no time of the processor
            sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), "utf-8", line_buffering=True)
            sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), "utf-8", line_buffering=True)
            code = command(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status), log.read_bytes().decode("utf-8", "replace")


def verdict(code: int, said: str) -> str:
    """What is wrong with how a command ended; "" if nothing is."""
    if code in (-signal.SIGALRM, -signal.SIGXCPU):
        return "it hangs" if code == -signal.SIGALRM else "it takes too long"
    if code not in (0, 1, 2):
        return f"it ended with {code}: {said[-300:]}"
    if "Traceback" in said or "this is a bug" in said:
        return said[-900:]
    if any(letter in said for letter in "\x1b\x9b\x07\u202e"):
        return f"a terminal would obey this: {said!r:.300}"
    return (
        ""
        if code == 0 or "vcc: " in said or "usage: " in said or "error: " in said
        else f"no reason given: {said!r:.200}"
    )


def prepare() -> None:
    """Import all that the children would import, each for itself."""
    for target in COMMANDS.values():
        importlib.import_module(target.partition(":")[0])
    for name in ("pypdf", "markdown_it", "jinja2", "matplotlib.pyplot", "transformers.models.bert.modeling_bert"):
        importlib.import_module(name)
    collection.default_workers = lambda: 0  # a folder is read in the child: each worker would import torch again


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=800)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=30, help="of the processor, that a case may take")
    parser.add_argument("--only", type=int)
    parser.add_argument("--first", type=int, default=0, help="go on from this number")
    options = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", NO_COLOR="1", COLUMNS="100")
    codes: Counter[int] = Counter()
    failed, began, slowest = 0, time.monotonic(), (0.0, 0)
    with tempfile.TemporaryDirectory() as top:
        prepare()
        model = small_model.saved(Path(top) / "model")
        encoder = small.encoder(Path(top) / "encoder")
        load_asker(model)  # the children find it loaded
        every = range(options.first, options.files + options.lines)
        for number in every if options.only is None else (options.only,):
            rng = random.Random(f"{options.seed} {number}")
            place = Path(top) / str(number)
            place.mkdir()
            is_line = number >= options.files
            arguments = line_case(rng, place, model, encoder) if is_line else file_case(rng, place, model)
            start = time.monotonic()
            code, said = run(arguments, place, options.seconds)
            slowest = max(slowest, (time.monotonic() - start, number))
            codes[code] += 1
            if problem := verdict(code, said):
                failed += 1
                print(f"FAIL {number}: {' '.join(arguments)!a:.400}\n  {problem}", flush=True)
            shutil.rmtree(place, ignore_errors=True)
    print(f"exit codes {dict(sorted(codes.items()))}; the slowest took {slowest[0]:.1f} s (number {slowest[1]})")
    print(f"{sum(codes.values()) - failed} passed, {failed} failed, in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
