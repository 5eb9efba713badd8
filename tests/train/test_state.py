"""What is saved comes back the same, and holds no code."""

import json
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vcc.train.state import load_state, random_state, save_state, set_random_state

plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None)
@given(value=values)
def test_load_inverts_save_on_plain_values(value: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("state")
    save_state(folder, "state", value)
    found = load_state(folder, "state")
    assert found == value and repr(found) == repr(value)  # repr tells 1 from True and (1,) from [1]


def test_load_inverts_save_on_tensors_and_shared_memory(tmp_path: Path) -> None:
    shared = torch.randn(3)
    value = {"a": shared, "b": (shared, shared[1:]), 3: torch.tensor(2.5, dtype=torch.bfloat16), "n": np.arange(4)}
    save_state(tmp_path, "state", value)
    found = load_state(tmp_path, "state")
    assert torch.equal(found["a"], shared) and torch.equal(found["b"][1], shared[1:])
    assert found[3].dtype == torch.bfloat16
    assert isinstance(found["n"], np.ndarray) and found["n"].tolist() == [0, 1, 2, 3]


def test_code_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="training state holds"):
        save_state(tmp_path, "state", {"f": print})


def test_files_are_no_pickles(tmp_path: Path) -> None:
    save_state(tmp_path, "state", {"a": torch.ones(2)})
    json.loads((tmp_path / "state.json").read_text())
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads((tmp_path / "state.safetensors").read_bytes())


def test_all_generators_continue_where_they_were(tmp_path: Path) -> None:
    random.gauss(0, 1)  # leaves half a pair behind: part of the state
    np.random.standard_normal()
    save_state(tmp_path, "random", random_state())

    def draw() -> tuple:
        return random.gauss(0, 1), random.random(), np.random.standard_normal(3).tolist(), torch.randn(3).tolist()

    first = draw()
    assert draw() != first
    set_random_state(load_state(tmp_path, "random"))
    assert draw() == first
