"""From logits to spans of text."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.words import bert_like
from vcc.data.answers import best_spans, best_spans_of_rows, predict_choice, predict_spans, predict_text
from vcc.data.example import Example
from vcc.data.features import ExampleTokenizer

WORDS = "who ? a b c d e f"


def slow_best_spans(start, end, top, max_tokens):
    """The definition: take the best span, forget all that overlap it, again."""
    spans = [(start[i] + end[j], i, j) for i in range(len(start)) for j in range(i, min(i + max_tokens, len(end)))]
    found = []
    while spans and len(found) < top:
        score, i, j = max(spans)
        if score == -torch.inf:
            break
        found.append((i, j, score))
        spans = [(s, a, b) for s, a, b in spans if b < i or a > j]
    return found


@settings(max_examples=150)
@given(st.integers(1, 14), st.integers(1, 6), st.integers(1, 6), st.integers(0, 10_000))
def test_best_spans_are_those_of_the_definition(n, top, max_tokens, seed):
    generator = torch.Generator().manual_seed(seed)
    start, end = torch.randn(2, n, generator=generator)  # no ties
    start[torch.rand(n, generator=generator) < 0.3] = -torch.inf
    end[torch.rand(n, generator=generator) < 0.3] = -torch.inf
    found = [(s.first, s.last, s.score) for s in best_spans(start, end, top, max_tokens)]
    expected = slow_best_spans(start.tolist(), end.tolist(), top, max_tokens)
    assert [f[:2] for f in found] == [e[:2] for e in expected]
    assert [f[2] for f in found] == pytest.approx([e[2] for e in expected])


@settings(max_examples=50)
@given(st.integers(1, 5), st.integers(1, 30), st.integers(1, 9), st.integers(1, 12), st.integers(0, 10_000))
def test_rows_of_a_batch_give_the_spans_of_each_alone(rows, n, top, max_tokens, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, rows, n, generator=generator)
    logits[torch.rand(2, rows, n, generator=generator) < 0.3] = -torch.inf
    together = best_spans_of_rows(*logits, top, max_tokens)
    for i in range(rows):
        expected = slow_best_spans(*logits[:, i].tolist(), top, max_tokens)
        assert [(s.first, s.last) for s in together[i]] == [e[:2] for e in expected]


def test_best_spans_are_found_among_128k_tokens():
    start, end = torch.randn(2, 131_072)
    start[100_000] = end[100_007] = 9
    found = best_spans(start, end, top=20, max_tokens=512)
    assert len(found) == 20 and (found[0].first, found[0].last) == (100_000, 100_007)


def predict(start, end, **settings):
    example = Example("e", "who?", "a b c d e f")
    features = ExampleTokenizer(bert_like(WORDS), "span", 32)(example)  # [CLS] who ? [SEP] a b c d e f [SEP]
    return predict_spans(example, features, torch.tensor(start), torch.tensor(end), **settings)


def test_a_predicted_span_is_text_of_the_document_and_never_of_the_question():
    start, end = [0.0] * 20, [0.0] * 20  # longer than the row: padding is not read
    start[1] = end[2] = 99.0  # "who ?" is not of the document
    start[19] = 99.0
    start[5], end[6] = 3.0, 4.0
    prediction = predict(start, end, allow_none=False, max_tokens=3, top=2)
    assert prediction.text == "b c" and prediction.spans[0][0] == "b c" and len(prediction.spans) == 2
    assert sum(chance for _, chance in prediction.spans) == pytest.approx(1)


def test_no_answer_wins_where_cls_scores_above_every_span():
    start, end = [0.0] * 11, [0.0] * 11
    start[0], end[0], start[5], end[6] = 2.0, 2.5, 2.0, 2.0  # none 4.5, "b c" 4.0
    assert predict(start, end, allow_none=True).text == ""
    assert predict(start, end, allow_none=False).text == "b c"
    # the probability of "b c" among itself and none alone (top=1): e^4 / (e^4 + e^4.5) = 1 / (1 + e^0.5) = 0.3775
    assert predict(start, end, allow_none=True, top=1).spans[0][1] == pytest.approx(0.3775, abs=1e-4)


def test_choice_reads_only_the_real_choices():
    example = Example("c", "who?", "a", choices=("a", "b"), label=0)
    prediction = predict_choice(example, torch.tensor([0.1, 0.2, 9.0]))
    assert (prediction.choice, prediction.text) == (1, "b")


def test_text_drops_special_tokens_and_padding():
    tokenizer = bert_like(WORDS)
    ids = [2, *tokenizer("a b", add_special_tokens=False)["input_ids"], 3, 0, -100]
    assert predict_text(Example("t", "who?", "a"), torch.tensor(ids), tokenizer).text == "a b"
