"""Layers are entered through their own call, so that whatever lives in hooks works: users' hooks, sharding, offloading,
gradient checkpointing."""

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import vcc
from tests.hosts.models import NOT_CHECKPOINTED, ONE_EACH, OPEN, REAL, SEQ2SEQ, build, difference, encoded, one, ragged
from tests.train.test_distributed import command
from vcc.hosts.forward.encoder import find_encoder

NO_WINDOWS = replace(REAL, window_layers=0)


def encoder_layers(model: Any) -> list[Any]:
    """Of a wrapped model or of an untouched one."""
    stack = next((model._modules[name] for name in ("encoder", "transformer") if name in model._modules), model)
    if "albert_layer_groups" in stack._modules:
        return [layer for group in stack.albert_layer_groups for layer in group.albert_layers]
    return list(next(stack._modules[name] for name in ("layer", "layers", "block") if name in stack._modules))


@pytest.mark.parametrize("family", ONE_EACH)
def test_hooks_fire_once_per_layer_with_its_rows(family: str) -> None:
    wrapped = vcc.wrap(build(family), NO_WINDOWS)
    before: list[Tensor] = []
    after: list[Tensor] = []
    for layer in find_encoder(wrapped).host.layers:
        layer.register_forward_pre_hook(lambda _, args: before.append(args[0]))
        layer.register_forward_hook(lambda _module, _args, output: after.append(output))
    with torch.no_grad():
        wrapped(**ragged().arguments(family))
    expected = [(3, report.rows, 32) for report in wrapped.vcc_report()]
    assert [tuple(state.shape) for state in before] == [tuple(state.shape) for state in after] == expected
    assert not any(torch.equal(seen, given) for seen, given in zip(before, after, strict=True))


def halve(module: Any, args: Any, output: Any) -> Any:
    return (output[0] * 0.5, *output[1:]) if isinstance(output, tuple) else output * 0.5


def shift(module: Any, args: Any) -> Any:
    return (args[0] + 0.25, *args[1:])


@pytest.mark.parametrize("family", ONE_EACH)
def test_what_hooks_change_takes_effect_as_in_the_untouched_model(family: str) -> None:
    model, batch = build(family), ragged()
    wrapped = vcc.wrap(model, OPEN)
    for each in (model, wrapped):
        layers = encoder_layers(each)
        layers[1].register_forward_hook(halve)
        layers[2].register_forward_pre_hook(shift)
    with torch.no_grad():
        expected, actual = encoded(model(**batch.inputs(family))), encoded(wrapped(**batch.arguments(family)))
        assert difference(actual, expected, batch.real) < 1e-12
        assert difference(actual, encoded(build(family)(**batch.inputs(family))), batch.real) > 1e-3


@pytest.mark.parametrize("family", [family for family in ONE_EACH if family not in NOT_CHECKPOINTED])
def test_checkpointing_is_the_librarys_own(family: str) -> None:
    """Each encoder layer is handed to Hugging Face's checkpointing function once; nothing else of the encoder is."""
    wrapped, runs = vcc.wrap(build(family), NO_WINDOWS).train(), []
    wrapped.gradient_checkpointing_enable({"use_reentrant": False})
    assert wrapped.is_gradient_checkpointing
    for layer in find_encoder(wrapped).host.layers:
        checkpoint = layer._gradient_checkpointing_func
        layer._gradient_checkpointing_func = lambda run, *args, checkpoint=checkpoint: (
            runs.append([tuple(arg.shape) for arg in args]) or checkpoint(run, *args)
        )
    encoded(wrapped(**ragged().arguments(family))).square().sum().backward()
    assert runs == [[(3, report.rows, 32)] for report in wrapped.vcc_report()]


@pytest.mark.parametrize("family", ONE_EACH)
def test_an_offloaded_model_gives_the_same(family: str) -> None:
    accelerate = pytest.importorskip("accelerate")
    wrapped, batch = vcc.wrap(build(family), REAL), ragged()
    with torch.no_grad():
        expected = wrapped(**batch.arguments(family))
        offloaded = accelerate.cpu_offload(vcc.wrap(build(family), REAL), execution_device="cpu")
        assert {str(p.device) for p in offloaded.parameters()} == {"meta"}
        assert difference(offloaded(**batch.arguments(family)), expected) == 0
    assert len(offloaded.vcc_report()) == 3


@pytest.mark.slow
def test_every_layer_may_be_sharded_on_its_own() -> None:
    """FSDP2 in two processes: losses and gradients of RoBERTa, T5, ModernBERT and BART are those of one process."""
    script = Path(__file__).with_name("sharded.py")
    said = command([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)])
    assert said.count("equal:") == 8


@pytest.mark.parametrize("family", ONE_EACH)
def test_layers_keep_their_name_and_base(family: str) -> None:
    """Hugging Face and accelerate know layers that must not be split by name, and record outputs by base class."""
    model = build(family)
    wrapped = vcc.wrap(model, REAL)
    for ours, theirs in zip(encoder_layers(wrapped), encoder_layers(model), strict=True):
        assert type(ours) is not type(theirs) and isinstance(ours, type(theirs))
        assert type(ours).__name__ == type(theirs).__name__
    if family in SEQ2SEQ:
        assert [type(m) for m in wrapped.decoder.modules()] == [type(m) for m in model.decoder.modules()]


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_nothing_of_ours_stays_on_an_unwrapped_model(family: str) -> None:
    """Every module has the class and the attributes that it had, but for a note that transformers makes in a run."""

    def attributes(model: Any) -> list[Any]:
        noted = "_output_capturing_hooks_installed"
        return [(name, type(module), vars(module).keys() - {noted}) for name, module in model.named_modules()]

    model = build(family)
    wrapped = vcc.compile(vcc.wrap(model, REAL))
    wrapped(**ragged().arguments(family), output_hidden_states=True)  # runs eagerly, and leaves a report
    assert wrapped.vcc_report()
    assert attributes(vcc.unwrap(wrapped)) == attributes(model)


LOAD = "import pickle, sys, vcc; model = pickle.load(open(sys.argv[1], 'rb')); print(type(model).__name__, model.vcc)"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "t5"])
def test_a_pickled_model_is_read_by_another_process(family: str, tmp_path: Path) -> None:
    wrapped = vcc.wrap(build(family), REAL)
    (tmp_path / "model").write_bytes(pickle.dumps(wrapped))
    words = [sys.executable, "-c", LOAD, str(tmp_path / "model")]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said.strip() == f"{type(wrapped).__name__} {REAL}"


ONE_FAMILY = """
import sys, vcc
from transformers import AutoConfig, BertConfig, BertModel
{ask}
loaded = [name for name in sys.modules if name.startswith("vcc.hosts.") or ".modeling_" in name]
print(*(name.split(".")[-1] for name in loaded))
"""
WRAP = "vcc.wrap(BertModel(BertConfig(hidden_size=12, num_hidden_layers=1)), vcc.VccConfig())"


@pytest.mark.slow
@pytest.mark.parametrize("ask", [WRAP, "AutoConfig.for_model('vcc-bert')"], ids=["wrap", "Auto class"])
def test_wrapping_one_family_imports_one_family(ask: str) -> None:
    words = [sys.executable, "-c", ONE_FAMILY.format(ask=ask)]
    loaded = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert {"register", "bert", "modeling_bert"} <= set(loaded)
    assert not {"bart", "t5", "modernbert", "modeling_bart", "modeling_t5", "modeling_roberta"} & set(loaded)


def test_layers_run_dense_as_they_were() -> None:
    """Short inputs go through the layers' own forward, hooks included."""
    model, batch = build("bert"), one(20)
    wrapped = vcc.wrap(model, vcc.VccConfig())
    for each in (model, wrapped):
        encoder_layers(each)[0].register_forward_hook(halve)
    with torch.no_grad():
        assert difference(wrapped(**batch.arguments("bert")), model(**batch.inputs("bert"))) == 0
    assert not wrapped.vcc_report()
