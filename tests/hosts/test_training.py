"""Training a wrapped model: checkpointing, dropout, Trainer, LoRA, half precision; no parameter is left behind."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, Trainer, TrainingArguments

import vcc
from tests.hosts.models import (
    FAMILIES,
    MAKERS,
    NOT_CHECKPOINTED,
    ONE_EACH,
    OPEN,
    PAD,
    REAL,
    SOME_HEADS,
    VOCABULARY,
    build,
    difference,
    encoded,
    heads_of,
    ragged,
)

DROPOUTS = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob"),
    *("attention_dropout", "embedding_dropout", "mlp_dropout"),
    *("dropout_rate", "dropout", "activation_dropout"),
)


def dropouts(family: str, value: float, only: str = "") -> dict[str, float]:
    """The dropout settings this family has, all equal to `value` if `only` is in their name, else 0."""
    known = MAKERS[family][0]().to_dict()
    return {name: value if only in name else 0.0 for name in DROPOUTS if name in known}


def language_model(family: str) -> str:
    return "AutoModelForSeq2SeqLM" if "AutoModelForSeq2SeqLM" in heads_of(family) else "AutoModelForMaskedLM"


def loss_of(model: Any, family: str, **extra: Any) -> Tensor:
    batch = ragged()
    labels = batch.ids[:, :7].clone() if "AutoModelForSeq2SeqLM" in heads_of(family) else batch.ids
    labels = labels.masked_fill(labels == PAD, -100)
    return model(input_ids=batch.ids, attention_mask=batch.real, labels=labels, **extra).loss


def gradients(model: PreTrainedModel) -> dict[str, Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("family", [family for family in ONE_EACH if family not in NOT_CHECKPOINTED])
def test_checkpointing_gives_the_same_gradients(family: str, reentrant: bool) -> None:
    found = []
    for checkpointing in (False, True):
        wrapped = vcc.wrap(build(family, language_model(family), **dropouts(family, 0.0)), REAL).train()
        runs = count_layer_runs(wrapped)
        if checkpointing:
            wrapped.gradient_checkpointing_enable({"use_reentrant": reentrant})
        loss_of(wrapped, family, vip_mask=ragged().vips).backward()
        found.append((gradients(wrapped), len(runs)))
    (expected, once), (actual, twice) = found
    assert twice == 2 * once > 0, "every layer ran once more in the backward pass"
    assert same_gradients(actual, expected)


def same_gradients(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    """Up to rounding; some are zero in exact arithmetic, such as that of a bias of all keys."""
    assert actual.keys() == expected.keys()
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in expected.items():
        scale = max(float(gradient.abs().max()), 1e-6 * largest)
        assert float((actual[name] - gradient).abs().max()) < 1e-10 * scale, name
    return True


def count_layer_runs(wrapped: Any) -> list[int]:
    """Grows by one whenever one of the encoder's layers runs its feed-forward part."""
    reader, runs = vcc.hosts.forward.encoder.find_encoder(wrapped), []
    last_parts = ("intermediate.dense", "mlp.Wi", "fc1", "DenseReluDense.wi", "DenseReluDense.wi_0", "lin1", "up_proj")
    for name, module in reader.named_modules():
        if name.endswith(last_parts):
            module.register_forward_hook(lambda *_: runs.append(1))
    return runs


@pytest.mark.parametrize("only", ["", "attention"])
@pytest.mark.parametrize("family", ONE_EACH)
def test_dropout_is_active_in_training_alone(family: str, only: str) -> None:
    """All of them together, and that of the attention alone."""
    wrapped, batch = vcc.wrap(build(family, **dropouts(family, 0.5, only)), REAL), ragged()
    if family == "t5" and only:  # its configuration has one for everything
        for block in wrapped.encoder.block:
            block.layer[0].SelfAttention.dropout = 0.5

    def read(seed: int) -> Tensor:
        torch.manual_seed(seed)
        with torch.no_grad():
            return encoded(wrapped(**batch.arguments(family)))

    assert torch.equal(read(0), read(1))
    wrapped.train()
    assert not torch.equal(read(0), read(1)) and torch.equal(read(1), read(1))
    wrapped.eval()
    assert torch.equal(read(0), read(1))


@pytest.mark.parametrize("family", ["roberta", "t5"])
def test_exploration_happens_in_training_alone(family: str) -> None:
    config = replace(REAL, explore=1.0)
    wrapped, batch = vcc.wrap(build(family, **dropouts(family, 0.0)), config), ragged()

    def opened(seed: int) -> list[list[int]]:
        torch.manual_seed(seed)
        wrapped(**batch.arguments(family))
        return [report.opened[0].flatten().tolist() for report in wrapped.vcc_report()[1:]]

    assert opened(0) == opened(1)
    wrapped.train()
    assert opened(0) != opened(1)


@pytest.mark.parametrize(("family", "head"), SOME_HEADS)
def test_no_parameter_loses_its_gradient(family: str, head: str) -> None:
    """Of those that had one other than zero in the untouched model, with real compression and default VIPs or given."""
    found = []
    for compressed in (False, True):
        model, batch = build(family, head), ragged()
        wrapped = vcc.wrap(model, REAL) if compressed else model
        output = wrapped(**(batch.arguments(family, head) if compressed else batch.inputs(family, head)))
        score = sum(value.square().sum() for value in output.values() if isinstance(value, Tensor))
        score.backward()
        found.append({name for name, grad in gradients(model).items() if bool((grad != 0).any())})
    untouched, compressed_too = found
    assert untouched and untouched <= compressed_too


@pytest.mark.parametrize("family", FAMILIES)
def test_open_cut_has_the_untouched_gradients(family: str) -> None:
    """All tokens are VIPs, so that nothing is chosen: what remains is the layers' own gradient."""
    head, found = language_model(family), []
    for compressed in (False, True):
        model = build(family, head)
        arguments = {"vip_mask": torch.ones_like(ragged().ids)} if compressed else {}
        loss_of(vcc.wrap(model, OPEN) if compressed else model, family, **arguments).backward()
        found.append(gradients(model))
    expected, actual = found
    assert same_gradients({name: actual[name] for name in expected}, expected)


class Examples(torch.utils.data.Dataset[dict[str, Tensor]]):
    """With `vip_mask` as a column, and a column no model knows."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        ids = torch.randint(8, VOCABULARY, (40,), generator=torch.Generator().manual_seed(index))
        vips = torch.zeros_like(ids)
        vips[: 3 + index] = 1
        example = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "vip_mask": vips}
        return example | {"labels": torch.tensor(index % 2), "title": torch.tensor(index)}


def arguments(folder: Path, **extra: Any) -> TrainingArguments:
    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "seed": 1}
    return TrainingArguments(str(folder), max_steps=3, per_device_train_batch_size=4, **quiet, **extra)


@pytest.mark.parametrize("family", ["roberta", "modernbert"])
def test_trainer_hands_the_vips_over(family: str, tmp_path: Path) -> None:
    """Columns the model does not know are removed, as Trainer does by default; `vip_mask` is known."""
    wrapped = vcc.wrap(build(family, "AutoModelForSequenceClassification", torch.float32), REAL)
    before = {name: p.detach().clone() for name, p in wrapped.named_parameters()}
    rows: list[int] = []
    wrapped.register_forward_hook(lambda model, *_: rows.extend(report.rows for report in model.vcc_report()[1:]))
    trainer = Trainer(wrapped, arguments(tmp_path, learning_rate=1e-2), train_dataset=Examples())
    assert trainer.args.remove_unused_columns
    result = trainer.train()
    assert result.training_loss > 0 and rows, "the compressed path ran"
    assert any(not torch.equal(before[name], p) for name, p in wrapped.named_parameters())
    assert len(set(rows)) > 1, "different numbers of VIPs arrived"


def test_trainer_with_checkpointing_and_bf16(tmp_path: Path) -> None:
    wrapped = vcc.wrap(build("roberta", "AutoModelForSequenceClassification", torch.float32), REAL)
    extra = {"gradient_checkpointing": True, "bf16": True, "gradient_accumulation_steps": 2}
    result = Trainer(wrapped, arguments(tmp_path, **extra), train_dataset=Examples()).train()
    assert 0 < result.training_loss < 10
    assert len(wrapped.vcc_report()) == 3


LORA = {
    "bert": ["query", "value"],
    "roberta": ["query", "value"],
    "roberta-prelayernorm": ["query", "value"],
    "modernbert": ["Wqkv"],
    "t5": ["q", "v"],
    "bart": ["q_proj", "v_proj"],
}


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", LORA)
def test_lora_on_queries_and_values_trains(family: str, checkpointing: bool) -> None:
    peft = pytest.importorskip("peft")
    plain = build(family, language_model(family), **dropouts(family, 0.0))
    lora = peft.LoraConfig(r=4, lora_alpha=8, target_modules=LORA[family], init_lora_weights="gaussian")
    torch.manual_seed(0)
    model = peft.get_peft_model(vcc.wrap(plain, REAL), lora).train()
    if checkpointing:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert trained and all("lora_" in name for name in trained)
    optimiser = torch.optim.SGD(trained.values(), lr=0.05)
    losses = []
    for _ in range(3):
        optimiser.zero_grad()
        loss = loss_of(model, family, vip_mask=ragged().vips)
        loss.backward()
        losses.append(float(loss.detach()))
        assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in trained.values())
        optimiser.step()
    encoder_b = [p for name, p in trained.items() if "lora_B" in name and "decoder" not in name]
    assert all(bool((p.grad != 0).any()) for p in encoder_b), "queries and values of every layer learn"
    assert losses[-1] < losses[0]
    merged = model.merge_and_unload()
    assert isinstance(merged, vcc.hosts.forward.wrapped.Wrapped) and merged.vcc == REAL


@pytest.mark.parametrize("family", ["roberta", "t5"])
def test_lora_gradients_do_not_depend_on_checkpointing(family: str) -> None:
    peft = pytest.importorskip("peft")
    found = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        lora = peft.LoraConfig(r=4, target_modules=LORA[family], init_lora_weights="gaussian")
        plain = build(family, language_model(family), **dropouts(family, 0.0))
        model = peft.get_peft_model(vcc.wrap(plain, REAL), lora).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
            model.enable_input_require_grads()
        loss_of(model, family, vip_mask=ragged().vips).backward()
        found.append(gradients(model))
    assert same_gradients(found[1], found[0])


@pytest.mark.parametrize("family", ONE_EACH)
@pytest.mark.parametrize("way", ["autocast", "pure"])
def test_bf16_is_close_to_float32(family: str, way: str) -> None:
    """Open cut, so that rounding cannot change which nodes are opened; and gradients flow."""
    head = language_model(family)
    expected = loss_and_logits(vcc.wrap(build(family, head, torch.float32), OPEN), family)
    if way == "pure":
        actual = loss_and_logits(vcc.wrap(build(family, head, torch.bfloat16), OPEN), family)
    else:
        with torch.autocast("cpu", torch.bfloat16):
            actual = loss_and_logits(vcc.wrap(build(family, head, torch.float32), OPEN), family)
    untouched = build(family, head, torch.bfloat16 if way == "pure" else torch.float32)
    with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
        usual = loss_and_logits(untouched, family)
    assert spread(actual, expected) < max(2 * spread(usual, expected), 0.02), "no worse than the untouched model's"


def loss_and_logits(model: PreTrainedModel, family: str) -> Tensor:
    extra = {"vip_mask": ragged().vips} if isinstance(model, vcc.hosts.forward.wrapped.Wrapped) else {}
    logits: list[Tensor] = []
    hook = model.register_forward_hook(lambda *args: logits.append(args[-1].logits.detach().float()))
    loss_of(model, family, **extra).backward()
    hook.remove()
    assert all(bool(gradient.isfinite().all()) for gradient in gradients(model).values())
    keep = ragged().real.bool() if logits[0].shape[1] == 45 else ...
    return logits[0][keep]


def spread(actual: Tensor, expected: Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


@pytest.mark.parametrize("family", ["roberta", "t5"])
def test_bf16_with_real_compression_trains(family: str) -> None:
    wrapped = vcc.wrap(build(family, language_model(family), torch.bfloat16), REAL)
    loss_of(wrapped, family, vip_mask=ragged().vips).backward()
    assert all(bool(gradient.isfinite().all()) for gradient in gradients(wrapped).values())
    assert len(wrapped.vcc_report()) == 3


def test_t5_in_float16_warns() -> None:
    wrapped = vcc.wrap(build("t5", dtype=torch.float16), REAL)
    with pytest.warns(UserWarning, match="float16"):
        wrapped(**ragged().arguments("t5"))


def test_layers_that_are_dropped_leave_their_input() -> None:
    """BART may skip whole layers in training."""
    wrapped = vcc.wrap(build("bart", encoder_layerdrop=1.0, **dropouts("bart", 0.0)), REAL).train()
    output = wrapped(**ragged().arguments("bart"), output_hidden_states=True)
    first = output.encoder_hidden_states[0]
    assert all(difference(state, first, ragged().real) < 1e-12 for state in output.encoder_hidden_states)


def test_frozen_parameters_stay_frozen() -> None:
    model = build("bert")
    model.embeddings.requires_grad_(False)
    wrapped = vcc.wrap(model, REAL, max_length=200)
    encoded(wrapped(**ragged().arguments("bert"))).sum().backward()
    assert all(p.grad is None for p in wrapped.embeddings.parameters())
    assert isinstance(wrapped.embeddings.position_embeddings, nn.Embedding)
