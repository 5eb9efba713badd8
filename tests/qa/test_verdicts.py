"""The evidence of a verdict: the deciding passage first, then what other passages say."""

from vcc.qa.verdicts import BEHIND, EVIDENCE, likeliest
from vcc.qa.windows import Found


def span(first: int, last: int, score: float) -> Found:
    return Found(first, last, score, 0.0)


def test_evidence_starts_with_the_deciding_passage_and_holds_no_span_twice() -> None:
    first, other = span(10, 20, 4.0), span(50, 60, 6.0)
    found = [[other, span(52, 70, 5.0)], [first, span(15, 30, 3.9)]]
    assert likeliest(found, 1) == (first, other)
    assert likeliest(found, 0)[:1] == (other,)


def test_evidence_that_is_far_behind_is_left_out_and_there_is_never_too_much() -> None:
    best = span(0, 1, 5.0)
    assert likeliest([[best, span(3, 4, 5.0 - BEHIND - 0.1)]], 0) == (best,)
    many = [span(10 * i, 10 * i + 1, 5.0) for i in range(EVIDENCE + 3)]
    assert len(likeliest([many], 0)) == EVIDENCE
    assert likeliest([[], many], 0) == ()
