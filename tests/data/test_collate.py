"""Batches of ragged features, and the losses on them."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.data.words import bert_like, t5_like
from vcc.data.collate import Collator, pad_ids, pad_spans
from vcc.data.example import Example
from vcc.data.features import ExampleTokenizer
from vcc.data.losses import choice_loss, span_loss

WORDS = "who is it ? a b c d e f g h question : context"


def features(head, *examples):
    tokenizer = t5_like(WORDS) if head == "text" else bert_like(WORDS)
    tokenize = ExampleTokenizer(tokenizer, head, 32)
    return Collator.of(tokenizer, head, multiple=8), [tokenize(example) for example in examples]


def test_span_batch_pads_to_the_multiple_and_points_at_cls_without_an_answer():
    collate, items = features(
        "span", Example("1", "who?", "a b c d e f", ("b", "d"), ((2, 3), (6, 7))), Example("2", "it?", "a")
    )
    batch = collate(items)
    assert batch["input_ids"].shape == (2, 16)  # [CLS] who ? [SEP] 6 words [SEP] = 11, rounded up to 16
    assert batch["attention_mask"].sum(1).tolist() == [11, 6] and batch["vip_mask"].sum(1).tolist() == [4, 4]
    assert batch["spans"].tolist() == [[[5, 5], [7, 7]], [[-100, -100], [-100, -100]]]
    assert batch["start_positions"].tolist() == [5, 0] and batch["end_positions"].tolist() == [5, 0]
    assert set(batch) & {"spans", "choice_mask"} == {"spans"} and batch["token_type_ids"].shape == (2, 16)
    assert (batch["input_ids"][1, 6:] == 0).all()


def test_choice_batch_has_one_row_an_example_however_many_choices():
    collate, items = features(
        "choice",
        Example("1", "who?", "a b", choices=("a", "b", "c"), label=2),
        Example("2", "who?", "a b c d", choices=("a", "b")),
    )
    batch = collate(items)
    assert batch["input_ids"].shape == batch["vip_mask"].shape == (2, 16)
    assert batch["choice_mask"].tolist() == [[True] * 3, [True, True, False]]
    assert batch["choice_tokens"].shape == (2, 3) and batch["labels"].tolist() == [2, -100]
    for row, item in enumerate(items):
        assert tuple(batch["choice_tokens"][row][batch["choice_mask"][row]].tolist()) == item.row.choice_tokens


def test_text_batch_pads_labels_with_minus_100():
    collate, items = features("text", Example("1", "who?", "a", ("a b c",)), Example("2", "who?", "a", ("a",)))
    labels = collate(items)["labels"]
    assert labels.shape == (2, 4) and labels[1, 2:].tolist() == [-100, -100] and labels[:, 1].tolist()[1] == 1  # </s>


def test_a_tokenizer_without_padding_is_refused():
    tokenizer = bert_like(WORDS)
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match="no pad token"):
        Collator.of(tokenizer, "span")


def test_span_loss_of_one_span_is_the_hugging_face_loss():
    logits = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0))  # start and end, B=3, n=7
    spans = torch.tensor([[[2, 4]], [[1, 1]], [[-100, -100]]])  # the third has no answer: position 0
    mask = torch.ones(3, 7)
    starts, ends = torch.tensor([2, 1, 0]), torch.tensor([4, 1, 0])
    expected = (cross_entropy(logits[0], starts) + cross_entropy(logits[1], ends)) / 2
    assert torch.allclose(span_loss(logits[0], logits[1], spans, mask), expected)


def test_span_loss_rewards_any_of_several_spans_and_ignores_padding():
    start, end = torch.zeros(1, 6), torch.zeros(1, 6)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    spans = torch.tensor([[[1, 1], [2, 3], [-100, -100]]])
    # P(start) = 2 of 4 places, P(end) = 2 of 4 places: the loss is log 2
    assert torch.allclose(span_loss(start, end, spans, mask), torch.tensor(2.0).log())


def test_choice_loss_ignores_rows_that_only_pad():
    logits, mask = torch.tensor([[0.0, 0.0, 50.0]]), torch.tensor([[True, True, False]])
    assert torch.allclose(choice_loss(logits, torch.tensor([0]), mask), torch.tensor(2.0).log())


def test_ragged_rows_are_padded_to_the_longest_or_to_a_given_length():
    assert pad_ids([[5], [1, 2, 3]], 9).tolist() == [[5, 9, 9], [1, 2, 3]]
    assert pad_ids([[], [1]], n=3).tolist() == [[0, 0, 0], [1, 0, 0]]
    assert pad_spans([[], [(1, 2), (3, 3)]]).tolist() == [[[-100, -100]] * 2, [[1, 2], [3, 3]]]
    assert pad_spans([[]]).shape == (1, 1, 2)


def test_span_loss_without_a_mask_takes_minus_infinity_for_one():
    start, end = torch.randn(2, 1, 5)
    spans, mask = torch.tensor([[[1, 2]]]), torch.tensor([[1, 1, 1, 0, 0]])
    closed = [logits.masked_fill(mask == 0, -torch.inf) for logits in (start, end)]
    assert torch.equal(span_loss(*closed, spans), span_loss(start, end, spans, mask))
