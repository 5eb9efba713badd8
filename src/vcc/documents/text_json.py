"""A text as JSON and back: how it comes out of another process, and how a service keeps it."""

import json
from collections.abc import Mapping
from typing import Any

from vcc.documents.boxes import Word
from vcc.documents.text import Part, Text


def text_to_json(text: Text) -> str:
    return json.dumps(vars(text) | {"parts": [(part.label, part.start, part.end) for part in text.parts]})


def text_from_values(values: Mapping[str, Any]) -> Text:
    """The text that `text_to_json` wrote, from what `json.loads` made of it."""
    return Text(
        values["text"],
        values["title"],
        values["source"],
        tuple(Part(*part) for part in values["parts"]),
        tuple(values["notes"]),
        tuple(Word(*word) for word in values["words"]),
    )
