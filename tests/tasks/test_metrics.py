"""The published metrics on examples worked by hand."""

import numpy as np
import pytest

from vcc.data.example import Example, Prediction
from vcc.tasks.metrics import (
    NoReference,
    answer_scores,
    auc,
    best_of,
    choice_scores,
    clause_scores,
    exact,
    exact_by,
    jaccard,
    mean_scores,
    normalize,
    rouge,
    sentence_lines,
    summary_scores,
    word_f1,
)


def pairs(*rows, **fields):
    """(prediction, references) rows as predictions and examples."""
    predictions = [Prediction(str(i), text) for i, (text, _) in enumerate(rows)]
    return predictions, [Example(str(i), "q", "d", tuple(answers), **fields) for i, (_, answers) in enumerate(rows)]


# The rows in the docstring of SCROLLS' own metric script; the expected numbers below are the ones it prints.
SCROLLS = pairs(
    ("exact match example", ["exact match example"]),
    ("hello there", ["hello", "hi there"]),
    ("general kenobi", ["commander kenobi"]),
)


@pytest.mark.parametrize(
    "text, plain",
    [
        ("The Cat, a cat!", "cat cat"),
        ("An  apple\n(the red one)", "apple red one"),
        ("theatre", "theatre"),
        ("a-b", "ab"),
        ("U.S.", "us"),
    ],
)
def test_normalization_is_squads(text, plain):
    assert normalize(text) == plain


def test_f1_counts_words_in_common_with_their_number():
    # red cat sat against red cat: 2 in common of 3 and 2: precision 2/3, recall 1, f1 = 0.8
    assert word_f1("the red cat sat", "a red cat") == pytest.approx(0.8)
    # the same word twice counts twice only if both have it twice: 1 in common of 2 and 1: f1 = 2/3
    assert word_f1("cat cat", "cat") == pytest.approx(2 / 3)
    assert word_f1("the", "") == 1 and word_f1("cat", "") == 0 and word_f1("cat", "dog") == 0


def test_the_best_reference_counts_and_no_reference_wants_no_answer():
    assert best_of(exact, "hi there", ["hello", "hi there"]) == 1
    assert best_of(exact, "", []) == 1 and best_of(exact, "cat", []) == 0


def test_scrolls_em_and_f1_are_the_published_ones():
    scores = answer_scores(*SCROLLS)
    assert scores["em"] == pytest.approx(33.3333, abs=1e-4) and scores["f1"] == pytest.approx(72.2222, abs=1e-4)


def test_scrolls_rouge_is_the_published_one():
    scores = summary_scores(*SCROLLS)
    assert scores["rouge1"] == pytest.approx(72.2222, abs=1e-4) and scores["rouge2"] == pytest.approx(33.3333, abs=1e-4)
    assert scores["rougeL"] == pytest.approx(72.2222, abs=1e-4)
    assert scores["scrolls"] == pytest.approx(55.8136, abs=1e-4)


def test_rouge_with_stemming_matches_forms_of_a_word():
    # stemmed: the cat sat against the cat sat on mat: 3 words in common of 3 and 5: f = 0.75;
    # 2 pairs in common of 2 and 4: f = 2/3
    stemmed = rouge("the cats sat", ["the cat sat on mats"], stem=True)
    assert stemmed["rouge1"] == pytest.approx(0.75) and stemmed["rouge2"] == pytest.approx(2 / 3)
    # as they stand: the, sat: 2 in common of 3 and 5: f = 0.5; no pair in common
    plain = rouge("the cats sat", ["the cat sat on mats"], stem=False)
    assert plain["rouge1"] == pytest.approx(0.5) and plain["rouge2"] == 0


def test_rouge_l_of_a_summary_does_not_mind_the_order_of_sentences():
    scores = rouge("four five six. one two three.", ["one two three. four five six."], stem=True)
    # as one line the longest common subsequence is 3 of 6 words; sentence by sentence all 6 are covered
    assert scores["rougeL"] == pytest.approx(0.5) and scores["rougeLsum"] == pytest.approx(1)
    assert summary_scores(*pairs(("b c. a.", ["a. b c."])))["rougeL"] == pytest.approx(100)
    assert sentence_lines("One. Two! 3.5 is a number? Yes") == "One.\nTwo!\n3.5 is a number?\nYes"


def test_accuracy_is_the_share_of_right_choices():
    examples = [Example(str(i), "q", "d", ("x",), choices=("x", "y"), label=0) for i in range(4)]
    chosen = [Prediction(str(i), "xy"[c], choice=c) for i, c in enumerate((0, 0, 0, 1))]
    assert choice_scores(chosen, examples)["accuracy"] == 75
    said = [Prediction(str(i), text) for i, text in enumerate(("x", "y", "z", "x"))]
    scores = choice_scores(said, examples)
    assert "accuracy" not in scores and scores["em"] == 50


def test_jaccard_is_cuads():
    # {this, agreement, a, b} and {agreement, a}: 2 of 4
    assert jaccard("This Agreement: A/B.", "agreement, a") == 0.5
    assert jaccard("", ".,;:") == 0


def clauses(id, answers, *spans):
    return Example(id, "q", "d", tuple(answers), group=id), Prediction(id, spans=spans)


def test_cuads_curve_by_hand():
    rows = [
        clauses(
            "1",
            ["alpha beta gamma", "delta epsilon"],
            ("alpha beta", 0.9),
            ("zeta", 0.6),
            ("delta epsilon", 0.3),
            ("", 0.05),
        ),
        clauses("2", [], ("eta", 0.45)),
    ]
    scores = clause_scores([p for _, p in rows], [e for e, _ in rows])
    # As the threshold falls: below 0.90 alpha beta is found (overlap 2/3): 1 of 1 right, recall 1/2.
    # Below 0.60 zeta is a false alarm: precision 1/2; below 0.45 so is eta: 1/3.
    # Below 0.30 delta epsilon is found: 2 of 4 right, recall 1.
    # The best precision at this recall or a higher one: 1 from recall 0 to 1/2, then 1/2 up to 1: area 1/2 + 1/4.
    assert scores["aupr"] == pytest.approx(75)
    assert scores["p80"] == scores["p90"] == pytest.approx(50)
    # f1 of (precision, recall) = (1, 1/2) and of (1/2, 1): 2/3 both
    assert scores["f1"] == pytest.approx(200 / 3)
    assert scores["aupr_low"] <= scores["aupr"] <= scores["aupr_high"]


def test_cuad_counts_a_longer_span_for_parties_only():
    found = ("the company Acme Inc of 12 Long Street and so on", 0.9)
    for id, aupr in (("x__Parties", 100), ("x__Document Name", 0)):
        example, prediction = clauses(id, ["Acme Inc"], found)
        assert clause_scores([prediction], [example])["aupr"] == pytest.approx(aupr)


def test_cuad_without_any_answer_or_any_span_is_zero():
    for row in (clauses("1", [], ("x", 0.9)), clauses("1", ["x"])):
        assert clause_scores([row[1]], [row[0]])["aupr"] == 0


def test_exact_match_is_broken_down_by_rounded_numbers():
    examples = [
        Example(str(i), "q", "d", ("x",), meta={"length": length, "depth": depth})
        for i, (length, depth) in enumerate([(512, 0.0), (512, 0.52), (4096, 0.48), (4096, 1.0)])
    ]
    predictions = [Prediction(str(i), text) for i, text in enumerate("xxyx")]
    assert exact_by("length", predictions, examples) == {"em@length=512": 100, "em@length=4096": 50}
    assert exact_by("depth", predictions, examples) == {"em@depth=0": 100, "em@depth=0.5": 50, "em@depth=1": 100}


def test_the_interval_is_the_normal_one_for_many_documents():
    values = [1.0] * 300 + [0.0] * 100
    examples = [Example(str(i), "q", "d") for i in range(400)]
    scores = mean_scores({"em": values}, examples)
    half = 100 * 1.96 * np.sqrt(0.75 * 0.25 / 400)  # 4.24
    assert scores["em"] == 75
    assert scores["em_low"] == pytest.approx(75 - half, abs=0.6)
    assert scores["em_high"] == pytest.approx(75 + half, abs=0.6)


def test_the_interval_draws_documents_not_questions():
    """Ten questions on each of forty documents, all right or all wrong: as wide as forty, not four hundred."""
    values = [float(d < 30) for d in range(40) for _ in range(10)]
    grouped = [Example(f"{d}-{q}", "q", "d", group=str(d)) for d in range(40) for q in range(10)]
    half = 100 * 1.96 * np.sqrt(0.75 * 0.25 / 40)  # 13.4
    assert mean_scores({"em": values}, grouped)["em_low"] == pytest.approx(75 - half, abs=2)


def test_predictions_must_stand_in_the_order_of_the_examples():
    predictions, examples = SCROLLS
    with pytest.raises(ValueError, match="prediction '2' does not match example '0'"):
        answer_scores(predictions[::-1], examples)
    with pytest.raises(ValueError, match="2 predictions for 3 examples"):
        answer_scores(predictions[:2], examples)
    with pytest.raises(ValueError, match="example '0' has no reference answer"):
        summary_scores(*pairs(("x", [])))


def test_one_document_has_no_interval():
    predictions, examples = pairs(("cat", ["cat"]), ("dog", ["cat"]), group="only")
    assert answer_scores(predictions, examples).keys() == {"em", "f1"}
    assert clause_scores(predictions, examples).keys() == {"aupr", "p80", "p90", "f1"}


def test_a_hidden_test_split_is_told_apart_from_other_errors():
    for score in (answer_scores, choice_scores, summary_scores):
        with pytest.raises(NoReference, match="cannot be scored"):
            score(*pairs(("cat", [])))


def test_auc_is_the_share_of_pairs_in_order():
    values, labels = [0.9, 0.4, 0.4, 0.1, 0.2], [True, True, False, False, True]
    pairs_in_order = [(1.0 if a > b else 0.5 if a == b else 0.0) for a in (0.9, 0.4, 0.2) for b in (0.4, 0.1)]
    assert auc(values, labels) == pytest.approx(100 * sum(pairs_in_order) / 6)
    assert np.isnan(auc([1.0, 2.0], [True, True]))
