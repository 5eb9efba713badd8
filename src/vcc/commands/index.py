"""`vcc index`: read documents in advance, list and remove indexes."""

import os
import time
from typing import Annotated

from rich.console import Console
from rich.filesize import decimal

from vcc.commands.shared.collection import index_collection, not_kept
from vcc.commands.shared.documents import DEFAULT_READ_LIMITS, Model, ReadLimits, bar, read_file
from vcc.commands.shared.fleet import NO_FLEET, FleetOptions, is_collection
from vcc.documents.document import Document
from vcc.documents.store import Store, default_store, size_of
from vcc.documents.text import Text
from vcc.errors import UsageError
from vcc.printable import printable


def index(
    file: Annotated[tuple[str, ...], "documents or folders to index"],
    list: Annotated[bool, "list the indexes with their sizes"] = False,
    clear: Annotated[bool, "remove all indexes"] = False,
    model: Model = None,
    reading: ReadLimits = DEFAULT_READ_LIMITS,
    fleet: FleetOptions = NO_FLEET,
) -> None:
    """Read documents once and keep their indexes, to answer later questions quickly.

    A folder gets one index per document, made by one process per CPU or GPU; vcc find FOLDER and vcc ask FOLDER search
    them. A stopped run resumes when started again.
    """
    if sum((bool(file), list, clear)) != 1:
        raise UsageError("name documents, or give one of --list and --clear")
    store, console = default_store(not_kept), Console(highlight=False)
    if list:
        show(store)
    elif clear:
        number, size = store.clear()
        console.print(f"removed {several(number)}, {decimal(size)}")
    elif fleet.named or any(os.path.isdir(name) or is_collection(name) for name in file):
        for source in file:
            index_collection(source, model, reading, fleet)
    else:
        texts = [read_file(name, reading) for name in file]  # all before the first is indexed: missing ones fail early
        for text in texts:
            console.print(keep(store, text, model), markup=False, soft_wrap=True)


def keep(store: Store, text: Text, model: str | None) -> str:
    """Index one text if needed, and return one line about it."""
    start = time.perf_counter()
    with bar("reading", "tokens") as progress:
        made = Document(text, model, store).index(progress=progress)
    seconds = time.perf_counter() - start
    speed = f"read in {seconds:.1f} s, {made.tokens / seconds:,.0f} tokens/s" if made.seconds else "already indexed"
    assert made.folder is not None
    return f"{text.title}: {made.tokens:,} tokens, {speed}, {decimal(size_of(made.folder))} on disk"


def show(store: Store) -> None:
    """Print all indexes with their sizes, as plain lines: a table of thousands takes minutes to lay out."""
    entries = store.entries()
    lines = [
        f"{entry.tokens:>13,}  {decimal(entry.size):>9}  {entry.title}"
        + (f"  ({entry.source})" if entry.source else "")
        for entry in entries
    ]
    if lines:
        print("\n".join([f"{'tokens':>13}  {'size':>9}  document", *map(printable, lines)]))
    total = decimal(sum(entry.size for entry in entries))
    print(printable(f"{several(len(entries))}, {total}, in {store.folder}"))


def several(number: int) -> str:
    return f"{number} index" if number == 1 else f"{number} indexes"
