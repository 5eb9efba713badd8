"""What people do around a model: accelerate's hooks and casts, sharing, pickles, PEFT, settings at load."""

import copy
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import vcc
from tests.hosts.models import ONE_EACH, OPEN, REAL, SEQ2SEQ, Batch, build, difference, encoded, ragged
from tests.hosts.test_hooks import encoder_layers
from vcc.errors import ModelError, UsageError


def layer_prefix(model: Any) -> str:
    """The name of the list of encoder layers."""
    first = encoder_layers(model)[0]
    return next(name for name, module in model.named_modules() if module is first).removesuffix(".0")


def offload_map(model: Any, everything: bool) -> dict[str, str]:
    """Everything on the disk, or only the last two encoder layers, each as a whole."""
    if everything:
        return {name: "disk" for name, _ in model.named_children()}
    layers = layer_prefix(model)
    tables = {name: "cpu" for name, module in model.named_modules() if not list(module.children())}
    named = {name: where for name, where in tables.items() if not name.startswith(layers + ".")}
    return named | {f"{layers}.0": "cpu", f"{layers}.1": "disk", f"{layers}.2": "disk"}


@pytest.mark.parametrize("everything", [False, True], ids=["two layers", "everything"])
@pytest.mark.parametrize("family", ["bert", "modernbert", "t5", "bart"])
@pytest.mark.filterwarnings("ignore:The following device_map keys")
def test_a_model_loaded_with_offload_is_wrapped_and_unwrapped(family: str, everything: bool, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    model, batch = build(family), ragged()
    model.save_pretrained(tmp_path / "model")
    with torch.no_grad():
        compressed = vcc.wrap(model, REAL)(**batch.arguments(family))
        dense = model(**batch.inputs(family))
        try:
            offloaded = transformers.AutoModel.from_pretrained(
                tmp_path / "model",
                dtype=torch.float64,
                device_map=offload_map(model, everything),
                offload_folder=tmp_path / "weights",
            )
        except ValueError as refused:  # accelerate below 1.15, whatever the model
            if "offload the whole model" not in str(refused):
                raise
            pytest.skip("this accelerate loads no model that is on the disk as a whole")
        assert "meta" in {parameter.device.type for parameter in offloaded.parameters()}
        wrapped = vcc.wrap(offloaded, REAL)
        assert difference(wrapped(**batch.arguments(family)), compressed) == 0 and len(wrapped.vcc_report()) == 3
        assert "meta" in {parameter.device.type for parameter in wrapped.parameters()}, "and out again"
        assert difference(vcc.unwrap(wrapped)(**batch.inputs(family)), dense) == 0
        assert difference(offloaded(**batch.inputs(family)), dense) == 0
    with pytest.raises(ModelError, match="max_length=200.*wrap before offloading"):
        vcc.wrap(offloaded, REAL, max_length=200)


@pytest.mark.parametrize("family", ONE_EACH)
def test_weights_gathered_by_hooks_are_there_when_they_are_used(family: str) -> None:
    """As DeepSpeed's third stage does: a module has its own weights only while its `__call__` runs."""
    wrapped, batch = vcc.wrap(build(family), REAL), ragged()
    with torch.no_grad():
        expected = wrapped(**batch.arguments(family))
        with scattered(copy.deepcopy(wrapped)) as scattered_model:
            assert difference(scattered_model(**batch.arguments(family)), expected) == 0
            assert len(scattered_model.vcc_report()) == 3


@contextmanager
def scattered(model: Any) -> Iterator[Any]:
    kept = {id(p): p.data for p in model.parameters()}

    def gather(module: nn.Module, *_: Any) -> None:
        for p in module.parameters(recurse=False):
            p.data = kept[id(p)]

    def release(module: nn.Module, *_: Any) -> None:
        for p in module.parameters(recurse=False):
            p.data = torch.empty(0, dtype=p.dtype)

    for module in model.modules():
        module.register_forward_pre_hook(gather)
        module.register_forward_hook(release)
        release(module)
    yield model


def test_prepared_models_are_unwrapped_and_wrapped() -> None:
    accelerate = pytest.importorskip("accelerate")
    prepare = accelerate.Accelerator(cpu=True, mixed_precision="bf16").prepare
    batch = ragged()
    prepared = prepare(vcc.wrap(build("bert", dtype=torch.float32), REAL))
    assert prepared(**batch.arguments("bert"))[0].dtype == torch.float32 and len(prepared.vcc_report()) == 3
    with pytest.warns(UserWarning, match="accelerator.prepare"):
        plain = vcc.unwrap(prepared)
    assert type(plain) is transformers.BertModel
    expected = build("bert", dtype=torch.float32)(**batch.inputs("bert"))
    assert difference(plain(**batch.inputs("bert")), expected) == 0, "not cast"
    with pytest.warns(UserWarning, match="accelerator.prepare"):
        wrapped = vcc.wrap(prepare(build("bert", dtype=torch.float32)), REAL)
    wrapped(**batch.arguments("bert"))
    assert len(wrapped.vcc_report()) == 3
    assert difference(prepare(wrapped)(**batch.arguments("bert")), prepared(**batch.arguments("bert"))) == 0


def test_a_forward_of_the_users_own_is_refused() -> None:
    model = build("bert")
    model.encoder.forward = MethodType(lambda self, *args, **kwargs: None, model.encoder)
    with pytest.raises(ModelError, match="BertEncoder encoder has an instance-level `forward`"):
        vcc.wrap(model, REAL)


def test_casting_a_model_that_shares_its_weights_is_said_loudly() -> None:
    model = build("bert")
    wrapped = vcc.wrap(model, REAL)
    with pytest.warns(UserWarning, match="BertModel that this model was made from shares its weights"):
        wrapped.half()
    assert model.dtype == torch.float16
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrapped.to("cpu")  # where it is
        alone = vcc.wrap(copy.deepcopy(model), REAL)  # nobody holds the copy
        alone.float()
        copy.deepcopy(wrapped).float()
    assert model.dtype == torch.float16


def test_a_compiled_model_is_pickled_and_copied_without_its_graphs() -> None:
    batch = ragged()
    fast = vcc.compile(vcc.wrap(build("bert"), REAL))
    vcc.hosts.forward.encoder.find_encoder(fast).vcc_state.graphs.graphs["a bucket"] = lambda: None  # cannot be pickled
    for copied in (pickle.loads(pickle.dumps(fast)), copy.deepcopy(fast)):
        graphs = vcc.hosts.forward.encoder.find_encoder(copied).vcc_state.graphs
        assert graphs is not None and not graphs.graphs, "compiled, and nothing compiled yet"
    plain = vcc.unwrap(fast)
    assert difference(plain(**batch.inputs("bert")), build("bert")(**batch.inputs("bert"))) == 0


def test_settings_are_given_at_load(tmp_path: Path) -> None:
    vcc.wrap(build("bert"), REAL).save_pretrained(tmp_path)
    transformers.logging.set_verbosity_info()  # which prints configurations as JSON
    try:
        for given in (OPEN, OPEN.to_dict()):
            loaded = transformers.AutoModel.from_pretrained(tmp_path, vcc=given)
            assert loaded.vcc == OPEN and loaded.config.vcc == OPEN.to_dict()
    finally:
        transformers.logging.set_verbosity_warning()
    loaded.save_pretrained(tmp_path / "again")
    assert transformers.AutoModel.from_pretrained(tmp_path / "again").vcc == OPEN
    with pytest.raises(UsageError, match="unknown VCC settings"):
        transformers.AutoModel.from_pretrained(tmp_path, vcc={"scale": 4})


# ---------------------------------------------------------------------------------------------------------------- PEFT

TABLES = {
    "bert": ["token_type_embeddings", "position_embeddings", "word_embeddings"],
    "electra": ["token_type_embeddings", "position_embeddings"],
    "roberta": ["token_type_embeddings", "position_embeddings"],
    "roberta-prelayernorm": ["position_embeddings"],
    "modernbert": ["tok_embeddings"],
    "t5": ["relative_attention_bias"],
    "bart": None,  # PEFT cannot adapt the position tables of BART and Pegasus in any model
}


@pytest.mark.parametrize("targets", ["tables", "default"])
@pytest.mark.parametrize("family", TABLES)
def test_lora_on_tables_and_by_default_is_that_of_the_untouched_model(family: str, targets: str) -> None:
    peft = pytest.importorskip("peft")
    named = TABLES[family] if targets == "tables" else None
    if named is None and (targets == "tables" or family in ("roberta-prelayernorm", "modernbert")):
        pytest.skip("PEFT has no such adapter of the untouched model")
    batch, found = ragged(), []
    for model in (build(family), vcc.wrap(build(family), OPEN)):
        adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=named))
        torch.manual_seed(0)
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                nn.init.normal_(parameter, std=0.1)
        given = batch.inputs(family) if not found else batch.arguments(family)
        found.append(encoded(adapted(**given)))
    expected, actual = found
    assert difference(actual, expected, batch.real) < 1e-12
    assert difference(actual, encoded(build(family)(**batch.inputs(family))), batch.real) > 1e-3


PROMPTS = [
    ("bert", "AutoModelForSequenceClassification", "SEQ_CLS"),
    ("roberta", "AutoModelForTokenClassification", "TOKEN_CLS"),
    ("modernbert", "AutoModelForQuestionAnswering", "QUESTION_ANS"),
    ("t5", "AutoModelForSeq2SeqLM", "SEQ_2_SEQ_LM"),
    ("bart", "AutoModelForSeq2SeqLM", "SEQ_2_SEQ_LM"),
]


def tuned(family: str, head: str, config: Any, settings: vcc.VccConfig | None) -> tuple[Any, Any]:
    """A model with virtual tokens in front, and what it gives."""
    import peft

    model = build(family, head)
    model = peft.get_peft_model(model if settings is None else vcc.wrap(model, settings), config).eval()
    torch.manual_seed(0)
    nn.init.normal_(model.prompt_encoder.default.embedding.weight)
    model.prompt_encoder.double()
    batch = ragged()
    batch = Batch(batch.ids[::2], batch.real[::2], batch.vips[::2])  # a classifier would look at padding on the left
    given = batch.inputs(family, head) if settings is None else batch.arguments(family, head)
    if given.pop("decoder_input_ids", None) is not None:
        given["labels"] = torch.arange(5, 12).repeat(2, 1)
    with torch.no_grad():
        output = model(**given)
    return model, output.get("logits", output.get("start_logits"))


@pytest.mark.parametrize(("family", "head", "task"), PROMPTS)
def test_virtual_tokens_of_prompt_tuning_are_vips(family: str, head: str, task: str) -> None:
    peft = pytest.importorskip("peft")
    config = peft.PromptTuningConfig(
        task_type=task, num_virtual_tokens=5, num_attention_heads=4, token_dim=32, num_layers=3
    )
    _, expected = tuned(family, head, config, None)
    _, actual = tuned(family, head, config, OPEN)
    real = torch.nn.functional.pad(ragged().real[::2], (5, 0), value=1)
    assert difference(actual, expected, real) < 1e-6  # PEFT keeps its prompts in float32
    model, compressed = tuned(family, head, config, REAL)
    assert difference(compressed, expected, real) > 1e-4
    opened = (4 * 3 - 4) + 4 * 2  # of 3 opened nodes 8 children stay closed, 4 are opened into 2 tokens each
    vips, context = 7 + 5, 45 - 4
    assert model.base_model.vcc_report()[1].rows == vips + (-(-context // 8) - 3) + opened


@pytest.mark.parametrize("family", ["bert", "t5", "bart"])
def test_prefix_tuning_is_the_decoders(family: str) -> None:
    peft = pytest.importorskip("peft")
    if family not in SEQ2SEQ:
        config = peft.PrefixTuningConfig(
            task_type="TOKEN_CLS", num_virtual_tokens=5, num_attention_heads=4, token_dim=32, num_layers=3
        )
        with pytest.raises(ValueError, match="past_key_values.*prompt tuning"):
            tuned(family, "AutoModelForTokenClassification", config, REAL)
        return
    config = peft.PrefixTuningConfig(
        task_type="SEQ_2_SEQ_LM", num_virtual_tokens=5, num_attention_heads=4, token_dim=32, num_layers=2
    )
    expected, actual, other = (tuned(family, "AutoModelForSeq2SeqLM", config, s)[1] for s in (None, OPEN, REAL))
    assert difference(actual, expected) < 1e-6 and difference(other, expected) > 1e-4
