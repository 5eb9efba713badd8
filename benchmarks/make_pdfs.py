"""PDFs made by different programs, for benchmarks/boxes.py: `python benchmarks/make_pdfs.py FOLDER`.

Splits the texts in examples/ into pieces and prints some of them with every installed program:
LaTeX (one and two columns), LibreOffice, Chromium, groff, Ghostscript, matplotlib. Debian's documentation
packages have more PDFs: /usr/share/doc.
"""

import argparse
import html
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
CHROMIUM = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


def pieces() -> list[str]:
    """Stretches of a few pages of the example texts."""
    found = []
    for path in sorted(EXAMPLES.glob("*.txt")):
        paragraphs = [part for part in path.read_text(encoding="utf-8").split("\n\n") if part.strip()]
        found += ["\n\n".join(paragraphs[at : at + 40]) for at in range(0, min(len(paragraphs), 1200), 40)]
    random.Random(0).shuffle(found)
    return found


def run(*command: str, folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)


def latex(text: str, path: Path, options: str = "11pt") -> None:
    special = {c: f"\\{c}" for c in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\~{}", "^": r"\^{}"}
    body = "".join(special.get(c, c) for c in text)
    quotes = str.maketrans({"“": "``", "”": "''", "‘": "`", "’": "'", "—": "---", "–": "--"})
    head = rf"\documentclass[{options}]{{article}}\usepackage[T1]{{fontenc}}\usepackage[utf8]{{inputenc}}"
    page = head + r"\begin{document}"
    (path.parent / "a.tex").write_text(page + "\n" + body.translate(quotes) + "\n\\end{document}\n", encoding="utf-8")
    run("pdflatex", "-interaction=batchmode", "a.tex", folder=path.parent)
    (path.parent / "a.pdf").rename(path)


def latex_columns(text: str, path: Path) -> None:
    latex(text, path, "10pt,twocolumn,a4paper")


def page_of(text: str, style: str) -> str:
    body = "".join(f"<p>{html.escape(part)}</p>" for part in text.split("\n\n"))
    return f"<!DOCTYPE html><html lang='en'><meta charset='utf-8'><style>{style}</style><body>{body}"


def chromium(text: str, path: Path) -> None:
    style = random.Random(path.name).choice(
        ("body{font:11pt serif;text-align:justify;hyphens:auto}", "body{font:13px sans-serif;columns:2}")
    )
    (path.parent / "a.html").write_text(page_of(text, style), encoding="utf-8")
    profile = tempfile.mkdtemp(dir=path.parent)
    where = f"--print-to-pdf={path}"
    run("chromium", *CHROMIUM, f"--user-data-dir={profile}", where, str(path.parent / "a.html"), folder=path.parent)


def libreoffice(text: str, path: Path) -> None:
    (path.parent / "a.html").write_text(page_of(text, "body{font-family:serif}"), encoding="utf-8")
    run("soffice", "--headless", "--convert-to", "pdf:writer_web_pdf_Export", "a.html", folder=path.parent)
    (path.parent / "a.pdf").rename(path)


def groff(text: str, path: Path) -> None:
    body = "\n.PP\n".join(part.replace("\\", "\\e").replace("\n.", "\n\\&.") for part in text.split("\n\n"))
    (path.parent / "a.ms").write_text(".PP\n" + body + "\n", encoding="utf-8")
    with path.open("wb") as out:
        subprocess.run(["groff", "-k", "-ms", "-Tpdf", "a.ms"], cwd=path.parent, check=True, stdout=out, timeout=120)


def ghostscript(text: str, path: Path) -> None:
    """A LaTeX or groff PDF that was distilled again."""
    first = path.with_name("first.pdf")
    groff(text, first)
    run("gs", "-q", "-dNOPAUSE", "-dBATCH", "-sDEVICE=pdfwrite", f"-sOutputFile={path}", str(first), folder=path.parent)


def matplotlib(text: str, path: Path) -> None:
    from matplotlib import pyplot

    lines = [line.replace("$", r"\$")[:90] for line in text.splitlines() if line.strip()][:50]
    figure = pyplot.figure(figsize=(8.3, 11.7))
    for number, line in enumerate(lines):
        figure.text(0.08, 0.95 - 0.018 * number, line, fontsize=9)
    figure.savefig(path)
    pyplot.close(figure)


PROGRAMS: dict[str, tuple[str, Callable[[str, Path], None]]] = {
    "latex": ("pdflatex", latex),
    "latex-columns": ("pdflatex", latex_columns),
    "chromium": ("chromium", chromium),
    "libreoffice": ("soffice", libreoffice),
    "groff": ("groff", groff),
    "ghostscript": ("gs", ghostscript),
    "matplotlib": ("", matplotlib),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--each", type=int, default=14, help="PDFs of each program")
    given = parser.parse_args()
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    texts = iter(pieces() * 8)
    for name, (program, make) in PROGRAMS.items():
        if program and not shutil.which(program):
            print(f"{name}: {program} is not installed")
            continue
        made = 0
        for number in range(given.each):
            with tempfile.TemporaryDirectory() as work:
                path = Path(work) / f"{name}-{number}.pdf"
                try:
                    make(next(texts), path)
                    shutil.move(path, folder / path.name)
                    made += 1
                except (OSError, subprocess.SubprocessError) as error:
                    print(f"{name} {number}: {error}")
        print(f"{name}: {made}")


if __name__ == "__main__":
    main()
