"""Every loader on a few lines in its published format."""

import json
import zipfile

import pytest

from vcc.data.example import SUMMARIZE, Example, Prediction
from vcc.errors import DataError
from vcc.tasks import TASKS


def write(folder, name, rows, lines=True):
    (folder / name).write_text("\n".join(json.dumps(row) for row in rows) if lines else json.dumps(rows))
    return str(folder)


def scrolls_zip(folder, name, rows):
    with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
        for split in ("train", "validation"):
            archive.writestr(f"{name}/{split}.jsonl", "\n".join(json.dumps(row) for row in rows))
    return str(folder)


def texts(example):
    return [example.document[start:end] for start, end in example.answer_spans]


SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "Normans",
            "paragraphs": [
                {
                    "context": "The Normans came in the 10th century to Normandy in France.",
                    "qas": [
                        {
                            "id": "1",
                            "question": " Where is Normandy?",
                            "is_impossible": False,
                            "answers": [
                                {"text": "France", "answer_start": 52},
                                {"text": "in France", "answer_start": 49},
                                {"text": "France", "answer_start": 52},
                            ],
                        },
                        {"id": "2", "question": "Who left?", "is_impossible": True, "answers": []},
                    ],
                }
            ],
        }
    ],
}


def test_squad_json_keeps_distinct_answers_and_empty_ones(tmp_path):
    first, second = TASKS["squad"]().load("validation", write(tmp_path, "dev-v2.0.json", SQUAD, lines=False))
    assert first.answers == ("France", "in France") and texts(first) == ["in France", "France"]
    assert second.answers == () == second.answer_spans and first.group == second.group == "Normans"
    assert first.question == "Where is Normandy?"


def test_squad_rows_of_the_hub_and_flat_lines_read_the_same(tmp_path):
    context = SQUAD["data"][0]["paragraphs"][0]["context"]
    row = {"id": "1", "title": "Normans", "context": context, "question": "Where is Normandy?"}
    hub = row | {"answers": {"text": ["France"], "answer_start": [52]}}
    flat = row | {"answers": ["France"], "answer_starts": [52]}
    a, b = TASKS["squad"]().load("train", write(tmp_path, "train.jsonl", [hub, flat]))
    assert a == b and texts(a) == ["France"]


def test_squad_answer_that_is_not_where_it_should_be_is_named(tmp_path):
    broken = json.loads(json.dumps(SQUAD).replace("52", "3"))
    with pytest.raises(DataError, match=r"dev.json\[0\] article 0 paragraph 0 question 0: answer 'France' must be at"):
        TASKS["squad"]().load("validation", write(tmp_path, "dev.json", broken, lines=False))


def test_squad_text_head_may_say_unanswerable():
    assert TASKS["squad"]().metrics([Prediction("2", "Unanswerable")], [Example("2", "Who?", "d")])["em"] == 100


def test_whole_texts_keep_every_place_of_an_answer_and_refuse_a_wrong_one(tmp_path):
    line = {"id": "1", "doc_id": "d", "question": " Who? ", "answers": ["Ann", "the Ann"], "answer_starts": [8, 4]}
    (tmp_path / "docs.jsonl").write_text(json.dumps({"doc_id": "d", "document": "See the Ann."}))
    (tmp_path / "train.jsonl").write_text(json.dumps(line))
    (example,) = TASKS["fairytaleqa"]().load("train", str(tmp_path))
    assert (example.question, example.answer_spans, example.group) == ("Who?", ((4, 11), (8, 11)), "d")
    (tmp_path / "train.jsonl").write_text(json.dumps({**line, "answer_starts": [0, 4]}))
    with pytest.raises(DataError, match="answer 'Ann' must be at character 0"):
        TASKS["fairytaleqa"]().load("train", str(tmp_path))


def test_cuad_json_has_none_one_or_several_spans(tmp_path):
    contract = {
        "data": [
            {
                "title": "C",
                "paragraphs": [
                    {
                        "context": "ACME AGREEMENT between Acme and Bolt.",
                        "qas": [
                            {
                                "id": "C__Parties",
                                "question": "Parties?",
                                "is_impossible": False,
                                "answers": [{"text": "Acme", "answer_start": 23}, {"text": "Bolt", "answer_start": 32}],
                            },
                            {"id": "C__Cap", "question": "Cap?", "is_impossible": True, "answers": []},
                        ],
                    }
                ],
            }
        ]
    }
    parties, cap = TASKS["cuad"]().load("test", write(tmp_path, "test.json", contract, lines=False))
    assert texts(parties) == ["Acme", "Bolt"] and cap.answers == ()


def test_cuad_lines_find_their_answers_in_the_shared_document(tmp_path):
    write(tmp_path, "docs.jsonl", [{"doc_id": "c", "document": "THE  AGREEMENT\nof Acme Inc. and Acme Inc."}])
    rows = [
        {"id": "c__Name", "doc_id": "c", "category": "Name", "question": "Name?", "answers": ["THE AGREEMENT"]},
        {
            "id": "c__Parties",
            "doc_id": "c",
            "category": "Parties",
            "question": "Who?",
            "answers": ["Acme Inc.", "Bolt"],
        },
    ]
    name, parties = TASKS["cuad"]().load("train", write(tmp_path, "train.jsonl", rows))
    assert texts(name) == ["THE  AGREEMENT"]  # blanks may differ
    assert texts(parties) == ["Acme Inc."] and parties.answer_spans[0][0] == 18  # the first place
    assert parties.answers == ("Acme Inc.", "Bolt") and name.group == parties.group == "c"


def hotpot(answer, **fields):
    return {
        "_id": "h",
        "question": "Q?",
        "answer": answer,
        "type": "bridge",
        "level": "hard",
        "supporting_facts": [["Ann", 0], ["Bob", 1]],
        "context": [["Eve", ["Paris is nice."]], ["Ann", ["Ann lives.", " She is in Paris."]], ["Bob", ["Bob."]]],
    } | fields


def test_hotpotqa_json_finds_the_answer_in_the_supporting_paragraphs(tmp_path):
    rows = [hotpot("Paris"), hotpot("no"), hotpot("nice"), hotpot("PARIS")]
    path = write(tmp_path, "hotpot_dev_distractor_v1.json", rows, lines=False)
    paris, no, nice, shouted = TASKS["hotpotqa"]().load("validation", path)
    assert paris.document == "yes no\n\nEve\nParis is nice.\n\nAnn\nAnn lives. She is in Paris.\n\nBob\nBob."
    assert texts(paris) == ["Paris"] and paris.document[: paris.answer_spans[0][0]].endswith("She is in ")
    assert texts(no) == ["no"] and no.answer_spans == ((4, 6),)
    assert texts(nice) == ["nice"]  # not in a supporting paragraph: any place
    assert texts(shouted) == ["Paris", "Paris"]  # whatever the case, if nothing else


def test_hotpotqa_rows_of_the_hub_read_the_same(tmp_path):
    sentences = [["Paris is nice."], ["Ann lives.", " She is in Paris."], ["Bob."]]
    hub = hotpot(
        "Paris",
        context={"title": ["Eve", "Ann", "Bob"], "sentences": sentences},
        supporting_facts={"title": ["Ann", "Bob"], "sent_id": [0, 1]},
    )
    a, b = TASKS["hotpotqa"]().load("train", write(tmp_path, "train.jsonl", [hub, hotpot("Paris")]))
    assert a == b


def test_wikihop_json_has_candidates(tmp_path):
    row = {
        "id": "WH_1",
        "query": "country_of_citizenship ada",
        "answer": "uk",
        "candidates": ["france", "uk"],
        "supports": ["Ada was born.", "In the UK."],
    }
    (example,) = TASKS["wikihop"]().load("train", write(tmp_path, "train.json", [row], lines=False))
    assert example.question == "country of citizenship ada" and example.document == "Ada was born.\n\nIn the UK."
    assert (example.choices, example.label, example.answers) == (("france", "uk"), 1, ("uk",))
    with pytest.raises(DataError, match="answer 'spain' must be one of its 2 candidates"):
        TASKS["wikihop"]().load("train", write(tmp_path, "train.json", [row | {"answer": "spain"}], lines=False))


def test_quality_in_its_own_format_and_in_scrolls(tmp_path):
    own = {
        "article_id": "7",
        "set_unique_id": "7_A",
        "article": "A story.",
        "questions": [
            {"question": "Why?", "question_unique_id": "7_1", "options": ["a", "b (B)", "c", "d"], "gold_label": 2},
            {"question": "Who?", "question_unique_id": "7_2", "options": ["a", "b", "c", "d"]},
        ],
    }
    why, who = TASKS["quality"]().load("validation", write(tmp_path, "QuALITY.v1.0.1.htmlstripped.dev", [own]))
    assert (why.label, why.answers, who.label, who.answers, why.group) == (1, ("b (B)",), None, (), "7")
    folder = tmp_path / "scrolls"
    folder.mkdir()
    row = {
        "id": "7_1",
        "pid": "7_1_0",
        "output": "two b",
        "input": "Why?\n\n (A) one a\n (B) two b\n (C) three c\n (D) four d\n\n\nA story.\n\nIts end (A).",
    }
    (example,) = TASKS["quality"]().load("validation", scrolls_zip(folder, "quality", [row]))
    assert example.choices == ("one a", "two b", "three c", "four d") and example.label == 1
    assert example.question == "Why?" and example.document == "A story.\n\nIts end (A)."
    with pytest.raises(DataError, match="must be one of the options"):
        TASKS["quality"]().load("validation", scrolls_zip(folder, "quality", [row | {"output": "five"}]))


@pytest.mark.parametrize("name", ["qasper", "narrative_qa", "contract_nli", "qmsum"])
def test_scrolls_questions_come_before_the_document_and_references_merge_but_in_training(tmp_path, name):
    rows = [{"id": "1", "pid": f"1_{output}", "input": "Who?\n\nA long\n\ntext.", "output": output} for output in "ab"]
    source = scrolls_zip(tmp_path, name, rows)
    (example,) = TASKS[name]().load("validation", source)
    assert (example.question, example.document, example.answers) == ("Who?", "A long\n\ntext.", ("a", "b"))
    assert [e.answers for e in TASKS[name]().load("train", source)] == [("a",), ("b",)]
    with pytest.raises(DataError, match="input must be: question, an empty line, document"):
        TASKS[name]().load("train", scrolls_zip(tmp_path, name, [rows[0] | {"input": "no gap"}]))


@pytest.mark.parametrize("name", ["gov_report", "summ_screen_fd"])
def test_scrolls_summaries_are_asked_for_with_one_word(tmp_path, name):
    source = scrolls_zip(tmp_path, name, [{"id": "1", "input": "A\n\nB", "output": "S"}])
    (example,) = TASKS[name]().load("train", source)
    assert (example.question, example.document, example.answers) == (SUMMARIZE, "A\n\nB", ("S",))


@pytest.mark.parametrize(
    "name, row",
    [
        ("cnn_dailymail", {"id": "1", "article": "Doc.", "highlights": "Sum."}),
        ("mediasum", {"id": "NPR-1", "utt": ["Doc."], "speaker": ["A"], "summary": "Sum."}),
        ("arxiv", {"article_id": "1", "article_text": ["Doc."], "abstract_text": ["<S> Sum. </S>"]}),
        ("arxiv", {"article": "Doc.", "abstract": "Sum."}),
        ("multinews", {"document": "Doc.", "summary": "Sum."}),
        ("crd3", {"id": "C1", "document": "Doc.", "summary": "Sum.", "aligned": []}),
        ("sumpubmed", {"id": "1", "document": "Doc.", "summary": "Sum."}),
    ],
)
def test_summaries_go_by_their_own_field_names(tmp_path, name, row):
    (example,) = TASKS[name]().load("test", write(tmp_path, "test.jsonl", [row]))
    assert (example.question, example.document, example.answers) == (SUMMARIZE, "Doc.", ("Sum.",))


def test_arxiv_sentences_are_one_summary_and_squality_has_several(tmp_path):
    row = {"article_text": ["One.", "Two."], "abstract_text": ["<S> First. </S>", "<S> Second. </S>"]}
    (paper,) = TASKS["arxiv"]().load("train", write(tmp_path, "train.jsonl", [row]))
    assert paper.document == "One.\nTwo." and paper.answers == ("First. Second.",)
    row = {"id": "1", "document": "Doc.", "question": "Plot?", "summaries": ["S1", "S2"]}
    (story,) = TASKS["squality"]().load("train", write(tmp_path, "train.jsonl", [row]))
    assert story.answers == ("S1", "S2") and story.question == "Plot?"
