"""`vcc.pipeline`: other people's readers on long texts, in the shape of transformers' former pipeline."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForQuestionAnswering

import vcc
import vcc.data.features
from tests.documents import small_model
from vcc.documents.asker import Asker
from vcc.documents.document import Document
from vcc.errors import ModelError, UsageError
from vcc.pipeline import PlainReader, QuestionAnswering, ReadingOptions, as_text, tokens_of
from vcc.qa.windows import room

QUESTION = "w5 w7 w9?"
KEYS = {"answer", "score", "start", "end"}
WINDOW = {"max_seq_len": 24, "doc_stride": 6, "max_answer_len": 5}


def reader(seed: int = 3) -> Any:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=len(small_model.WORDS) + 7, initializer_range=0.6, **sizes)
    return BertForQuestionAnswering(config).eval()


@pytest.fixture(scope="module")
def asker() -> Asker:
    return small_model.asker()


@pytest.fixture
def answering(asker: Asker) -> QuestionAnswering:
    """Another reader, with the small model as finder."""
    return QuestionAnswering(asker, PlainReader(reader(), small_model.tokenizer()), ReadingOptions(**WINDOW))


def slow_answer(context: str, question: str, longest: int, size: int, overlap: int) -> tuple[float, int, int]:
    """The best span of all windows, written a second time: one window at a time, every span compared."""
    model, tokenizer = reader(), small_model.tokenizer()
    encoded = tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=size,
        stride=overlap,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_token_type_ids=True,
    )
    best = (-1.0, 0, 0)
    for number, ids in enumerate(encoded["input_ids"]):
        given = {"input_ids": torch.tensor([ids]), "token_type_ids": torch.tensor([encoded["token_type_ids"][number]])}
        with torch.no_grad():
            out = model(**given)
        inside = torch.tensor([one == 1 for one in encoded.sequence_ids(number)])
        inside[0] = True
        start, end = (
            logits[0].masked_fill(~inside, -torch.inf).softmax(0) for logits in (out.start_logits, out.end_logits)
        )
        places = [i for i, one in enumerate(encoded.sequence_ids(number)) if one == 1]
        for i in places:
            for j in places:
                if 0 <= j - i < longest and float(start[i] * end[j]) > best[0]:
                    offsets = encoded["offset_mapping"][number]
                    best = (float(start[i] * end[j]), offsets[i][0], offsets[j][1])
    return best


@pytest.mark.parametrize("words", [8, 200])
def test_all_windows_give_the_best_span_of_any_window(answering: QuestionAnswering, words: int) -> None:
    context = small_model.text(words, 5).strip()
    found = answering(question=QUESTION, context=context, passages=0)
    score, start, end = slow_answer(context, QUESTION, 5, 24, 6)
    assert (found["start"], found["end"]) == (start, end) and found["score"] == pytest.approx(score, rel=1e-4)
    assert set(found) == KEYS and context[start:end] == found["answer"]


def test_a_short_context_is_read_whole_without_the_finder(answering: QuestionAnswering, monkeypatch: Any) -> None:
    monkeypatch.setattr(QuestionAnswering, "index", lambda *_: pytest.fail("the finder was asked"))
    context = small_model.text(40, 5)
    assert answering(question=QUESTION, context=context) == answering(question=QUESTION, context=context, passages=0)


def test_a_long_context_costs_as_many_windows_as_passages(answering: QuestionAnswering, monkeypatch: Any) -> None:
    rows: list[int] = []
    forward = answering.reader.model.forward
    monkeypatch.setattr(
        answering.reader.model, "forward", lambda **given: (rows.append(len(given["input_ids"])), forward(**given))[1]
    )
    context = small_model.text(400, 5)
    answering(question=QUESTION, context=context, passages=4)
    assert 1 <= sum(rows) <= 4
    rows.clear()
    answering(question=QUESTION, context=context, passages=0)
    assert sum(rows) > 20


def test_the_passages_hold_what_the_finder_points_at(answering: QuestionAnswering) -> None:
    """With enough passages, every place that is found lies in a window that is read."""
    context = small_model.text(300, 5)
    (places,) = answering.places([QUESTION], context)
    assert places and all(0 <= a < b <= len(context) for a, b in places)
    tokens = vcc.data.features.tokenize_text(context, answering.reader.tokenizer)
    for place in places:
        span = tokens_of(place, tokens)
        assert tokens.offsets[span.first, 0] == place[0] and tokens.offsets[span.last, 1] == place[1]


def test_lists_and_dictionaries_give_the_same_answers(answering: QuestionAnswering) -> None:
    contexts = [small_model.text(150, seed) for seed in (1, 2)]
    one = [answering(question=QUESTION, context=context) for context in contexts]
    assert answering(question=QUESTION, context=contexts) == one
    assert answering(question=[QUESTION] * 2, context=contexts) == one
    assert answering([{"question": QUESTION, "context": context} for context in contexts]) == one
    assert answering({"question": QUESTION, "context": contexts[0]}) == one[0]
    both = answering(question=[QUESTION, "w1?"], context=contexts[0])
    assert both == [one[0], answering(question="w1?", context=contexts[0])]


def test_top_k_gives_a_list_best_first_without_overlaps(answering: QuestionAnswering) -> None:
    found = answering(question=QUESTION, context=small_model.text(150, 1), top_k=4)
    assert 1 < len(found) <= 4 and [one["score"] for one in found] == sorted((o["score"] for o in found), reverse=True)
    spans = sorted((one["start"], one["end"]) for one in found)
    assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))


def test_no_answer_is_one_of_the_answers_where_it_may_be(answering: QuestionAnswering) -> None:
    with torch.no_grad():
        answering.reader.model.qa_outputs.weight.mul_(0)  # every place alike: no answer is as likely as any
    found = answering(question=QUESTION, context=small_model.text(10, 1), top_k=20, handle_impossible_answer=True)
    (none,) = [one for one in found if not one["answer"]]
    assert (none["start"], none["end"]) == (0, 0) and none["score"] == pytest.approx(found[0]["score"])


def test_one_context_is_read_by_the_finder_once(answering: QuestionAnswering, monkeypatch: Any) -> None:
    reads: list[str] = []
    index = Asker.index
    monkeypatch.setattr(Asker, "index", lambda self, text, *rest: (reads.append(text.text), index(self, text))[1])
    context = small_model.text(400, 5)
    for question in (QUESTION, "w1?", "w2 w3?"):
        answering(question=question, context=context, finder="model")
    assert reads == [context]


def test_few_questions_are_found_by_their_words_and_many_by_the_model(
    answering: QuestionAnswering, monkeypatch: Any
) -> None:
    reads: list[str] = []
    index = Asker.index
    monkeypatch.setattr(Asker, "index", lambda self, text, *rest: (reads.append(text.text), index(self, text))[1])
    context = f"{small_model.text(1500, 5).replace('w50', 'w0').replace('w51', 'w0')} w50 w51 w52."
    by_words = answering(question="w50 w51?", context=context, passages=1)
    assert reads == [] and by_words["start"] > len(context) // 2, "the only window holds the question's words"
    answering(question=[f"w{number}?" for number in range(8)], context=context, passages=1)
    assert reads == [context]
    with pytest.raises(UsageError, match="finder is 'none'"):
        answering(question="w50?", context=context, finder="none")


def test_a_wrapped_model_is_the_product(asker: Asker) -> None:
    context = small_model.text(200, 5)
    found = vcc.pipeline(asker.model, asker.tokenizer)(question=QUESTION, context=context, top_k=3)
    index = asker.index(as_text(context))
    answers = asker.replies_to(as_text(context), index, [QUESTION], 3, 0.0)[0][0].answers
    assert [(one["answer"], one["start"], one["end"]) for one in found] == [(a.text, a.start, a.end) for a in answers]


def test_without_a_model_the_bundled_one_answers() -> None:
    context = "The tower was built in Paris. It is 330 metres high."
    found = vcc.pipeline()(question="Where was the tower built?", context=context)
    assert set(found) == KEYS and "Paris" in found["answer"]
    expected = Document(as_text(context)).ask("Where was the tower built?", 1, 0.0)[0]
    assert found["score"] == pytest.approx(expected.score)
    nothing = vcc.pipeline()(question="Who painted the tower?", context=context, handle_impossible_answer=True)
    assert nothing["answer"] == "" and nothing["score"] > 0.5


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"question": QUESTION},
        {"question": "", "context": "w1"},
        {"question": QUESTION, "context": " "},
        {"question": QUESTION, "context": 5},
        {"question": [QUESTION], "context": ["w1", "w2"]},
        {"question": QUESTION, "context": "w1", "top_k": 0},
        {"question": QUESTION, "context": "w1", "nothing": 1},
        {"question": "w1 " * 100, "context": "w1"},
    ],
)
def test_a_wrong_call_raises_with_the_rule(answering: QuestionAnswering, given: dict[str, Any]) -> None:
    with pytest.raises((UsageError, TypeError)):
        answering(**given)


def test_a_model_without_tokenizer_and_a_slow_tokenizer_raise() -> None:
    with pytest.raises(UsageError, match="tokenizer"):
        vcc.pipeline(reader())
    with pytest.raises(ModelError, match="fast"):
        PlainReader(reader(), object())


def test_the_window_is_as_large_as_asked(answering: QuestionAnswering) -> None:
    ids = answering.reader.question_ids(QUESTION, answering.options)
    assert answering.reader.room(ids, answering.options) == room(ids, answering.reader.frame, 24) == 24 - 3 - len(ids)


REGISTERED = """
import sys
{imports}
from transformers import pipeline
answering = pipeline("question-answering", model={folder!r}, device=-1, max_seq_len=24, max_answer_len=5)
found = answering(question="w5 w7 w9?", context={context!r})
print(type(answering).__module__, sorted(found), found["answer"])
"""


@pytest.mark.parametrize(
    "imports", ["import vcc", pytest.param("import transformers.pipelines, vcc", marks=pytest.mark.slow)]
)
def test_transformers_has_its_task_again(imports: str, tmp_path: Path) -> None:
    reader().save_pretrained(tmp_path)
    small_model.tokenizer().save_pretrained(tmp_path)
    context = small_model.text(20, 5)
    code = REGISTERED.format(imports=imports, folder=str(tmp_path), context=context)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    plain = vcc.pipeline(reader(), small_model.tokenizer(), max_seq_len=24, max_answer_len=5)
    answer = plain(question="w5 w7 w9?", context=context)["answer"]
    assert done.stdout.split("\n")[0].startswith("vcc.integrations.hugging_face ['answer', 'end', 'score', 'start']")
    assert done.stdout.strip().endswith(answer)
