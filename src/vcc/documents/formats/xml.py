"""XML as a stream of events: without a tree, memory holds one chunk of a file of any size."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal
from xml.parsers import expat

from vcc.documents.formats.gate import File
from vcc.errors import DocumentError

CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Event:
    """The start or end of an element, with `name` "namespace}tag"; or text, in `name`."""

    kind: Literal["start", "end", "text"]
    name: str
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def tag(self) -> str:
        return self.name.rpartition("}")[2]


def xml_events(file: File) -> Iterator[Event]:
    """All events of a file in order. Entities are rejected: documents need none, and they can expand without end."""
    found: list[Event] = []
    depth = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        file.limits.check_nesting(file.source, depth)
        found.append(Event("start", name, attributes))

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        found.append(Event("end", name))

    def entity(name: str, *_: object) -> None:
        raise DocumentError(file.source, f"defines an XML entity ({name!r:.40}), which documents do not need")

    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = lambda text: found.append(Event("text", text))
    parser.EntityDeclHandler = entity
    for place in range(0, len(file.data), CHUNK):
        parser.Parse(file.data[place : place + CHUNK])
        yield from found
        found.clear()
    parser.Parse(b"", True)
    yield from found
