"""The command line says what the signature says."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from vcc.commands.options import call
from vcc.errors import UsageError


@dataclass(frozen=True)
class Group:
    """A group. More about it."""

    out: Annotated[Path, "where"]
    seed: int = 0
    ratio: float | None = None
    depths: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UsageError(f"--seed is {self.seed}: it must not be negative")


@dataclass(frozen=True)
class Thing:
    """A thing."""

    sizes: tuple[int, ...] = (1, 2)
    seed: int = 5
    options = ("sizes", "seed")


def recipe(
    thing: Annotated[Thing, {"one": Thing, "two": lambda **given: Thing(**{"sizes": (7,), **given})}, "which"],
    group: Group,
    fast: bool = False,
    kind: Annotated[Literal["a", "b"] | None, "a kind, 100% sure"] = None,
    below: int | Literal["auto"] = "auto",
) -> Any:
    """Do it.

    At length.
    """
    return thing, group, fast, kind, below


@dataclass(frozen=True)
class Settings:
    """Settings. With defaults of their own."""

    scales: Annotated[tuple[int, ...], "how coarse"] = (16, 1)
    window: int | None = 512
    below: Annotated[int | Literal["auto"], "when"] = "auto"
    quick: bool = False


@dataclass(frozen=True)
class Chosen:
    """What is chosen."""

    model: Annotated[str, "which"]
    settings: Annotated[dict[str, Any], Settings] = field(default_factory=dict)


def overriding(chosen: Chosen, seed: int = 0) -> Any:
    return chosen, seed


def overriding_by_keywords(seed: int = 0, **given: Annotated[Any, Settings]) -> Any:
    return seed, given


def run(*arguments: str) -> Any:
    return call(recipe, arguments, "test")


def test_defaults_are_those_of_the_signature() -> None:
    assert run("one", "--out", "x") == (Thing(), Group(Path("x")), False, None, "auto")


def test_every_option_arrives_with_its_type() -> None:
    found = run(
        "two",
        "--out",
        "x",
        "--sizes",
        "3,4",
        "--seed",
        "1",
        "--thing-seed",
        "2",
        "--ratio",
        "0.5",
        "--fast",
        "--kind",
        "b",
        "--below",
        "12",
    )
    assert found == (Thing((3, 4), 2), Group(Path("x"), 1, 0.5), True, "b", 12)


def test_a_choice_keeps_its_own_defaults() -> None:
    assert run("two", "--out", "x")[0] == Thing((7,))


def test_overrides_are_those_that_were_given() -> None:
    given = ["--scales", "4,1", "--below", "7", "--quick", "false"]
    wanted = {"scales": (4, 1), "below": 7, "quick": False}
    assert call(overriding, ["--model", "x"], "test") == (Chosen("x"), 0)
    assert call(overriding, ["--model", "x", "--seed", "3", *given], "test") == (Chosen("x", wanted), 3)
    assert call(overriding_by_keywords, [], "test") == (0, {})
    assert call(overriding_by_keywords, given, "test") == (0, wanted)


def test_overrides_are_explained_and_show_no_default(capsys: pytest.CaptureFixture[str]) -> None:
    for function in (overriding, overriding_by_keywords):
        with pytest.raises(SystemExit):
            call(function, ["--help"], "test")
        shown = capsys.readouterr().out
        assert "--scales N,..." in shown and "how coarse" in shown and "--below N|auto" in shown
        assert "16" not in shown and "512" not in shown


def test_a_bug_in_a_dataclass_is_not_shown_as_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Group) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(Group, "__post_init__", broken)
    with pytest.raises(ValueError, match="^a bug$"):
        run("one", "--out", "x")


def test_a_flag_takes_a_word_too() -> None:
    assert run("one", "--out", "x", "--fast", "false")[2] is False
    assert run("one", "--out", "x", "--fast", "true")[2] is True


@pytest.mark.parametrize(
    "arguments, word",
    [
        (["one", "--out", "x", "--unknown", "1"], "unrecognized arguments: --unknown"),
        (["one", "--out", "x", "--see", "1"], "unrecognized arguments: --see"),  # no abbreviations
        (["one"], "--out"),
        ([], "required: THING, --out"),
        (["three", "--out", "x"], "invalid choice: 'three'"),
        (["--out", "x", "one"], "THING must come first"),
        (["one", "--out", "x", "--seed", "x"], "invalid int value"),
        (["one", "--out", "x", "--seed", "-1"], "--seed is -1: it must not be negative"),
        (["one", "--out", "x", "--kind", "c"], "must be one of a, b"),
        (["one", "--out", "x", "--fast", "perhaps"], "must be true or false"),
        (["one", "--out", "x", "--below", "soon"], "'soon' cannot be read"),
        (["one", "--out", "x", "--sizes", "1,x"], "invalid list such as N,N value"),
    ],
)
def test_bad_input_exits_with_2_and_says_why(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 2
    assert word in capsys.readouterr().err


def test_help_shows_the_docstring_the_notes_and_the_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("one", "--help")
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for part in (
        "usage: test THING --out PATH [options]",
        "Do it.",
        "At length.",
        "a kind, 100% sure",
        "more about",
        "--thing-seed",
        "(default: 1,2)",
    ):
        assert part.lower() in shown.lower()
    assert "(default: )" not in shown
