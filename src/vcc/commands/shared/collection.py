"""A folder whose documents are read once each: `vcc index`, `vcc find` and `vcc ask` read what is new, and search."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.filesize import decimal

from vcc.commands.shared.documents import ReadLimits, print_json, remarks
from vcc.commands.shared.fleet import NO_FLEET, FleetOptions, default_workers, plan, shown_progress, summary
from vcc.documents.shipped import load_asker
from vcc.errors import Failure
from vcc.printable import printable

if TYPE_CHECKING:  # they import torch and pyarrow
    from vcc.documents.store import Store
    from vcc.fleet.collection import Answered, Collection
    from vcc.fleet.job import Done, Job
    from vcc.fleet.run import Tally


def index_job(model: str | None, reading: ReadLimits, store: "Store") -> "Job":
    from vcc.fleet.job import Job

    folder, memory = str(store.folder), reading.memory_bytes
    return Job("index", model, store=folder, limits=reading.limits, seconds=reading.seconds, memory=memory)


def store_here() -> "Store":
    from vcc.documents.store import default_store

    return default_store(not_kept)


def is_folder(source: str) -> bool:
    return os.path.isdir(source) or "://" in source


def index_collection(source: str, model: str | None, reading: ReadLimits, fleet: FleetOptions) -> None:
    """Read what is new in a folder, catalogue all of it, and tell what was done."""
    if not fleet.dry_run:
        tell(source, *collected(source, model, reading, fleet))
        return
    from vcc.fleet.run import estimate
    from vcc.fleet.sources import find_items

    store = store_here()

    def disk(done: Sequence["Done"]) -> int:
        made = [store.folder / one.rows[0]["place"] for one in done if one.kind is None and store.folder]
        return sum(file.stat().st_size for path in made for file in path.iterdir())

    items = find_items([source], fleet.column, reading.limits).items
    remarks.print(plan(estimate(index_job(model, reading, store), items, disk), workers_of(fleet)), markup=False)


def current_collection(source: str, model: str | None, reading: ReadLimits) -> "Collection":
    """Return the collection of a folder as it is now: files that came or changed are read first."""
    collection, tally = collected(source, model, reading, NO_FLEET)
    if tally.documents:
        tell(source, collection, tally)
    return collection


def collected(source: str, model: str | None, reading: ReadLimits, fleet: FleetOptions) -> "tuple[Collection, Tally]":
    from vcc.fleet.collection import collect
    from vcc.fleet.run import Executor
    from vcc.fleet.sources import find_items

    store = store_here()
    job, items = index_job(model, reading, store), find_items([source], fleet.column, reading.limits).items
    with shown_progress() as report:
        return collect(job, source, items, store, Executor(workers_of(fleet), fleet.ray), fleet.retry, report)


def workers_of(fleet: FleetOptions) -> int | None:
    return fleet.workers or (None if fleet.ray else default_workers())


def tell(source: str, collection: "Collection", tally: "Tally") -> None:
    shown = f"{len(collection.catalogue):,} documents, {decimal(collection.catalogue.size)}"
    remarks.print(f"{printable(source)}: {summary(tally)}; catalogue of {shown}", markup=False)


def not_kept(problem: str) -> None:
    raise Failure(problem)


def ask_collection(
    collection: "Collection",
    questions: Sequence[str],
    top: int,
    documents: int,
    json: bool,
    model: str | None,
    reading: ReadLimits,
    threshold: float | None = None,
) -> None:
    """Print the best answers of the best documents: all answers compete by their scores."""
    from vcc.fleet.collection import best_answers

    asker, job = load_asker(model), index_job(model, reading, store_here())
    console, replies = Console(highlight=False), []
    for question in questions:
        found = list(collection.answers_to(question, asker, job, top, documents, threshold))
        if json:
            replies.append({"question": question, "documents": [as_json(one) for one in found]})
            continue
        console.print(printable(question), style="bold", markup=False)
        best = best_answers(found, top)
        for answer, one in best:
            place = f"{one.document}, {answer.place}, score {answer.score:.2f}"
            console.print(f"  {printable(' '.join(answer.text.split()))}", markup=False, soft_wrap=True)
            console.print(f"    {printable(place)}", markup=False, soft_wrap=True, style="dim")
        if not best:
            console.print("  no sure answer in these documents", style="dim")
    if json:
        print_json({"replies": replies})
    else:
        total = len(collection.catalogue)
        console.print(f"asked the best {min(documents, total):,} of {total:,} documents", style="dim")


def as_json(one: "Answered") -> dict[str, Any]:
    return {"document": one.document, "match": one.match, **one.reply.as_dict()}
