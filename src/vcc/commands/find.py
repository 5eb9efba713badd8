"""`vcc find`: which documents of a folder are about a question."""

import os
from typing import Annotated

from rich.console import Console

from vcc.commands.shared.collection import index_collection, kept_collection
from vcc.commands.shared.documents import DEFAULT_READ_LIMITS, Json, Model, ReadLimits, check_questions, print_json
from vcc.commands.shared.fleet import NO_FLEET
from vcc.documents.shipped import load_asker
from vcc.documents.store import default_store
from vcc.errors import Failure, UsageError
from vcc.printable import printable


def find(
    folder: Annotated[str, "a folder of documents, on this machine or remote"],
    question: Annotated[str, "a question, or what the documents should be about"],
    top: Annotated[int, "maximum documents to list"] = 10,
    json: Json = False,
    model: Model = None,
    reading: ReadLimits = DEFAULT_READ_LIMITS,
) -> None:
    """List the documents of a folder that match a question best.

    A folder without an index is read first. Run vcc index FOLDER again after files were added, changed or removed.
    vcc ask FOLDER also asks the documents found.
    """
    if top < 1:
        raise UsageError(f"--top is {top}: it must be at least 1")
    check_questions((question,))
    if not (os.path.isdir(folder) or "://" in folder):
        raise UsageError(f"{printable(folder)} is not a folder: name one")
    collection = kept_collection(folder, model, reading)
    if collection is None:
        index_collection(folder, model, reading, NO_FLEET, default_store(not_kept))
        collection = kept_collection(folder, model, reading)
    assert collection is not None
    hits = collection.find(load_asker(model), question, top)
    if json:
        print_json({"question": question, "documents": [{"document": h.item.name, "match": h.score} for h in hits]})
        return
    console = Console(highlight=False)
    for rank, hit in enumerate(hits, 1):
        console.print(f"{rank:>3}  {hit.score:.2f}  {printable(hit.item.name)}", markup=False, soft_wrap=True)


def not_kept(problem: str) -> None:
    raise Failure(problem)
