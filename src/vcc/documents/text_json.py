"""Texts as JSON, for other processes and for the service's store."""

import json
from collections.abc import Mapping
from typing import Any

from vcc.documents.boxes import Word
from vcc.documents.text import Part, Text


def text_to_json(text: Text) -> str:
    return json.dumps(vars(text) | {"parts": [(part.label, part.start, part.end) for part in text.parts]})


def text_from_values(values: Mapping[str, Any]) -> Text:
    """The text that `text_to_json` wrote, from its parsed JSON."""
    return Text(
        values["text"],
        values["title"],
        values["source"],
        tuple(Part(*part) for part in values["parts"]),
        tuple(values["notes"]),
        tuple(Word(*word) for word in values["words"]),
    )
