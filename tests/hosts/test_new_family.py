"""`docs/adding-a-host.md` is true: the host written there is the one in use, and the whole suite runs on it."""

from pathlib import Path

from tests.hosts.models import MAKERS, ONE_EACH
from vcc.hosts.families import Family, find_family

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-a-host.md").read_text()
FOLDER = ROOT / "src" / "vcc" / "hosts" / "families"


def test_the_code_on_the_page_is_the_host_in_use() -> None:
    (code,) = [part.split("```")[0] for part in PAGE.split("```python\n")[1:]]
    assert code == (FOLDER / "distilbert.py").read_text()


def test_the_row_on_the_page_is_the_one_in_the_table() -> None:
    row = PAGE.split("    Family(")[1].split(",\n\n")[0]
    family = eval(f"Family({row}", {"Family": Family})
    assert family == find_family("distilbert")


def test_the_page_names_hosts_that_exist_and_a_family_that_is_tested() -> None:
    table = PAGE.split("| your model | closest host |")[1].split("\n\n")[0]
    named = {word for word in table.split("`") if word.endswith(".py")}
    assert named and all((FOLDER / name).is_file() for name in named)
    assert "distilbert" in MAKERS and "distilbert" in ONE_EACH


def test_hosts_are_short() -> None:
    """A family is a pull request's worth of lines."""
    for file in FOLDER.glob("*.py"):
        if file.name not in ("host.py", "deberta.py"):
            assert len(file.read_text().splitlines()) <= 150, file.name
