"""The files around the code: one version everywhere, pinned actions, workflows that run what `make` has."""

import hashlib
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def read(name: str) -> str:
    return (ROOT / name).read_text()


def jobs(workflow: Path) -> dict[str, Any]:
    return yaml.safe_load(workflow.read_text())["jobs"]


def test_the_version_is_the_same_everywhere() -> None:
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert re.search(r"^## (\S+)", read("CHANGELOG.md"), re.MULTILINE)[1] == version  # type: ignore[index]
    assert yaml.safe_load(read("CITATION.cff"))["version"] == version
    assert f"version = {{{version}}}" in read("README.md")


def test_other_weights_are_another_version_of_the_model() -> None:
    """The card names version and hashes, the changelog the version: a change of the weights changes all of them."""
    card = read("src/vcc/model/README.md")
    (version,) = re.findall(r"^Version (\d{4}\.\d\d\.\d\d),", card, re.MULTILINE)
    hashes = dict(re.findall(r"^\| `(\w+\.safetensors)` \| (\w{64}) \|$", card, re.MULTILINE))
    files = (ROOT / "src" / "vcc" / "model").glob("*.safetensors")
    assert hashes == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    assert f"version {version}" in read("CHANGELOG.md").split("\n## ")[1]


def test_the_badges_say_what_the_project_file_says() -> None:
    badges = runpy.run_path(str(ROOT / "docs" / "site" / "badges.py"))
    known = badges["facts"]()
    assert read("docs/badges.svg") == badges["draw"](known), "python docs/site/badges.py"
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert project["requires-python"] == f">={known['python'].split()[0]}" and known["version"] == project["version"]
    assert "Apache License" in read("LICENSE") and known["licence"] == "Apache-2.0"
    installed = {
        job["strategy"]["matrix"]["python"][-1]
        for job in jobs(WORKFLOWS[-1]).values()
        if "strategy" in job and "python" in job["strategy"]["matrix"]
    }
    assert installed == {known["python"].split()[-1]}  # CI installs the wheel there
    assert known["python"] in read("docs/install.md")


def test_every_word_of_the_design_is_defined_where_the_design_says() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|.*\| ((?:`[\w/.]+`(?:, )?)+) \|$", read("DESIGN.md"), re.MULTILINE)
    classes = [(name, place) for names, place in rows for name in re.findall(r"`([A-Z]\w+)`", names)]
    assert len(classes) > 35
    for name, place in classes:
        paths = [ROOT / "src" / "vcc" / each for each in re.findall(r"`([^`]+)`", place)]
        files = [file for path in paths for file in ([path] if path.suffix else path.rglob("*.py"))]
        assert any(re.search(rf"^class {name}\b", file.read_text(), re.MULTILINE) for file in files), f"{name}: {place}"


GUIDES = ("README.md", "DESIGN.md", "AGENTS.md", "CONTRIBUTING.md", "docs/decisions.md", "docs/adding-a-host.md")


@pytest.mark.parametrize("guide", GUIDES)
def test_every_file_that_a_guide_names_exists(guide: str) -> None:
    for name in re.findall(r"`([\w/-]+/(?:[\w-]+\.\w+)?|[\w/-]+\.py)`", read(guide)):
        made = name.startswith("out/")
        places = (ROOT, ROOT / "src", ROOT / "src" / "vcc")
        below = (folder for place in ("src", "tests", "reproduction") for folder in (ROOT / place).rglob(name))
        assert made or any((place / name).exists() for place in places) or any(below), f"{guide}: {name}"


def test_the_changelog_has_the_usual_headings_only() -> None:
    headings = set(re.findall(r"^### (.+)$", read("CHANGELOG.md"), re.MULTILINE))
    assert headings <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_by_its_commit(workflow: Path) -> None:
    used = re.findall(r"uses: (.+)", workflow.read_text())
    assert used
    for action in used:
        assert action.startswith("./") or re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_job_may_only_read_ends_and_runs_what_make_has(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}
    for name, job in jobs(workflow).items():
        assert "timeout-minutes" in job or "uses" in job, name
        for step in job.get("steps", []):
            for target in re.findall(r"^make ([a-z-]+)", step.get("run", ""), re.MULTILINE):
                assert target in TARGETS, f"{workflow.name}: make {target}"
            if "actions/checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_only_publishing_may_sign_and_it_has_no_other_step() -> None:
    for workflow in WORKFLOWS:
        for name, job in jobs(workflow).items():
            if "id-token" in job.get("permissions", {}):
                assert name == "publish" and "environment" in job and "run" not in str(job["steps"])


def test_issue_forms_have_what_github_needs() -> None:
    forms = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    assert len(forms) == 3
    for form in forms:
        read_form = yaml.safe_load(form.read_text())
        assert {"name", "description", "body"} <= set(read_form)
        fields = [field for field in read_form["body"] if field["type"] != "markdown"]
        assert len({field["id"] for field in fields}) == len(fields) > 0
        assert all(field["attributes"]["label"] for field in fields)


def test_pre_commit_runs_what_ci_runs() -> None:
    (local,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert local["repo"] == "local"
    for hook in local["hooks"]:
        assert hook["entry"].removeprefix("make ") in TARGETS


def test_the_oldest_versions_are_the_lower_bounds_of_the_project() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    wanted = sum(project["optional-dependencies"].values(), project["dependencies"])
    bounds = dict(re.findall(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", "\n".join(wanted).replace("_", "-")))
    oldest = dict(re.findall(r"^([\w-]+)==([\d.]+)$", read("constraints-oldest.txt"), re.MULTILINE))
    for name, version in oldest.items():
        number = [int(part) for part in version.split(".")]
        bound = [int(part) for part in bounds[name].split(".")]
        assert number == bound + [0] * (len(number) - len(bound)), f"{name}: {version}, not {bounds[name]}"
    apart = ("dev", "docs", "ray")  # tools of the project; Ray is not in `all`
    extras = [each for name, each in project["optional-dependencies"].items() if name not in apart]
    needed = {re.split(r"[><=\[]", each)[0].lower().replace("_", "-") for each in sum(extras, project["dependencies"])}
    assert needed - {"vcc-transformers"} == set(oldest)


def test_newest_versions_are_pinned_for_every_dependency() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    wanted = sum(project["optional-dependencies"].values(), project["dependencies"])
    names = {re.split(r"[><=\[; ]", each)[0].lower().replace("_", "-") for each in wanted} - {"vcc-transformers"}
    pinned = re.findall(r"^([\w-]+)==", read("constraints.txt").lower().replace("_", "-"), re.MULTILINE)
    assert names <= set(pinned)
