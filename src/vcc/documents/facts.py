"""Statistics of reading and asking a document."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Facts:
    """Statistics of reading and asking a document."""

    tokens: int  # of the whole document
    questions: int
    rows: tuple[tuple[int, int], ...]  # (layer, rows of document and question it saw), for each compressed layer
    reading: float  # seconds; 0 if the index existed
    asking: float  # seconds for all questions together
    passages: int = 0  # read in windows, for all questions together

    @property
    def compression(self) -> float:
        """Tokens per row in the compressed layers."""
        return self.tokens * len(self.rows) / max(sum(rows for _, rows in self.rows), 1) if self.rows else 1.0

    def shown(self) -> dict[str, str]:
        """For people."""
        layers = ", ".join(f"{rows:,} in layer {layer + 1}" for layer, rows in self.rows)
        if len({rows for _, rows in self.rows}) == 1:
            first, last = self.rows[0][0] + 1, self.rows[-1][0] + 1
            layers = f"{self.rows[0][1]:,} in " + (f"layers {first} to {last}" if first < last else f"layer {first}")
        reading = f"{self.reading:.2f} s" if self.reading else "from the index"
        return {
            "tokens": f"{self.tokens:,}, none cut",
            "rows": layers or "not compressed",
            **({"read again" if layers else "read": counted(self.passages)} if self.passages else {}),
            "compression": f"{self.compression:.1f}x",
            "reading": reading,
            "asking": f"{self.asking:.2f} s",
        }

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            "tokens": self.tokens,
            "tokens_cut": 0,
            "questions": self.questions,
            "rows": [{"layer": layer + 1, "rows": rows} for layer, rows in self.rows],
            "passages_read_again": self.passages,
            "compression": round(self.compression, 2),
            "reading_seconds": round(self.reading, 3),
            "asking_seconds": round(self.asking, 3),
        }


def counted(passages: int) -> str:
    return f"{passages:,} passage{'s' * (passages > 1)}"
