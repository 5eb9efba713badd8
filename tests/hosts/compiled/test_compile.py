"""torch.compile: the whole forward pass is one graph, whatever the masks say; `vcc.compile` buckets lengths."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend
from transformers import PreTrainedModel

import vcc
from tests.deep import deep_but
from tests.hosts.models import ONE_EACH, REAL, SEQ2SEQ, SHALLOW, Batch, build, difference, encoded, one, ragged
from vcc.hosts.compiled import pieces
from vcc.hosts.compiled.pieces import CompiledPieces
from vcc.hosts.forward.encoder import find_encoder
from vcc.hosts.forward.request import LongInput

SETTINGS = vcc.VccConfig(scales=(8, 1), budget=(3,), window=12, window_layers=1, explore=0.0, dense_below=0)


# The gradient of attention in float64 is given another type; the C++ of T5's buckets does not compile.
NOT_EARLIER = pytest.mark.skipif(torch.__version__ < (2, 13), reason="earlier torch makes wrong code for a CPU")


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def compiled(model: Any) -> tuple[Any, CompileCounter]:
    counter = CompileCounter()
    return torch.compile(model, backend=counter, fullgraph=True, dynamic=False), counter


def shallow(family: str, head: str = "AutoModel", dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    """Of encoder-decoder models, the encoder."""
    model = build(family, head, dtype, **SHALLOW[family])
    return vcc.wrap(model, SETTINGS)


@pytest.mark.parametrize("family", deep_but(("bert",), ONE_EACH))
def test_forward_is_one_graph_and_masks_do_not_recompile(family: str) -> None:
    wrapped = shallow(family)
    reader = wrapped.get_encoder() if family in SEQ2SEQ else wrapped
    graph, counter = compiled(reader)
    for batch in (ragged(seed=0), ragged(seed=1), other_masks()):
        given = {"input_ids": batch.ids, "attention_mask": batch.real, "vip_mask": batch.vips}
        with torch.no_grad():
            expected = encoded(reader(**given))
            actual = encoded(graph(**given))
        assert difference(actual, expected, batch.real) < 1e-10
    assert counter.frame_count == 1, "one graph for one shape"


def other_masks() -> Batch:
    """The same shape, other padding, other VIPs: none in one sequence, half of another."""
    batch = ragged(seed=2)
    real, vips = torch.ones_like(batch.real), torch.zeros_like(batch.vips)
    real[2, 3:] = 0
    vips[0, ::2] = 1
    return Batch(batch.ids.masked_fill(real == 0, 0), real, vips)


def operations(model: Any, batch: Batch) -> set[str]:
    """The names of what a compiler is given to compile, as one graph."""
    graphs: list[torch.fx.GraphModule] = []
    torch._dynamo.reset()
    graph = torch.compile(model, backend=lambda found, _: graphs.append(found) or found.forward, fullgraph=True)
    graph(**batch.arguments("bert"))
    (found,) = graphs
    return {str(node.target) for node in found.graph.nodes}


@pytest.mark.slow
def test_compiled_inference_adds_to_the_tree_in_place_and_training_does_not() -> None:
    """A compiler copies the whole tree where it meets any other way of adding rows, and loses gradients with this."""
    for learning in (False, True):
        with torch.set_grad_enabled(learning):
            names = operations(shallow("bert"), ragged())
        assert any("vcc.add_rows" in name for name in names) is not learning
        assert not any("index_add" in name for name in names)


def test_compiled_attention_knows_the_counts_of_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a GPU attends to many rows without a mask; torch 2.11 says that it exports while it compiles."""
    from vcc.attention import sdpa, unmasked

    monkeypatch.setattr(sdpa, "cudnn_masks", lambda q: True)
    for limit in ("MANY_ROWS", "MANY_WINDOWS", "FEW"):
        monkeypatch.setattr(unmasked, limit, 1)
    with torch.no_grad():
        names = operations(shallow("bert"), ragged())
    assert any("vcc.fused_attention" in name for name in names) and not any("scaled_dot" in name for name in names)


def test_the_running_sums_of_a_batch_are_hidden_from_the_compiler() -> None:
    with torch.no_grad():
        names = operations(shallow("bert"), ragged())
    assert any("vcc.running_count" in name for name in names) and not any("cumsum" in name for name in names)


def test_lengths_compile_once_each() -> None:
    wrapped = shallow("bert")
    graph, counter = compiled(wrapped)
    for n in (45, 50, 45, 50):
        with torch.no_grad():
            actual = encoded(graph(**ragged(n).arguments("bert")))
            expected = encoded(wrapped(**ragged(n).arguments("bert")))
        assert difference(actual, expected, ragged(n).real) < 1e-10
    assert counter.frame_count == 2


HEADS = [
    pytest.param("roberta", "AutoModelForMaskedLM", {}, marks=pytest.mark.slow),
    ("roberta", "AutoModelForSequenceClassification", {"vip_mask": None}),
    pytest.param("t5", "AutoModelForSeq2SeqLM", {}, marks=pytest.mark.slow),
    pytest.param("bert", "AutoModelForQuestionAnswering", {}, marks=pytest.mark.slow),
    pytest.param("modernbert", "AutoModelForTokenClassification", {}, marks=pytest.mark.slow),
    pytest.param("bart", "AutoModelForSeq2SeqLM", {"vip_mask": None, "vip_length": 3}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("family", "head", "changes"), HEADS)
def test_heads_are_one_graph_too(family: str, head: str, changes: dict[str, Any]) -> None:
    """VIPs by mask, by the head's rule, by a length. Not every torch can trace how transformers makes a cache."""
    changes = changes | ({"use_cache": False} if family in SEQ2SEQ else {})
    wrapped, batch = shallow(family, head), ragged()
    batch = Batch(batch.ids[::2], batch.real[::2], batch.vips[::2])  # a classifier would look at padding on the left
    graph, counter = compiled(wrapped)
    with torch.no_grad():
        actual = graph(**batch.arguments(family, head) | changes)
        expected = wrapped(**batch.arguments(family, head) | changes)
    assert len(wrapped.vcc_report()) == 2
    assert difference(actual, expected, batch.real) < 1e-10
    assert counter.frame_count == 1


def test_short_inputs_are_one_graph_of_the_untouched_model() -> None:
    wrapped = vcc.wrap(build("roberta", **SHALLOW["roberta"]), vcc.VccConfig())
    graph, counter = compiled(wrapped)
    with torch.no_grad():
        assert difference(graph(**ragged().arguments("roberta")), wrapped(**ragged().arguments("roberta"))) < 1e-10
    assert not wrapped.vcc_report() and counter.frame_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("family", ["roberta", "t5"])
def test_training_compiles(family: str) -> None:
    found = []
    for compiling in (False, True):
        model = build(family, **SHALLOW[family])
        wrapped = vcc.wrap(model, SETTINGS)
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
@pytest.mark.parametrize("family", ["bert", pytest.param("t5", marks=NOT_EARLIER), "modernbert"])
def test_inductor_gives_the_same_numbers(family: str) -> None:
    wrapped, batch = shallow(family, dtype=torch.float32), ragged()
    reader = wrapped.get_encoder() if family in SEQ2SEQ else wrapped
    graph = torch.compile(reader, fullgraph=True)
    given = {"input_ids": batch.ids, "attention_mask": batch.real, "vip_mask": batch.vips}
    with torch.no_grad():
        expected, actual = (encoded(each(**given)) for each in (reader, graph))
    assert difference(actual, expected, batch.real) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("family", "whole"), [("roberta", True), ("t5", True), ("roberta", False), ("t5", False)])
def test_vcc_compile_shares_graphs_between_similar_lengths(family: str, whole: bool) -> None:
    wrapped, fast = shallow(family, dtype=torch.float32), vcc.compile(shallow(family, dtype=torch.float32), whole)
    for n in (37, 45, 48):
        with torch.no_grad():
            expected = encoded(wrapped(**ragged(n).arguments(family)))
            actual = encoded(fast(**ragged(n).arguments(family)))
        assert difference(actual, expected, ragged(n).real) < 1e-4
    assert len(vcc.compile_seconds(fast)) == 1, "37, 45 and 48 tokens are four windows of 12"
    assert vcc.unwrap(fast).config.model_type == family and not vcc.compile_seconds(vcc.wrap(fast, REAL))


@pytest.mark.slow
@NOT_EARLIER
def test_compiled_attention_without_a_mask_equals_that_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """attention/unmasked.py, which runs on a GPU when many rows are compiled, as compiled for this machine."""
    from vcc.attention import sdpa, unmasked

    def gradients(model: Any) -> list[torch.Tensor]:
        encoded(model(**ragged().arguments("roberta")))[ragged().real != 0].square().mean().backward()
        return [each.grad for each in model.parameters() if each.grad is not None]

    expected = gradients(shallow("roberta"))
    monkeypatch.setattr(sdpa, "cudnn_masks", lambda q: torch.compiler.is_compiling())
    for limit in ("MANY_ROWS", "MANY_WINDOWS", "FEW"):
        monkeypatch.setattr(unmasked, limit, 1)
    for uneven in (False, True):  # windows by the first way, then by the second
        if uneven:
            monkeypatch.setattr(unmasked, "FEW", 1000)
        torch._dynamo.reset()
        actual = gradients(vcc.compile(shallow("roberta")))
        assert len(actual) == len(expected)
        for ours, theirs in zip(actual, expected, strict=True):
            assert (ours - theirs).norm() < 1e-9 * max(theirs.norm(), 1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("family", ONE_EACH)
def test_layers_do_not_wait_for_the_device(family: str) -> None:
    """Before the first layer, masks are checked and empty windows left out; another layer adds no wait."""
    settings = vcc.VccConfig(**REAL.to_dict() | {"max_vips": 8})
    waits = []
    for changes in ({}, SHALLOW[family]):
        wrapped = vcc.wrap(build(family, dtype=torch.float32, **changes), settings).cuda()
        reader = wrapped.get_encoder() if family in SEQ2SEQ else wrapped
        batch = one(48)
        given = {"input_ids": batch.ids.cuda(), "attention_mask": batch.real.cuda(), "vip_mask": batch.vips.cuda()}
        with torch.no_grad():
            reader(**given)
            waits.append(syncs_during(lambda reader=reader, given=given: reader(**given)))
    assert len(waits[0]) == len(waits[1]) <= 3, waits


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


@pytest.mark.parametrize("learning", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("family", "kinds"),
    [("bert", 2), *(pytest.param(*case, marks=pytest.mark.slow) for case in (("t5", 2), ("bart", 2)))],
)
@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_layers_of_a_kind_are_compiled_once_with_the_same_numbers(
    family: str, kinds: int, learning: bool, alone: bool
) -> None:
    """A graph of each kind, and the three around them."""
    wrapped, batch = vcc.wrap(build(family), SETTINGS), one(45) if alone else ragged()
    encoder = find_encoder(wrapped)
    assert encoder.host.num_layers > kinds, "one of each kind would show nothing"
    counter = CompileCounterWithBackend("aot_eager")
    found = []
    for run in (type(encoder).encode_inputs, CompiledPieces(counter)):
        wrapped.zero_grad()
        for _ in range(2):
            with torch.set_grad_enabled(learning):
                given = LongInput({"input_ids": batch.ids}, batch.real != 0, batch.vips != 0)
                hidden = run(encoder, given, encoder.vcc_state.settings)[1][given.real]
        if learning:
            hidden.square().sum().backward()
        gradients = [p.grad.clone() for p in wrapped.parameters() if p.grad is not None]
        found.append((hidden.detach(), gradients))
    (expected, gradients), (actual, same_gradients) = found
    assert difference(actual, expected) < 1e-10 and len(gradients) == len(same_gradients)
    largest = max([float(gradient.abs().max()) for gradient in gradients], default=1.0)
    assert all(float((a - b).abs().max()) < 1e-10 * largest for a, b in zip(same_gradients, gradients, strict=True))
    assert counter.frame_count == 3 + kinds


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False])
def test_any_number_of_lengths_can_be_compiled(monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    """Of one function the compiler makes eight graphs at most; the ninth would be an error."""
    eager = lambda function, mode: pieces.compiled(function, "eager")
    monkeypatch.setattr("vcc.hosts.compiled.compile.compiled", eager)
    monkeypatch.setattr("vcc.hosts.compiled.compile.CompiledPieces", partial(CompiledPieces, "eager"))
    wrapped = shallow("bert")
    fast = vcc.compile(vcc.wrap(vcc.unwrap(wrapped), SETTINGS), whole)
    with torch.no_grad():
        for n in range(20, 20 + 12 * 10, 12):
            batch = one(n)
            actual, expected = (encoded(each(**batch.arguments("bert"))) for each in (fast, shallow("bert")))
            assert difference(actual, expected, batch.real) < 1e-10
    assert len(vcc.compile_seconds(fast)) == 10


def test_pieces_follow_what_is_changed_in_the_model() -> None:
    """Other weights are taken as they are, and nothing is compiled again; another activation is another graph."""
    wrapped, batch = shallow("bert"), ragged()
    encoder = find_encoder(wrapped)
    long_input = LongInput({"input_ids": batch.ids}, batch.real != 0, batch.vips != 0)
    given: Any = (long_input, encoder.vcc_state.settings)
    counter = CompileCounterWithBackend("aot_eager")
    compiled_pieces = partial(CompiledPieces(counter), encoder)
    with torch.no_grad():
        compiled_pieces(*given)
        number = counter.frame_count
        for weights in wrapped.parameters():
            weights.mul_(1.5)
        assert difference(compiled_pieces(*given)[1], encoder.encode_inputs(*given)[1], batch.real) < 1e-10
        assert counter.frame_count == number
        encoder.host.layers[0].intermediate.intermediate_act_fn = torch.nn.Tanh()
        assert difference(compiled_pieces(*given)[1], encoder.encode_inputs(*given)[1], batch.real) < 1e-10


LEARNED = """
import torch
from torch._dynamo.utils import counters
from vcc.core.rows import Rows, reseat_rows
from vcc.hosts.compiled.compile import kept_with_gradients
hidden, places = torch.ones(1, 4, 2, requires_grad=True), torch.tensor([[2, 0, 3, 1]])
rows = Rows(hidden, torch.ones(1, 4), torch.zeros(1, 4))
with kept_with_gradients():
    all_of_them = torch.ones(1, 4, dtype=torch.bool)
    taken = torch.compile(reseat_rows, fullgraph=True)(rows, places, places.argsort(), all_of_them)
taken.hidden.square().sum().backward()
found = counters["aot_autograd"]
print(found["autograd_cache_hit"], found["autograd_cache_miss"], found["autograd_cache_bypass"])
"""


@pytest.mark.slow
def test_what_was_traced_for_training_is_found(tmp_path: Path) -> None:
    """Also where a gradient is written by hand, as that of `reseat_rows` is."""
    env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words, said = [sys.executable, "-c", LEARNED], []
    for _ in range(2):
        done = subprocess.run(
            words, env=env, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
        )
        said.append(done.stdout.split())
    assert said == [["0", "1", "0"], ["1", "0", "0"]]


def test_without_a_home_torch_keeps_graphs_where_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")  # so that it is put back
    for name in ("TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    model = shallow("bert")
    assert vcc.compile(model) is model and "TORCHINDUCTOR_CACHE_DIR" not in os.environ
