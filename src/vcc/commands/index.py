"""`vcc index`: read documents ahead, and look after what is kept of them."""

import time
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.filesize import decimal

from vcc.commands.collection import index_collection
from vcc.commands.documents import AS_USUAL, Model, Most, bar
from vcc.commands.fleet import ALONE, Fleet, is_collection
from vcc.documents.formats.read import read_text
from vcc.documents.shipped import load_asker
from vcc.documents.store import Store, as_tensors, default_store
from vcc.documents.text import Text
from vcc.errors import Failure, UsageError
from vcc.printable import printable


def index(
    file: Annotated[tuple[str, ...], "documents to read, as for vcc ask; each document of a folder by itself"],
    list: Annotated[bool, "show the indexes and their sizes"] = False,
    clear: Annotated[bool, "remove all indexes"] = False,
    model: Model = None,
    most: Most = AS_USUAL,
    fleet: Fleet = ALONE,
) -> None:
    """Read documents once and keep what asking needs, so that every question is fast.

    Of a folder, each document is read by itself, by as many processes as there are processors; vcc ask FOLDER then
    finds the documents that answer best. A run that was stopped goes on where it was.
    """
    if sum((bool(file), list, clear)) != 1:
        raise UsageError("name documents to read, or give one of --list and --clear")
    store, console = default_store(not_kept), Console(highlight=False)
    if list:
        show(store)
    elif clear:
        number, size = store.clear()
        console.print(f"removed {several(number)}, {decimal(size)}")
    elif fleet.named or any(Path(name).is_dir() or is_collection(name) for name in file):
        for source in file:
            index_collection(source, model, most, fleet, store)
    else:
        for text in [
            read_text(name, most.limits) for name in file
        ]:  # all files before the first is indexed: one may be missing
            console.print(keep(store, text, model), markup=False, soft_wrap=True)


def keep(store: Store, text: Text, model: str | None) -> str:
    """Index one text, if it is not yet: one line about it."""
    from vcc.documents.archive import LongIndex, is_long, long_index  # imports transformers: --list needs none of it

    asker = load_asker(model)
    start = time.perf_counter()
    with bar("reading", "tokens") as progress:
        made = long_index(text, asker, store, progress) if is_long(text) else store.get(text, asker, progress)
    seconds = time.perf_counter() - start
    speed = f"read in {seconds:.1f} s, {made.tokens / seconds:,.0f} tokens/s" if made.seconds else "was read before"
    size = made.size if isinstance(made, LongIndex) else sum(part.nbytes for part in as_tensors(made).values())
    return f"{text.title}: {made.tokens:,} tokens, {speed}, {decimal(size)} on disk"


def show(store: Store) -> None:
    """All indexes, and the room they take. Plain lines: a table of many thousands would take minutes to lay out."""
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


def not_kept(problem: str) -> None:
    raise Failure(problem)


def several(number: int) -> str:
    return f"{number} index" if number == 1 else f"{number} indexes"
