"""Examples become rows of tokens: layout, VIPs, spans, what is cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.words import bert_like, real_tokenizer, roberta_like, t5_like
from vcc.data.example import SUMMARIZE, Example
from vcc.data.features import ExampleTokenizer, TextCache, TruncationReport, token_spans, tokenize_text
from vcc.errors import UsageError

WORDS = "who is it ? it was bob smith , and then alice came . question : context summarize | yes no unanswerable (a)"
DOCUMENT = "it was bob smith, and then alice came."
EXAMPLE = Example("e", "who is it?", DOCUMENT, ("bob smith", "alice"), ((7, 16), (27, 32)))


def read(tokenizer, row):
    return tokenizer.decode(row.input_ids)


def test_bert_row_is_cls_question_sep_document_sep_with_two_segments():
    tokenizer = bert_like(WORDS)
    row = ExampleTokenizer(tokenizer, "span", 64)(EXAMPLE).row
    pair = tokenizer(EXAMPLE.question, DOCUMENT)  # the tokenizer's own way is the oracle
    assert row.input_ids.tolist() == pair["input_ids"]
    assert row.token_type_ids.tolist() == pair["token_type_ids"]
    assert row.vip_count == 6  # [CLS] who is it ? [SEP]


def test_roberta_row_has_two_separators_and_one_segment():
    tokenizer = roberta_like(WORDS)
    row = ExampleTokenizer(tokenizer, "span", 64)(EXAMPLE).row
    assert row.input_ids.tolist() == tokenizer(EXAMPLE.question, DOCUMENT)["input_ids"]
    assert not row.token_type_ids.any() and row.vip_count == 7


def test_t5_row_is_one_text_with_the_question_in_front():
    tokenizer = t5_like(WORDS)
    row = ExampleTokenizer(tokenizer, "text", 64)(EXAMPLE).row
    assert row.input_ids.tolist() == tokenizer(f"question: {EXAMPLE.question} context: {DOCUMENT}")["input_ids"]
    assert read(tokenizer, row).startswith("question : who is it ? context :") and row.vip_count == 8


def test_t5_summary_has_only_the_instruction_in_front():
    row = ExampleTokenizer(tokenizer := t5_like(WORDS), "text", 64)(Example("s", SUMMARIZE, DOCUMENT, ("bob",))).row
    assert row.input_ids.tolist() == tokenizer(f"summarize: {DOCUMENT}")["input_ids"] and row.vip_count == 2


@pytest.mark.parametrize("make", [bert_like, roberta_like, t5_like])
def test_token_spans_read_back_as_the_answers(make):
    features = ExampleTokenizer(make(WORDS), "span", 64)(EXAMPLE)
    offsets = features.row.offsets
    assert [DOCUMENT[offsets[a, 0] : offsets[b, 1]] for a, b in features.spans] == ["bob smith", "alice"]


CHOICES = Example("c", "who is it?", DOCUMENT, ("alice",), choices=("bob smith", "alice", "it"), label=1)


@pytest.mark.parametrize("make, gap", [(bert_like, "[SEP]"), (roberta_like, "[SEP] [SEP]")])
def test_a_multiple_choice_is_one_row_in_which_each_choice_is_closed(make, gap):
    """The document stands in it once, and question and choices are the VIPs."""
    tokenizer = make(WORDS)
    features = ExampleTokenizer(tokenizer, "choice", 64)(CHOICES)
    row = features.row
    vips = f"[CLS] who is it ? {gap} bob smith [SEP] alice [SEP] it {gap}"
    assert tokenizer.decode(row.input_ids[: row.vip_count]) == vips
    assert (
        tokenizer.decode(row.input_ids[row.vip_count :]) == f"{tokenizer.decode(tokenizer(DOCUMENT)['input_ids'][1:])}"
    )
    assert {tokenizer.decode([row.input_ids[place]]) for place in row.choice_tokens} == {"[SEP]"}
    assert [tokenizer.decode([row.input_ids[place - 1]]) for place in row.choice_tokens] == ["smith", "alice", "it"]
    assert features.label == 1 and features.cut_tokens == 0
    kept = ExampleTokenizer(tokenizer, "choice", 64, max_choices=2)(CHOICES)
    assert len(kept.row.choice_tokens) == 2
    assert tokenizer.decode([kept.row.input_ids[kept.row.choice_tokens[kept.label] - 1]]) == "alice"


def test_choices_that_take_more_than_half_of_the_row_are_cut_the_longest_first():
    tokenizer = bert_like(WORDS)
    long = Example("c", "who?", DOCUMENT, choices=("bob " * 30, "alice it"), label=0)
    row, cut = (features := ExampleTokenizer(tokenizer, "choice", 32)(long)).row, features.cut_tokens
    assert tokenizer.decode(row.input_ids[: row.vip_count]) == f"[CLS] who ? [SEP] {'bob ' * 7}[SEP] alice it [SEP]"
    assert cut == 23 + len(tokenizer(DOCUMENT)["input_ids"]) - 2 - row.kept
    with pytest.raises(UsageError, match="20 choices need more than half of --length 32"):
        ExampleTokenizer(tokenizer, "choice", 32)(Example("m", "who?", DOCUMENT, choices=("a",) * 20, label=0))


def test_text_head_sees_all_choices_and_learns_the_first_answer():
    tokenizer = t5_like(WORDS)
    example = Example("c", "who is it?", DOCUMENT, ("alice", "bob"), choices=("bob", "alice"), label=1)
    features = ExampleTokenizer(tokenizer, "text", 64)(example)
    assert "bob | alice context :" in read(tokenizer, features.row)
    assert features.target_ids.tolist() == tokenizer("alice")["input_ids"]
    empty = ExampleTokenizer(tokenizer, "text", 64)(Example("n", "who?", DOCUMENT))
    assert empty.target_ids.tolist() == tokenizer("unanswerable")["input_ids"]


def test_cut_is_at_the_end_of_the_document_and_counted():
    tokenizer = bert_like(WORDS)
    features = ExampleTokenizer(tokenizer, "span", 16)(EXAMPLE)
    # 10 words and signs in the document, 6 VIP tokens and a last separator: 9 fit of 10. "alice" (8th) still does.
    assert features.length == 16 and features.cut_tokens == 1
    assert features.cut_answers == 0 and len(features.spans) == 2
    assert read(tokenizer, features.row).endswith("[SEP] it was bob smith , and then alice came [SEP]")
    late = Example("l", "who is it?", DOCUMENT, ("came.",), ((33, 38),))  # its last token is the one cut
    lost = ExampleTokenizer(tokenizer, "span", 16)(late)
    assert lost.spans == () and lost.cut_answers == 1
    assert str(TruncationReport.of([features, lost])) == (
        "truncated: 2 of 2 (100.0%) examples, 2 of 34 (5.9%) tokens, 1 answer spans lost with them"
    )


def test_a_question_longer_than_half_the_row_is_cut_and_counted():
    features = ExampleTokenizer(bert_like(WORDS), "span", 16)(Example("q", "who " * 40, DOCUMENT))
    assert features.row.vip_count == 7 and features.row.kept == 8 and features.cut_tokens == 35 + 2


def test_a_cut_target_keeps_its_end_mark():
    tokenizer = t5_like(WORDS)
    example = Example("t", SUMMARIZE, "it", ("it was bob smith",))
    features = ExampleTokenizer(tokenizer, "text", 32, target_length=3)(example)
    assert tokenizer.decode(features.target_ids) == "it was </s>" and features.cut_target == 2


def test_a_document_is_tokenized_once_for_all_its_questions():
    tokenize = ExampleTokenizer(bert_like(WORDS), "span", 64)
    for i in range(41):
        tokenize(Example(str(i), "who?", "".join(DOCUMENT)))
    assert tokenize.cache.misses == 1


def test_the_cache_stays_within_its_tokens_and_drops_the_oldest():
    tokenizer, cache = bert_like(WORDS), TextCache(max_tokens=6)
    for text in ("it was bob", "bob was it", "it was bob", "who is it", "it was bob"):
        assert len(cache.get(text, tokenizer).ids) == 3
    assert cache.tokens == 6 and cache.misses == 3 and list(cache.texts) == ["who is it", "it was bob"]


@settings(max_examples=100)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.data())
def test_token_spans_are_the_tokens_that_touch_the_characters(sizes, data):
    """Against the definition: token t touches [start, end) if their character ranges meet."""
    ends = np.cumsum(np.array(sizes) + 1) - 1  # tokens with one blank between
    offsets = np.stack([ends - sizes, ends], 1).astype(np.int32)
    start = data.draw(st.integers(0, int(ends[-1]) - 1))
    end = data.draw(st.integers(start + 1, int(ends[-1])))
    touching = [t for t, (a, b) in enumerate(offsets) if a < end and b > start]
    assert token_spans([(start, end)], offsets) == ([(touching[0], touching[-1])] if touching else [])


def test_bad_settings_say_the_value_and_the_rule():
    with pytest.raises(ValueError, match="max_length 4 must be at least 16"):
        ExampleTokenizer(bert_like(WORDS), "span", 4)
    with pytest.raises(ValueError, match="has 0 choices"):
        ExampleTokenizer(bert_like(WORDS), "choice", 64)(EXAMPLE)
    with pytest.raises(ValueError, match=r"answer span \(5, 99\) must be"):
        Example("x", "q", "short", (), ((5, 99),))


@pytest.mark.parametrize("kind", ["bert_uncased", "gpt2", "t5"])
def test_real_vocabularies_read_spans_back(kind):
    tokenizer = real_tokenizer(kind)
    document = "The Café’s owner,  Zoë\nSmith-Jones, paid $1,000.50 on 3rd May."
    wanted = ["Café’s", "Zoë\nSmith-Jones", "$1,000.50", "May"]
    spans = tuple((document.index(text), document.index(text) + len(text)) for text in wanted)
    features = ExampleTokenizer(tokenizer, "span", 64)(Example("r", "Who paid?", document, tuple(wanted), spans))
    offsets = features.row.offsets
    assert [document[offsets[a, 0] : offsets[b, 1]].strip() for a, b in features.spans] == wanted
    whole = tokenizer(f"question: Who paid? context: {document}") if kind == "t5" else tokenizer("Who paid?", document)
    assert features.row.input_ids.tolist() == whole["input_ids"]


@pytest.mark.parametrize("make", [bert_like, t5_like])
def test_the_name_of_a_special_token_in_a_text_is_text(make):
    """A document that explains "[MASK]" or "</s>" must not be cut, or hidden from, by its own words."""
    tokenizer = make(WORDS + " [ ] mask sep < / s >")
    for word in tokenizer.all_special_tokens:
        tokens = tokenize_text(f"it was {word} bob", tokenizer)
        special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
        assert not special & set(tokens.ids.tolist()), word
        assert tokens.offsets[-1].tolist() == [8 + len(word), 11 + len(word)]
