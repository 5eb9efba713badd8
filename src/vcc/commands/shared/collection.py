"""A folder whose documents are read once each: `vcc index` reads them, `vcc find` and `vcc ask` search them."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.filesize import decimal

from vcc.commands.shared.documents import ReadLimits, print_json, remarks
from vcc.commands.shared.fleet import FleetOptions, default_workers, plan, shown_progress, summary
from vcc.documents.shipped import load_asker
from vcc.printable import printable

if TYPE_CHECKING:
    from vcc.documents.store import Store
    from vcc.fleet.collection import Answered, Collection
    from vcc.fleet.job import Done, Job


def index_job(model: str | None, reading: ReadLimits, store: "Store") -> "Job":
    from vcc.fleet.job import Job

    folder, memory = str(store.folder), reading.memory_bytes
    return Job("index", model, store=folder, limits=reading.limits, seconds=reading.seconds, memory=memory)


def index_collection(source: str, model: str | None, reading: ReadLimits, fleet: FleetOptions, store: "Store") -> None:
    """Read every document once, and catalogue them all."""
    from vcc.fleet.collection import collect
    from vcc.fleet.run import Executor, estimate
    from vcc.fleet.sources import find_items

    job, listing = index_job(model, reading, store), find_items([source], fleet.column, reading.limits)
    workers = fleet.workers or (None if fleet.ray else default_workers())
    if fleet.dry_run:

        def disk(done: Sequence["Done"]) -> int:
            made = [store.folder / one.rows[0]["place"] for one in done if one.kind is None]
            return sum(file.stat().st_size for path in made for file in path.iterdir())

        remarks.print(plan(estimate(job, listing.items, disk), workers), markup=False)
        return
    executor = Executor(workers, fleet.ray)
    with shown_progress() as report:
        collection, tally = collect(job, source, listing.items, store, executor, fleet.retry, report)
    catalogue = collection.catalogue
    shown = f"{len(catalogue):,} documents, {decimal(catalogue.size)}"
    remarks.print(f"{printable(source)}: {summary(tally)}; catalogue of {shown}", markup=False)


def kept_collection(source: str, model: str | None, reading: ReadLimits) -> "Collection | None":
    """Return the collection that `vcc index` has made of a folder, or None."""
    if not (os.path.isdir(source) or "://" in source):
        return None
    from vcc.documents.store import default_store
    from vcc.fleet.collection import Collection, collection_folder

    store = default_store()
    if store.folder is None:
        return None
    found = Collection(collection_folder(store, source, index_job(model, reading, store)))
    return found if found.exists else None


def ask_collection(
    collection: "Collection",
    questions: Sequence[str],
    top: int,
    documents: int,
    json: bool,
    model: str | None,
    reading: ReadLimits,
) -> None:
    """Print the best answers of the best documents: all answers compete by their scores."""
    from vcc.documents.store import default_store
    from vcc.fleet.collection import best_answers

    asker, job = load_asker(model), index_job(model, reading, default_store())
    console, replies = Console(highlight=False), []
    for question in questions:
        found = list(collection.answers_to(question, asker, job, top, documents))
        if json:
            replies.append({"question": question, "documents": [as_json(one) for one in found]})
            continue
        console.print(question, style="bold", markup=False)
        best = best_answers(found, top)
        for answer, one in best:
            place = f"{printable(one.document)}, {answer.place}, score {answer.score:.2f}"
            console.print(f"  {printable(' '.join(answer.text.split()))}", markup=False, soft_wrap=True)
            console.print(f"    {place}", markup=False, soft_wrap=True, style="dim")
        if not best:
            console.print("  no sure answer in these documents", style="dim")
    if json:
        print_json({"replies": replies})
    else:
        total = len(collection.catalogue)
        console.print(f"asked the best {min(documents, total):,} of {total:,} documents", style="dim")


def as_json(one: "Answered") -> dict[str, Any]:
    return {"document": one.document, "match": one.match, **one.reply.as_dict()}
