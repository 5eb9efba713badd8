"""Who may use the model: one at a time, questions before reading."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from vcc.serve.turns import Turns


def until(true: Callable[[], bool]) -> None:
    """Waits for another thread; a test that never sees it fails."""
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_never_two_at_once() -> None:
    turns, inside, seen = Turns(), set[int](), list[int]()

    def used() -> None:
        inside.add(threading.get_ident())
        time.sleep(0.0005)  # another thread has the chance to come in
        seen.append(len(inside))
        inside.remove(threading.get_ident())

    def ask(_: int) -> None:
        for _ in range(20):
            with turns.urgent():
                used()

    def read(_: int) -> None:
        for _ in range(5):
            with turns.patient() as step:
                for done in range(4):
                    used()
                    step(done, 4)

    with ThreadPoolExecutor(6) as pool:
        for work in [pool.submit(doing, 0) for doing in (ask, read) * 3]:
            work.result(60)
    assert set(seen) == {1} and len(seen) == 3 * 20 + 3 * 5 * 4
    assert not turns.taken and turns.waiting == 0


def test_a_question_comes_in_between_two_steps_of_reading() -> None:
    turns, order = Turns(), list[str]()

    def ask() -> None:
        with turns.urgent():
            order.append("question")

    with turns.patient(lambda done, total: order.append(f"step {done} of {total}")) as step:
        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: turns.waiting == 1)
        assert order == []  # not in the middle of a step
        step(1, 2)
        order.append("read on")
        step(2, 2)
    asking.join()
    assert order == ["step 1 of 2", "question", "read on", "step 2 of 2"]


def test_questions_go_before_reading_that_came_earlier() -> None:
    turns, order = Turns(), list[str]()
    reading_waits = threading.Event()

    def read() -> None:
        reading_waits.set()
        with turns.patient():
            order.append("reading")

    def ask() -> None:
        with turns.urgent():
            order.append("question")

    with turns.urgent():
        reader = threading.Thread(target=read)
        reader.start()
        reading_waits.wait()
        askers = [threading.Thread(target=ask) for _ in range(3)]
        for asker in askers:
            asker.start()
        until(lambda: turns.waiting == 3)
    for thread in (reader, *askers):
        thread.join()
    assert order == ["question"] * 3 + ["reading"]


@pytest.mark.parametrize("kind", ["urgent", "patient"])
def test_a_failure_gives_the_model_back(kind: str) -> None:
    turns = Turns()
    with pytest.raises(ValueError), getattr(turns, kind)():
        raise ValueError
    with turns.urgent():
        assert turns.taken
    assert not turns.taken
