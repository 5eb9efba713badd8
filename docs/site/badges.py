"""The badges of the README, from pyproject.toml: no badge that the project does not earn, none loaded from elsewhere.

python docs/site/badges.py    # writes docs/badges.svg; a test compares it with pyproject.toml
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "docs" / "badges.svg"
LETTER, SIDES, GAP = 6.6, 12, 6  # widths in pixels


def facts() -> dict[str, str]:
    """Return what the badges say, by label."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = [each[1] for name in project["classifiers"] if (each := re.search(r":: Python :: (3\.\d+)", name))]
    return {
        "version": project["version"],
        "python": f"{pythons[0]} to {pythons[-1]}",
        "licence": project["license"],
        "type hints": "py.typed",
    }


def draw(known: dict[str, str]) -> str:
    """Return the picture: one dark label and one coloured value per fact."""
    parts, left = [], 0.0
    for label, value in known.items():
        for words, colour in ((label, "#3b3f46"), (value, "#9a5b00")):
            width = round(len(words) * LETTER + SIDES, 1)
            parts.append(f'<rect x="{left:.1f}" width="{width}" height="20" fill="{colour}"/>')
            parts.append(f'<text x="{left + width / 2:.1f}" y="14">{words}</text>')
            left += width
        left += GAP
    told = ", ".join(f"{label} {value}" for label, value in known.items())
    style = 'font-family="Verdana, DejaVu Sans, sans-serif" font-size="11" fill="#fff" text-anchor="middle"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{left - GAP:.0f}" height="20" role="img">'
    return "\n".join([head, f"<title>{told}</title>", f"<g {style}>", *parts, "</g>", "</svg>", ""])


if __name__ == "__main__":
    TARGET.write_text(draw(facts()), encoding="utf-8")
