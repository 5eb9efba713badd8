"""Appendix A.5: a decoder whose prefix is in a tree, against the plain model."""

import json
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from reproduction.a5 import AppendixA5
from reproduction.experiment import Workspace
from reproduction.small import prefix_jobs
from reproduction.small.layout import SmallLayout
from reproduction.small.prefix import PREFIX_READERS, PrefixHost, suffix_states
from tests.reproduction import tiny
from vcc.config import VccConfig
from vcc.data.pretrain import PretrainDataset
from vcc.errors import UsageError


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    made = LlamaForCausalLM(config).double().eval()
    for weight in made.parameters():
        weight.data.mul_(4)  # attention that is not flat
    return made


def tokens(n: int) -> Tensor:
    return torch.randint(50, (2, n), generator=torch.Generator().manual_seed(1))


OPEN = [
    VccConfig((4, 1), (99,), window_layers=0),
    VccConfig((8, 2, 1), (99, 99), window_layers=0),
    VccConfig((4, 1), (99,), window=64, window_layers=2),
    VccConfig((4, 1), (99,), window=128, window_layers=2, vip_window="every"),
]


@pytest.mark.parametrize("config", OPEN)
def test_with_every_node_open_it_is_the_plain_model(model: LlamaForCausalLM, config: VccConfig) -> None:
    ids = tokens(61)
    with torch.no_grad():
        expected = model.model(ids, use_cache=False).last_hidden_state[:, -9:]
        actual = suffix_states(PrefixHost.of(model), ids, 9, config)
        again = model.model(ids, use_cache=False).last_hidden_state[:, -9:]
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)  # Llama rotates in float32
    assert torch.equal(again, expected)  # the model itself has not changed


def test_closed_nodes_change_the_result_and_all_weights_learn(model: LlamaForCausalLM) -> None:
    ids, host = tokens(61), PrefixHost.of(model)
    expected = model.model(ids, use_cache=False).last_hidden_state[:, -9:]
    closed = suffix_states(host, ids, 9, VccConfig((4, 1), (2,), window_layers=1, window=16))
    assert float((closed - expected).detach().abs().max()) > 1e-3
    model.zero_grad()
    model.lm_head(closed).square().mean().backward()
    assert all(float(weight.grad.abs().max()) > 0 for weight in model.parameters() if weight.grad is not None)
    assert sum(weight.grad is None for weight in model.parameters()) == 0


@pytest.mark.parametrize("settings", [{}, {"vip_window": "every"}])
def test_no_token_sees_what_is_behind_it(model: LlamaForCausalLM, settings: dict[str, str]) -> None:
    """Another token at one place of the suffix changes the states there and later, not those before it."""
    host, ids = PrefixHost.of(model), tokens(61)
    config = VccConfig((4, 1), (3,), window=16, window_layers=1, **settings)  # type: ignore[arg-type]
    with torch.no_grad():
        before = suffix_states(host, ids, 9, config)
        for place in (3, 8):
            other = ids.clone()
            other[:, -9 + place] = (other[:, -9 + place] + 1) % 50
            after = suffix_states(host, other, 9, config)
            assert torch.equal(after[:, :place], before[:, :place])
            assert bool((after[:, place:] != before[:, place:]).any(2).all())


def test_a_suffix_needs_a_prefix(model: LlamaForCausalLM) -> None:
    with pytest.raises(UsageError, match="a suffix of 61 of 61 tokens"):
        suffix_states(PrefixHost.of(model), tokens(61), 61, OPEN[0])


SMALL = replace(tiny.SMALL, decoder_steps=2)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> SmallLayout:
    folder = tmp_path_factory.mktemp("prefix")
    made = SmallLayout(tiny.packed(folder), folder / "out" / "a5", SMALL)
    prefix_jobs.begin(made)
    return made


@pytest.mark.parametrize("name", list(PREFIX_READERS))
def test_every_reader_goes_from_the_common_decoder_to_perplexity_and_times(layout: SmallLayout, name: str) -> None:
    prefix_jobs.time_alone(layout, [{"name": name}])
    prefix_jobs.go_on(layout, name)
    learned = json.loads((layout.pretrained(name) / "curve.json").read_text())["curve"]
    assert learned[0]["step"] == 0 and learned[-1]["step"] == 2
    assert all(4 < point["log_perplexity"] < 6 for point in learned if "log_perplexity" in point)  # log 208: 5.3
    at = Workspace("small", layout.out.parent, None, "", "", "", SMALL)
    report = AppendixA5().report(at)
    row = next(row for row in report.tables[0].rows if row[0] == name)
    assert row[1] and row[2] == "2" and row[3] > 0 and all(row[4:6])


def test_the_loss_is_the_plain_models_on_the_suffix(layout: SmallLayout) -> None:
    """Against Hugging Face's own loss, which ignores labels of -100; and tests are the same for all ways to learn."""
    model = prefix_jobs.started(layout).eval()
    data = PretrainDataset(prefix_jobs.text_of(layout, "train"), prefix_jobs.NothingHidden(), 128, 0, 4)
    ours = prefix_jobs.objective_of("dense-suffix", SMALL)
    batch = ours.collate([data[0], data[1]])
    labels = batch["input_ids"].clone()
    labels[:, : 128 - 31] = -100  # the suffix, but for its first token
    with torch.no_grad():
        theirs = float(model(batch["input_ids"], labels=labels).loss)
        assert float(ours.loss(model, batch)) / int(ours.count(batch)) == pytest.approx(theirs, rel=1e-5)
        tested = prefix_jobs.objective_of("dense", SMALL, tested=True)
        assert float(tested.loss(model, batch)) == float(ours.loss(model, batch))
        short = prefix_jobs.objective_of("short", SMALL)
        alone = float(model(batch["input_ids"][:, -32:], labels=batch["input_ids"][:, -32:]).loss)
        assert float(short.loss(model, batch)) / int(short.count(batch)) == pytest.approx(alone, rel=1e-5)


def test_its_steps_use_the_common_pack_and_their_own_folder(layout: SmallLayout) -> None:
    at = Workspace("small", layout.out.parent, None, "", "", "", replace(SMALL, models=("vcc", "longformer")))
    begin, clock, go_on = AppendixA5().steps(at)
    assert [step.shown for step in (begin, clock, go_on)] == ["a5 begin", "a5 time vcc", "a5 go_on vcc"]
    assert begin.command[3:5] == (str(at.packed), str(at.out / "a5")) and begin.done in clock.needs
    assert go_on.done == layout.pretrained("vcc") / "curve.json"


def test_what_is_timed_alone_on_a_gpu_is_compiled_beside_others_first(layout: SmallLayout) -> None:
    on_a_gpu = replace(SMALL, models=("vcc", "short"), device="cuda", compile=True, together=2)
    at = Workspace("small", layout.out.parent / "gpu", None, "", "", "", on_a_gpu)
    shown = [step.shown for step in AppendixA5().steps(at)]
    assert shown[:4] == ["a5 begin", "a5 warm vcc", "a5 warm short", "a5 time vcc, short"]
    prefix_jobs.warm(layout, "dense")
    assert layout.compiled("dense").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vcc", "vcc-every", "vcc-tree"])
def test_a_traced_reader_has_the_same_loss_and_gradients(layout: SmallLayout, name: str) -> None:
    """Forward and backward through torch.compile's tracing, without its code generation."""
    model, objective = prefix_jobs.started(layout).eval(), prefix_jobs.objective_of(name, SMALL)
    data = PretrainDataset(prefix_jobs.text_of(layout, "train"), prefix_jobs.NothingHidden(), 128, 0, 4)
    batch = objective.collate([data[0], data[1]])
    run = torch.compile(objective.reading(model), dynamic=False, backend="aot_eager")
    traced = prefix_jobs.CompiledTokens(objective.reads, objective.taught, objective.settings, run)
    found = []
    for one in (objective, traced):
        model.zero_grad()
        loss = one.loss(model, batch)
        loss.backward()
        found.append([loss.detach(), *(weight.grad for weight in model.parameters())])
    for plain, other in zip(*found, strict=True):
        torch.testing.assert_close(other, plain, rtol=1e-4, atol=1e-5)
