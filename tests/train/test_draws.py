"""All that is trained on has a part in the fingerprint."""

from dataclasses import replace

import pytest

from vcc.data.example import Example
from vcc.data.haystack import Generated
from vcc.train.draws import fingerprint

EXAMPLES = [
    Example(str(i), f"q{i}", f"document {i // 3}", ("a",), ((0, 3),), ("a", "b"), 0, "g", {"n": 1}) for i in range(41)
]


@pytest.mark.parametrize("place", [0, 1, 2, 3, 7, 20, 39, 40])
@pytest.mark.parametrize(
    "change",
    [
        {"label": 1}, {"question": "?"}, {"document": "another document"}, {"answers": ("b",)},
        {"answer_spans": ((1, 3),)}, {"choices": ("a", "c")}, {"id": "x"}, {"meta": {"n": 2}},
    ],
)  # fmt: skip
def test_a_change_of_any_example_is_seen(place: int, change: dict) -> None:
    changed = [replace(example, **change) if i == place else example for i, example in enumerate(EXAMPLES)]
    assert fingerprint(changed) != fingerprint(EXAMPLES) == fingerprint(list(EXAMPLES))


def test_order_and_number_count() -> None:
    assert len({fingerprint(EXAMPLES), fingerprint(EXAMPLES[:-1]), fingerprint(EXAMPLES[::-1])}) == 3


def test_generated_examples_are_told_by_all_they_are_made_of() -> None:
    def generated(texts: list[str]) -> Generated:
        return Generated(10**9, lambda i: EXAMPLES[i % 41], (texts,))

    texts = [f"text {i}" for i in range(100)]
    changed = [*texts[:57], "other", *texts[58:]]
    assert fingerprint(generated(texts)) == fingerprint(generated(texts)) != fingerprint(generated(changed))
    assert fingerprint(Generated(5, lambda i: EXAMPLES[i])) != fingerprint(Generated(6, lambda i: EXAMPLES[i]))
