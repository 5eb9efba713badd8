"""The registry of tasks and the paper's numbers."""

import dataclasses

import pytest

from vcc.tasks import TASKS
from vcc.tasks.paper import RESULTS, Compression, paper_compression
from vcc.tasks.pretraining import PRETRAININGS
from vcc.tasks.task import Task


def test_every_task_has_its_name_a_recipe_for_each_head_and_says_what_is_vip():
    for name, make in TASKS.items():
        task = make()
        assert isinstance(task, Task) and dataclasses.is_dataclass(task) and task.name == name
        assert task.vips and task.metric_names and task.heads
        for head in task.heads:
            recipe = task.recipe(head)
            assert (recipe.output_length is not None) == (head == "text"), (name, head)
        assert set(task.options) <= {field.name for field in dataclasses.fields(task)}


def test_every_task_of_the_issue_is_there_with_its_heads():
    heads = {name: make().heads for name, make in TASKS.items()}
    assert heads["hotpotqa"] == ("span", "text") and heads["wikihop"] == heads["quality"] == ("choice", "text")
    assert heads["cuad"] == ("span",)
    for name in (
        "qasper",
        "narrative_qa",
        "contract_nli",
        "qmsum",
        "cnn_dailymail",
        "mediasum",
        "arxiv",
        "gov_report",
        "summ_screen_fd",
        "multinews",
        "squality",
        "crd3",
        "sumpubmed",
    ):
        assert heads[name] == ("text",)
    for name in ("squad", "squad_haystack", "needle", "needle_in_books", "babi_in_books"):
        assert heads[name][0] == "span"


def test_a_head_the_task_cannot_have_is_refused():
    with pytest.raises(ValueError, match="task 'cuad' has no head 'text': must be one of span"):
        TASKS["cuad"]().recipe("text")


def test_recipes_are_those_of_the_papers_table():
    quality = TASKS["quality"]().recipe("choice")
    assert (quality.batch_size, quality.learning_rates, quality.epochs) == (16, (3e-5, 5e-5), (10, 20))
    contracts = TASKS["contract_nli"]().recipe()
    assert (contracts.output_length, contracts.precision, contracts.weight_decay) == (4, "bf16", 0.01)
    assert TASKS["narrative_qa"]().recipe().epochs == (5,) and TASKS["qmsum"]().recipe().warmup_steps == 100
    assert not TASKS["cuad"]().recipe().of_paper and TASKS["hotpotqa"]().recipe("span").of_paper


def test_a_task_that_is_not_of_the_paper_says_which_one_it_is_like_and_in_what_it_differs():
    tasks = {name: make() for name, make in TASKS.items()}
    for task in tasks.values():
        assert all(task.recipe(head).of_paper == (not task.like) for head in task.heads)
        assert not task.like or (not tasks[task.like].like and not task.results())
    hotpotqa, needle = tasks["hotpotqa"], tasks["needle"]
    assert tasks["musique"].recipe("text") == dataclasses.replace(hotpotqa.recipe("text"), of_paper=False)
    longer = dataclasses.replace(hotpotqa.recipe("span"), length=16384, compression=Compression(16, 90))
    assert tasks["cuad"].recipe() == dataclasses.replace(longer, of_paper=False)
    assert needle.recipe("text").output_length == 8 and needle.recipe("span").output_length is None
    assert needle.recipe("span").learning_rates == (1e-3,) and needle.recipe("span").batch_sizes == (32,)


def test_results_are_those_of_the_papers_tables():
    def score(task, method, size, length, metric, head="text"):
        (found,) = [
            dict(r.scores)[metric]
            for r in RESULTS
            if r.compression is None
            and (r.task, r.method, r.size, r.length, r.head) == (task, method, size, length, head)
        ]
        return found

    assert score("hotpotqa", "VCC*", "large", 4096, "f1", "span") == 80.0
    assert score("wikihop", "MRA", "base", 4096, "accuracy", "choice") == 76.1
    assert score("qmsum", "VCC", "3b", 16384, "rougeL") == 31.1
    assert score("gov_report", "T5", "base", 4096, "rouge2") == 25.2
    assert score("mediasum", "VCC", "large", 4096, "rouge1") == 35.8
    assert score("multinews", "LED", "base", 8192, "rouge2") == 17.8
    long = [r for r in RESULTS if r.compression]
    assert [(r.length, r.compression.k, r.compression.h) for r in long] == [
        (16384, 16, 90),
        (32768, 32, 55),
        (32768, 16, 90),
        (65536, 64, 30),
        (65536, 16, 90),
        (131072, 16, 90),
    ]
    assert {name for name in TASKS if TASKS[name]().results()} == {result.task for result in RESULTS}


def test_compression_is_that_of_the_next_listed_length():
    assert paper_compression(512) == paper_compression(100_000) == paper_compression(10**7)
    assert paper_compression(5000).scales == (16, 1) and paper_compression(5000).budget == (90,)


def test_k_and_h_are_the_papers_its_codes_or_ours_and_say_so():
    def known(task, head="text"):
        found = TASKS[task]().recipe(head).compression
        return found.k, found.h, found.source

    assert known("narrative_qa") == (16, 90, "paper")
    assert known("hotpotqa") == known("hotpotqa", "span") == (16, 70, "code")
    assert known("wikihop") == known("wikihop", "choice") == (16, 80, "code")
    assert known("qmsum") == known("quality") == known("multinews") == (16, 90, "code")
    assert known("quality", "choice") == known("cuad", "span") == (16, 90, "ours")
    assert known("musique") == (16, 70, "ours")
    recipe = TASKS["hotpotqa"]().recipe("span")
    assert recipe.compression_at(512).h == recipe.compression_at(4096).h == 70
    assert recipe.compression_at(5000) == paper_compression(5000)
    assert [PRETRAININGS["vcc"].compression_for(layers).h for layers in (12, 24, 6)] == [44, 50, 44]
    assert PRETRAININGS["t5"].compression_for(24).h == 90


def test_pretrainings_are_the_papers():
    def shape(name):
        one = PRETRAININGS[name]
        return one.batch_size, one.steps, one.length, one.mask_ratio, one.vcc

    assert shape("roberta-512") == (8192, 750_000, 512, 0.15, False) and PRETRAININGS["roberta-512"].fresh
    assert shape("vcc") == (128, 300_000, 4096, 0.075, True) and shape("vcc-star") == (512, 250_000, 4096, 0.075, True)
    assert shape("baseline") == (64, 300_000, 4096, 0.15, False)
    assert shape("t5") == (256, 250_000, 4096, 0.15, True) and PRETRAININGS["t5"].writes
    ours, theirs = PRETRAININGS["vcc-150k"], PRETRAININGS["baseline"]
    assert ours.batch_size * ours.steps == theirs.batch_size * theirs.steps, "as many tokens"
    ours = PRETRAININGS["vcc"]
    assert ours.batch_size * ours.mask_ratio == theirs.batch_size * theirs.mask_ratio, "as many predictions a step"
