"""Build the site from docs/ and the project's own pages: `make docs`. No network; a warning or a dead link is an error.

The pages are written to be read in the repository, so some link to files outside docs/. Those that are pages of the
site too are copied into it and their links follow; links to source files become plain text.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS, OUT = ROOT / "docs", ROOT / "out"
MOVED = {  # file of the repository: page of the site; every other file of docs/ keeps its place
    "README.md": "index.md",
    "docs/README.md": "all.md",
    "DESIGN.md": "project/design.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "src/vcc/model/README.md": "project/model.md",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)]*)?\)")


def pages() -> dict[Path, Path]:
    """Every page or picture of the site, by the file it is made from."""
    kept = [file for file in DOCS.rglob("*") if file.is_file() and "site" not in file.relative_to(DOCS).parts]
    found = {file: file.relative_to(DOCS) for file in kept}
    return {**found, **{ROOT / name: Path(page) for name, page in MOVED.items()}}


def with_links(file: Path, table: dict[Path, Path]) -> str:
    """The text of a page, with links from its place in the site."""
    text = file.read_text(encoding="utf-8")
    here = table[file].parent

    def follow(link: re.Match[str]) -> str:
        picture, words, target, anchor = link[1], link[2], link[3], link[4] or ""
        if "://" in target:
            return link[0]
        found = (file.parent / target).resolve()
        if found in table:
            return f"{picture}[{words}]({os.path.relpath(table[found], here)}{anchor})"
        if not found.exists():
            sys.exit(f"{file.relative_to(ROOT)}: no such file: {target}")
        return words  # a file of the repository that is no page

    parts = re.split(r"(^```.*?^```)", text, flags=re.DOTALL | re.MULTILINE)  # code stays as it is
    return "".join(part if part.startswith("```") else LINK.sub(follow, part) for part in parts)


def main() -> None:
    table = pages()
    target = OUT / "pages"
    for folder in (target, OUT / "site"):
        shutil.rmtree(folder, ignore_errors=True)
    for file, page in table.items():
        (target / page).parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            (target / page).write_text(with_links(file, table), encoding="utf-8")
        else:
            shutil.copyfile(file, target / page)
    shutil.copyfile(ROOT / "llms.txt", target / "llms.txt")
    shutil.copyfile(DOCS / "site" / "extra.css", target / "extra.css")
    shutil.copyfile(DOCS / "site" / "zensical.toml", OUT / "zensical.toml")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=OUT)
    if done.returncode:
        sys.exit(done.returncode)
    broken = list(dead_links(OUT / "site"))
    sys.exit("\n".join(broken) if broken else None)


def dead_links(site: Path) -> list[str]:
    """Links, anchors and pictures of the pages that lead nowhere in the site, and anything loaded from elsewhere."""
    texts = {page: page.read_text(encoding="utf-8") for page in sorted(site.rglob("*.html")) if page.name != "404.html"}
    places = {page: set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for page, text in texts.items()}
    dead = []
    for page, text in texts.items():
        for kind, target, anchor in re.findall(r'\b(href|src)="([^"#]*)(?:#([^"]*))?"', text):
            if target.startswith(("http:", "https:")):
                if kind == "src":
                    dead.append(f"{page.relative_to(site)}: loads {target}")
            elif not target.startswith(("data:", "mailto:", "javascript:")):
                found = (page.parent / target.split("?")[0]).resolve() if target else page
                if not found.exists() or (anchor and anchor not in places.get(found, {anchor})):
                    dead.append(f"{page.relative_to(site)}: {target}#{anchor}")
    return dead


if __name__ == "__main__":
    main()
