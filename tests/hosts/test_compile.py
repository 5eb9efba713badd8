"""torch.compile: the whole forward pass is one graph, whatever the masks say; `vcc.compile` buckets lengths."""

from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import vcc
from tests.hosts.models import ONE_EACH, REAL, Batch, build, difference, encoded, heads_of, one, ragged


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def compiled(model: Any) -> tuple[Any, CompileCounter]:
    counter = CompileCounter()
    return torch.compile(model, backend=counter, fullgraph=True, dynamic=False), counter


@pytest.mark.parametrize("family", ONE_EACH)
def test_forward_is_one_graph_and_masks_do_not_recompile(family: str) -> None:
    wrapped = vcc.wrap(build(family), REAL)
    graph, counter = compiled(wrapped)
    for batch in (ragged(seed=0), ragged(seed=1), other_masks()):
        with torch.no_grad():
            expected = wrapped(**batch.arguments(family))
            actual = graph(**batch.arguments(family))
        assert difference(actual, expected, batch.real) < 1e-10
    assert counter.frame_count == 1, "one graph for one shape"


def other_masks() -> Batch:
    """The same shape, other padding, other VIPs: none in one sequence, half of another."""
    batch = ragged(seed=2)
    real, vips = torch.ones_like(batch.real), torch.zeros_like(batch.vips)
    real[2, 3:] = 0
    vips[0, ::2] = 1
    return Batch(batch.ids.masked_fill(real == 0, 0), real, vips)


@pytest.mark.parametrize("vip_window", ["inline", "own"])
@pytest.mark.parametrize("family", ["bert", "t5"])
def test_lengths_compile_once_each(family: str, vip_window: str) -> None:
    wrapped = vcc.wrap(build(family), vcc.VccConfig(**REAL.to_dict() | {"vip_window": vip_window}))
    graph, counter = compiled(wrapped)
    for n in (45, 50, 45, 50):
        with torch.no_grad():
            actual = graph(**ragged(n).arguments(family))
            expected = wrapped(**ragged(n).arguments(family))
        assert difference(actual, expected, ragged(n).real) < 1e-10
    assert counter.frame_count == 2


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("roberta", "AutoModelForMaskedLM"),
        ("roberta", "AutoModelForSequenceClassification"),
        ("bert", "AutoModelForQuestionAnswering"),
        ("modernbert", "AutoModelForTokenClassification"),
        ("t5", "AutoModelForSeq2SeqLM"),
        ("bart", "AutoModelForSeq2SeqLM"),
    ],
)
def test_heads_are_one_graph_too(family: str, head: str) -> None:
    assert head in heads_of(family)
    wrapped, batch = vcc.wrap(build(family, head), REAL), ragged()
    graph, counter = compiled(wrapped)
    with torch.no_grad():
        actual = graph(**batch.arguments(family, head))
        expected = wrapped(**batch.arguments(family, head))
    assert difference(actual, expected, batch.real) < 1e-10
    assert counter.frame_count == 1


@pytest.mark.parametrize("family", ["roberta", "t5"])
def test_dense_and_default_vips_are_one_graph(family: str) -> None:
    """Short inputs through the untouched forward; VIPs found by a rule, or as a prefix."""
    head = "AutoModelForSequenceClassification" if family == "roberta" else "AutoModelForTokenClassification"
    for settings, extra in ((vcc.VccConfig(), {}), (REAL, {"vip_length": 3})):
        wrapped, batch = vcc.wrap(build(family, head), settings), ragged()
        graph, counter = compiled(wrapped)
        with torch.no_grad():
            actual = graph(**batch.inputs(family, head), **extra)
            expected = wrapped(**batch.inputs(family, head), **extra)
        assert difference(actual, expected, batch.real) < 1e-10
        assert counter.frame_count == 1


@pytest.mark.parametrize("family", ["roberta", "t5", "modernbert"])
def test_training_compiles(family: str) -> None:
    found = []
    for compiling in (False, True):
        model = build(family)
        wrapped = vcc.wrap(model, REAL)
        run = compiled(wrapped)[0] if compiling else wrapped
        encoded(run(**ragged().arguments(family)))[ragged().real.bool()].square().sum().backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    largest = max(float(gradient.abs().max()) for gradient in found[0].values())
    for name, gradient in found[0].items():
        assert float((found[1][name] - gradient).abs().max()) < 1e-10 * largest, name


def test_more_vips_than_reserved_are_refused() -> None:
    wrapped = vcc.wrap(build("bert"), vcc.VccConfig(**REAL.to_dict() | {"max_vips": 5}))
    with torch.no_grad():
        wrapped(**one(45, vips=5).arguments("bert"))
        with pytest.raises(RuntimeError, match="max_vips"):
            wrapped(**one(45, vips=6).arguments("bert"))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "t5", "modernbert"])
def test_inductor_gives_the_same_numbers(family: str) -> None:
    wrapped, batch = vcc.wrap(build(family, dtype=torch.float32), REAL), ragged()
    graph = torch.compile(wrapped, fullgraph=True)
    with torch.no_grad():
        expected = wrapped(**batch.arguments(family))
        assert difference(graph(**batch.arguments(family)), expected, batch.real) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("family", ["roberta", "t5"])
def test_vcc_compile_shares_graphs_between_similar_lengths(family: str) -> None:
    wrapped = vcc.wrap(build(family, dtype=torch.float32), REAL)
    fast = vcc.compile(vcc.wrap(build(family, dtype=torch.float32), REAL))
    for n in (37, 45, 48):
        with torch.no_grad():
            expected = encoded(wrapped(**ragged(n).arguments(family)))
            actual = encoded(fast(**ragged(n).arguments(family)))
        assert difference(actual, expected, ragged(n).real) < 1e-4
    assert len(vcc.compile_seconds(fast)) == 1, "37, 45 and 48 tokens are four windows of 12"
    assert vcc.unwrap(fast).config.model_type == family and not vcc.compile_seconds(vcc.wrap(fast, REAL))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("family", ONE_EACH)
def test_layers_do_not_wait_for_the_device(family: str) -> None:
    """With the number of VIPs reserved, and windows that are all real, nothing in a forward pass waits."""
    wrapped = vcc.wrap(build(family, dtype=torch.float32), vcc.VccConfig(**REAL.to_dict() | {"max_vips": 8})).cuda()
    arguments = {name: tensor.cuda() for name, tensor in one(48).arguments(family).items()}
    with torch.no_grad():
        wrapped(**arguments)
        waits = syncs_during(lambda: wrapped(**arguments))
    assert len(waits) <= 1, f"only leaving out empty windows may wait: {waits}"


def syncs_during(run: Any) -> list[str]:
    """What torch's sync debug mode complains about while `run` runs."""
    import warnings

    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return [str(each.message) for each in caught if "synchroniz" in str(each.message)]
