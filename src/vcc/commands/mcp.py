"""`vcc mcp`: documents as tools for Claude, Cursor and other programs that speak the Model Context Protocol."""

from pathlib import Path
from typing import Annotated

from vcc.commands.shared.documents import DEFAULT_READ_LIMITS, Model, NoCache, ReadLimits, remark
from vcc.documents.shipped import load_asker
from vcc.errors import UsageError


def mcp(
    folder: Annotated[tuple[Path, ...], "folders whose files may be read; nothing outside them is"],
    model: Model = None,
    no_cache: NoCache = False,
    wait: Annotated[float, "maximum seconds per call; the work continues, and a later call finds it done"] = 600,
    reading: ReadLimits = DEFAULT_READ_LIMITS,
) -> None:
    """Serve the files below folders as MCP tools: read, ask, review, find, quote, extract, verify.

    It uses standard input and output, so another program starts it: {"command": "vcc", "args": ["mcp",
    "/path/to/folder"]}. It needs no network.
    """
    from vcc.documents.store import default_store
    from vcc.integrations.mcp import make_server
    from vcc.integrations.shelf import FolderShelf

    if not wait > 0:
        raise UsageError(f"--wait is {wait}: it must be above 0")
    store = None if no_cache else default_store(remark)
    shelf = FolderShelf(folder, model, store, reading.limits, reading.seconds, reading.memory_bytes)
    server = make_server(shelf, ", ".join(map(str, shelf.folders)), wait)
    load_asker(model)  # a model that cannot be loaded is reported before the first call
    server.run("stdio")
