"""The table of commands. Each is a typed function: its signature is the command line, its docstring the help."""

import ast
import contextlib
import importlib
import io
import os
import platform
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

COMMANDS = {
    "ask": "vcc.commands.ask:ask",
    "chat": "vcc.commands.chat:chat",
    "review": "vcc.commands.review:review",
    "extract": "vcc.commands.extract:extract",
    "verify": "vcc.commands.verify:verify",
    "index": "vcc.commands.index:index",
    "find": "vcc.commands.find:find",
    "see": "vcc.commands.see:see",
    "serve": "vcc.commands.serve:serve",
    "mcp": "vcc.commands.mcp:mcp",
    "pretrain": "vcc.commands.pretrain:pretrain",
    "finetune": "vcc.commands.finetune:finetune",
    "evaluate": "vcc.commands.evaluate:evaluate",
    "tasks": "vcc.commands.tasks:list_tasks",
    "bench": "vcc.commands.bench:bench",
    "reproduce": "vcc.commands.reproduce:reproduce",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failure, 2 bad request, 130 interrupted."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version", "version"):
        from vcc.version import __version__

        print(f"vcc {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"vcc: unknown command {name!r}: it must be one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    from vcc.commands.options import call

    module, _, function = COMMANDS[name].partition(":")
    return guarded(lambda: call(getattr(importlib.import_module(module), function), rest, f"vcc {name}"))


def guarded(work: Callable[[], Any]) -> int:
    """Do the work. User errors print one message; anything else is reported as a bug, with a traceback."""
    from vcc.errors import Failure, UsageError, is_out_of_memory
    from vcc.extras import how_to_install

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that the terminal cannot encode must not end a command
            stream.reconfigure(errors="backslashreplace")
    try:
        work()
        return 0
    except SystemExit as error:  # the parser has printed its message
        return error.code if isinstance(error.code, int) else 1
    except UsageError as error:
        return fail(str(error), 2)
    except Failure as error:
        return fail(str(error), 1)
    except OSError as error:
        if os.environ.get("VCC_TRACEBACK"):
            raise
        return fail(f"{error} (VCC_TRACEBACK=1 shows where)", 1)
    except KeyboardInterrupt:
        return fail("interrupted; no file is left incomplete, and --resume continues a training run", 130)
    except Exception as error:
        if is_out_of_memory(error):
            return fail(f"out of memory: {error}", 1)
        if isinstance(error, ImportError) and (needed := how_to_install(error)):
            return fail(needed, 2)
        return fail(bug_report(), 1)


def fail(message: str, code: int) -> int:
    """Print a message without control characters, and return the exit code."""
    from vcc.printable import printable_lines

    print(printable_lines(f"vcc: {message}"), file=sys.stderr)
    return code


def bug_report() -> str:
    """The message for an unexpected exception: versions and traceback."""
    from importlib.metadata import PackageNotFoundError, version

    versions = [f"Python {platform.python_version()}"]
    for name in ("vcc-transformers", "torch", "transformers"):
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    return (
        "this is a bug in vcc. Please report it with the lines below; they may contain names of your files, so check "
        f"them first.\n{', '.join(versions)}, {platform.platform()}\n{traceback.format_exc()}"
    )


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary(target)}" for name, target in COMMANDS.items()]
    head = ["usage: vcc COMMAND [options]", "", "Long documents through ordinary Transformers.", ""]
    return "\n".join(
        [*head, *lines, "", "Run vcc COMMAND --help for the options of a command, vcc --version for the version."]
    )


def summary(target: str) -> str:
    """Return the first line of a command's docstring without importing it, because torch takes seconds to import."""
    module, _, function = target.partition(":")
    file = Path(__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    raise LookupError(f"{file} has no function {function}")


if __name__ == "__main__":
    sys.exit(main())
