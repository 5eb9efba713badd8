"""What a run reads: draw d of a run is the same whenever and wherever it is read."""

from dataclasses import replace

from tests.data.words import bert_like
from vcc.data.example import Example
from vcc.data.features import ExampleTokenizer
from vcc.tasks.needle import Needle
from vcc.train.draws import MaskedSequences, TaskExamples, fingerprint


def test_an_example_is_the_same_in_every_epoch() -> None:
    examples = [Example(str(i), "a", word, (word,), ((0, 1),)) for i, word in enumerate("abc")]
    draws = TaskExamples(examples, ExampleTokenizer(bert_like("a b c"), "span", 16))
    assert len(draws) == 3
    assert [draws[d].id for d in (0, 2, 3, 7)] == ["0", "2", "0", "1"]


def test_a_sequence_is_another_one_in_every_epoch() -> None:
    class Endless:
        per_epoch = 5

        def __getitem__(self, draw: int) -> int:
            return 10 * draw

    draws = MaskedSequences(Endless())  # type: ignore[arg-type]
    assert len(draws) == 5 and [draws[d] for d in (0, 4, 5, 9)] == [0, 40, 50, 90]


def test_data_sets_have_different_fingerprints() -> None:
    first, other = Needle(lengths=(100,)).load("train"), Needle(lengths=(100,), seed=1).load("train")
    assert fingerprint(first) == fingerprint(Needle(lengths=(100,)).load("train"))
    few = [first[i] for i in range(9)]
    found = [fingerprint(few), fingerprint(few[:8]), fingerprint([other[i] for i in range(9)])]
    found.append(fingerprint([*few[:8], replace(few[8], question="another")]))
    assert len(set(found)) == len(found)
