"""`vcc bench`: what it says about a model is what the model did."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import vcc
from tests.deep import deep_but
from vcc.bench import measure as measuring
from vcc.bench import report, stages
from vcc.bench.contenders import CONTENDERS, OURS, PADDING, SIZES, Kernels, attention_of, build, inputs, reading
from vcc.bench.kernels import Kernel
from vcc.bench.measure import BenchCell, measure, median_ms, memory_limit
from vcc.bench.report import Run
from vcc.bench.settings import PRESETS, BenchSettings, check
from vcc.bench.stages import Profile, profile
from vcc.commands.bench import bench
from vcc.commands.options import call
from vcc.errors import UsageError, is_out_of_memory
from vcc.hosts.families.bert import BertHost

CPU = torch.device("cpu")
TINY = BenchSettings(("vcc-bert", "bert"), (256, 768), "tiny", "fp32", "cpu", True)
# The pattern every contender runs at 768 tokens, written down by hand.
PATTERNS = {
    **dict.fromkeys(("vcc-roberta", "vcc-t5", "vcc-modernbert", "vcc-bert"), "compressed"),
    **dict.fromkeys(("roberta", "bert", "t5"), "full"),
    "longt5-local": "local",
    "longt5-global": "transient-global",
    "led": "window 1024 + global",
    "longformer": "window 512 + global",
    "bigbird": "block-sparse",
    "bigbird-blocks": "block-sparse (ours)",
    "mra": "multi-resolution (ours)",
    "modernbert": "full and local",
}


QUICK = {*OURS, "bert", "t5"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "FILL", 0.0)
    monkeypatch.setattr(measuring, "SLOW", 0.0)  # every cell is measured once
    monkeypatch.setattr(stages, "RUNS", 1)


def example_run() -> Run:
    """A run with every kind of outcome, its numbers all different."""
    cells = (
        BenchCell("vcc-bert", 256, "forward", "measured", "compressed, eager", 243, 2.51, 9, 0.31, 0.11),
        BenchCell("vcc-bert", 256, "training", "measured", "compressed, eager", 243, 7.53, 9, 0.62, 0.12),
        BenchCell("bert", 256, "forward", "measured", "full, eager", 256, 5.02, 9, 0.43, 0.13),
        BenchCell("bert", 256, "training", "out of memory"),
        BenchCell("vcc-bert", 768, "forward", "failed: ValueError: odd"),
        BenchCell("vcc-bert", 768, "training", "skipped: 77 s predicted"),
        BenchCell("bert", 768, "forward", "measured", "full, eager", 768, 44.4, 9, 12.34, 0.14),
        BenchCell("bert", 768, "training", "out of memory"),
    )
    cells = (replace(cells[0], kernels=(Kernel("gemm<4, float>", 7, 1.6), Kernel("all others", 31, 0.4))), *cells[1:])
    stages = (Profile("vcc-bert", 256, "forward", 4.0, {"choose": 1.0, "rest": 3.0}),)
    return Run({"cpu": "a machine"}, {"torch": "2"}, TINY, cells, stages)


# -------------------------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize("name", deep_but(QUICK, [name for name in CONTENDERS if not CONTENDERS[name].flex]))
def test_every_contender_runs_and_is_labelled_with_what_it_ran(name: str) -> None:
    for mode in ("forward", "training"):
        cell = measure(name, 768, mode, TINY)
        assert cell.outcome == "measured"
        assert cell.ms is not None and cell.ms > 0
        assert cell.tokens == 768 - (PADDING if name in OURS else 0)
        pattern, _, kernel = cell.attention.partition(", ")
        assert pattern == PATTERNS[name]
        fused = name in OURS or name in ("roberta", "bert", "t5", "modernbert")
        assert kernel.startswith("sdpa") if fused else kernel == "eager"


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["longformer-flex", "modernbert-flex"])
def test_flex_attention_computes_what_the_model_does_without_it(name: str) -> None:
    cuda = torch.device("cuda")
    models = [build(of, SIZES["minilm"], 768, 0.0, torch.float32, cuda).eval() for of in (name, name[:-5])]
    models[1].load_state_dict(models[0].state_dict())
    given = inputs(name, models[0], 2, 768, 0.3, cuda)
    with torch.no_grad():
        found, expected = (model(**given).last_hidden_state[given["attention_mask"] > 0] for model in models)
    assert torch.allclose(found, expected, atol=2e-3), (found - expected).abs().max()
    cell = measure(name, 768, "training", replace(TINY, size="minilm", device="cuda"))
    assert cell.outcome == "measured" and cell.attention.endswith(", flex")


def test_flex_attention_is_not_measured_on_a_cpu() -> None:
    with pytest.raises(UsageError, match="longformer-flex: FlexAttention must be measured on a GPU"):
        check(replace(TINY, models=("bert", "longformer-flex")))


def test_bigbird_that_fell_back_is_labelled_full() -> None:
    """Up to (5 + 2 * 3) * 64 = 704 tokens it drops its own attention."""
    assert measure("bigbird", 704, "forward", TINY).attention == "full (fell back), eager"
    assert measure("bigbird", 705, "forward", TINY).attention == "block-sparse, eager"


def test_ours_that_ran_dense_is_labelled_so() -> None:
    model = build("vcc-bert", SIZES["tiny"], 256, 0.0, torch.float32, CPU).eval()
    given = inputs("vcc-bert", model, 1, 256, 0.0, CPU)
    labels = []
    for below in (0, 1000):
        wrapped = vcc.wrap(model, replace(reading(256)[1], dense_below=below))
        with Kernels() as kernels, torch.no_grad():
            wrapped(**given)
        labels.append(attention_of("vcc-bert", wrapped, kernels.seen).partition(", ")[0])
    assert labels == ["compressed", "full (not compressed)"]


def test_the_label_names_the_kernel_that_ran() -> None:
    model = build("roberta", SIZES["tiny"], 64, 0.0, torch.float32, CPU).eval()
    given = inputs("roberta", model, 1, 64, 0.0, CPU)
    labels = []
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend), Kernels() as kernels, torch.no_grad():
            model(**given)
        labels.append(attention_of("roberta", model, kernels.seen))
    assert labels == ["full, sdpa math", "full, sdpa flash"]


@pytest.mark.parametrize("name", ["led", "longformer"])
def test_the_first_token_sees_everything_where_the_label_says_global(name: str) -> None:
    model = build(name, SIZES["tiny"], 2048, 0.0, torch.float32, CPU).eval()
    given = inputs(name, model, 1, 2048, 0.0, CPU)
    other = {**given, "input_ids": given["input_ids"].clone()}
    other["input_ids"][:, -1] = 5 + (given["input_ids"][:, -1] == 5).long()
    with torch.no_grad():
        change = (model(**given).last_hidden_state - model(**other).last_hidden_state).abs().amax(2)[0]  # (n,)
    assert change[0] > 0
    assert change[-1] > 0


def test_all_models_of_a_run_have_the_same_size() -> None:
    for name in CONTENDERS:
        if name == "longformer-flex":  # FlexAttention has no dropout
            continue
        config = build(name, SIZES["tiny"], 64, 0.25, torch.float32, CPU).config
        layers = config.encoder_layers if name == "led" else config.num_hidden_layers
        assert (config.hidden_size, layers) == (32, 1 if name == "led" else 3)
        rates = [value for option, value in config.to_dict().items() if "dropout" in option and value is not None]
        assert rates and set(rates) == {0.25}


def test_ours_reads_padding_and_the_others_do_not_unless_the_batch_is_ragged() -> None:
    def lengths(name: str, ragged: float) -> list[int]:
        model = build(name, SIZES["tiny"], 100, 0.0, torch.float32, CPU)
        given = inputs(name, model, 3, 100, ragged, CPU)
        real = given.get("attention_mask", torch.ones_like(given["input_ids"]))  # (B, n)
        assert ("attention_mask" in given) == (name in OURS or ragged > 0)
        assert (given["input_ids"][real == 0] == model.config.pad_token_id).all()
        assert (given["input_ids"][real == 1] != model.config.pad_token_id).all()
        return real.sum(1).tolist()

    assert lengths("roberta", 0.0) == [100, 100, 100]
    assert lengths("vcc-roberta", 0.0) == [87, 87, 87]
    assert lengths("roberta", 0.5) == [100, 75, 50]
    assert lengths("vcc-roberta", 0.5) == [87, 75, 50]


def test_lengths_are_read_with_the_settings_of_the_paper() -> None:
    def settings(n: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        vips, config = reading(n)
        return vips, config.scales, config.budget

    assert settings(4096) == (288, (16, 1), (80,))
    assert settings(16384) == (32, (16, 1), (90,))
    assert settings(131072) == (48, (16, 1), (90,))
    assert settings(2**20) == (48, (256, 16, 1), (40, 90))
    model = build("vcc-bert", SIZES["tiny"], 4096, 0.0, torch.float32, CPU)
    assert int(inputs("vcc-bert", model, 1, 4096, 0.0, CPU)["vip_mask"].sum()) == 288


def test_rows_for_vips_are_reserved_so_that_nobody_counts_them() -> None:
    assert [reading(n)[1].max_vips for n in (64, 1024, 4096, 16384, 131072, 2**20)] == [32, 128, 288, 32, 64, 64]


# --------------------------------------------------------------------------------------------------------------- cells


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError("Tried to allocate 9 GiB"), MemoryError()])
def test_out_of_memory_is_marked_and_the_run_goes_on(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def starving(name: str, *args: object) -> object:
        if name == "vcc-bert":
            raise error
        return build(name, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(measuring, "build", starving)
    run = bench(preset="cpu", models=("vcc-bert", "bert"), lengths=(64,), size="tiny", profile=True, out=tmp_path)
    assert [cell.outcome for cell in run.cells] == ["out of memory", "measured"]
    assert run.profiles == ()


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="only Linux tells how much memory is free")
def test_an_allocation_beyond_the_free_memory_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    free = measuring.free_bytes()
    monkeypatch.setattr(measuring, "build", lambda *args: torch.empty(2 * free, dtype=torch.uint8))
    assert measure("bert", 64, "forward", TINY).outcome == "out of memory"
    monkeypatch.setattr(measuring, "free_bytes", lambda: 2**32)
    with memory_limit(CPU), pytest.raises(RuntimeError) as refused:
        torch.empty(2**32, dtype=torch.uint8)
    assert is_out_of_memory(refused.value)
    with memory_limit(CPU, sharing=4), pytest.raises(RuntimeError) as refused:
        torch.empty(3 * 2**30, dtype=torch.uint8)  # an allocator may have a gigabyte in reserve
    assert is_out_of_memory(refused.value)
    torch.empty(2**32, dtype=torch.uint8)  # the limit is gone


def test_a_failure_is_marked_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> object:
        raise ValueError("heads must\n divide width")

    monkeypatch.setattr(measuring, "build", broken)
    assert measure("bert", 64, "forward", TINY).outcome == "failed: ValueError: heads must divide width"


def test_a_measurement_is_kept_if_its_profile_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> object:
        raise RuntimeError("no counters")

    monkeypatch.setattr(measuring, "busiest", broken)
    monkeypatch.setattr(torch.nn.Module, "compile", lambda layer, **options: None)
    cell = measure("bert", 64, "forward", replace(TINY, compile="all", profile=True))
    assert cell.outcome == "measured" and cell.ms
    assert cell.kernels == (Kernel("none: failed: RuntimeError: no counters", 0, 0.0),)
    run = replace(example_run(), cells=(cell,))
    assert "no counters" in report.markdown(run)


def test_other_models_are_compiled_layer_by_layer_so_full_attention_needs_no_mask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda layer, **options: compiled.append(type(layer).__name__))
    for name, layer in (("bert", "BertLayer"), ("longformer", "LongformerLayer"), ("t5", "T5Block")):
        compiled.clear()
        measure(name, 64, "forward", replace(TINY, compile="all"))
        assert compiled == [layer] * 3, name


def test_a_cell_is_skipped_only_if_a_limit_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def pretended(name: str, n: int, mode: str, settings: BenchSettings) -> tuple[BenchCell, None]:
        return BenchCell(name, n, mode, "measured", "full, eager", n, ms=2000.0, runs=1), None

    monkeypatch.setattr("vcc.bench.cells.measure_and_profile", pretended)
    outcomes = {}
    for limit in (None, 7.9, 8.1):
        run = bench(preset="cpu", models=("bert",), lengths=(64, 128), limit=limit, out=tmp_path)
        outcomes[limit] = [cell.outcome for cell in run.cells]
    assert outcomes[7.9] == ["measured", "skipped: 8 s predicted"]
    assert outcomes[None] == outcomes[8.1] == ["measured", "measured"]


def test_the_time_is_the_median_of_repeated_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.1, 0.30, 0.10, 0.20, 0.90, 0.15])
    monkeypatch.setattr(measuring, "FILL", 0.5)
    monkeypatch.setattr(measuring, "SLOW", 5.0)
    monkeypatch.setattr(measuring, "clock", lambda step, device: next(seconds))
    assert median_ms(lambda: None, CPU) == (pytest.approx(200.0), 5)


def test_a_training_step_reaches_every_layer() -> None:
    step, model, _ = measuring.prepare("vcc-bert", 768, "training", TINY, CPU)
    step()
    norms = [model.encoder.layer[i].attention.self.query.weight.grad.norm().item() for i in range(3)]
    assert min(norms) > 0
    step, model, _ = measuring.prepare("vcc-bert", 768, "forward", TINY, CPU)
    step()
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.slow
def test_a_compiled_model_is_labelled_so_and_its_first_call_told() -> None:
    cell = measure("vcc-bert", 768, "forward", replace(TINY, compile="ours"))
    assert cell.attention == "compressed, compiled"
    assert cell.ms is not None and cell.first_s is not None and cell.first_s * 1e3 > cell.ms
    assert cell.kernels == ()
    assert measure("bert", 768, "forward", replace(TINY, compile="ours")).attention.startswith("full, sdpa")


def test_checkpointing_is_on_where_it_is_asked_for() -> None:
    settings = replace(TINY, checkpointing=True)
    for mode, wanted in (("training", True), ("forward", False)):
        _, model, _ = measuring.prepare("bert", 64, mode, settings, CPU)
        assert model.is_gradient_checkpointing is wanted


# ------------------------------------------------------------------------------------------------------------- profile


def test_the_stages_add_up_and_nothing_stays_patched() -> None:
    before = (vcc.core.cut.choose_cut, BertHost.layer, torch.Tensor.backward)
    found = profile("vcc-bert", 768, "training", TINY)
    assert isinstance(found, Profile)
    inner = ["split", "windows", "build", "choose", "read", "write", "flatten"]
    assert list(found.stages_ms) == ["embed", *inner, "layer", "finish", "backward", "rest"]
    assert sum(found.stages_ms.values()) == pytest.approx(found.total_ms)
    assert all(ms > 0 for ms in found.stages_ms.values())
    assert before == (vcc.core.cut.choose_cut, BertHost.layer, torch.Tensor.backward)


def test_a_stage_inside_another_counts_once() -> None:
    watch = stages.Stopwatch(CPU)
    inner = watch.timing("layer", lambda: None)
    watch.timing("windows", inner)()
    inner()
    assert [stage for stage, _, _ in watch.spans] == ["windows", "layer"]


# -------------------------------------------------------------------------------------------------------------- report


def test_json_comes_back_as_it_was(tmp_path: Path) -> None:
    run = example_run()
    report.save(run, tmp_path / "bench.json")
    assert report.load(tmp_path / "bench.json") == run
    json.loads((tmp_path / "bench.json").read_text())


def test_tables_and_markdown_show_every_cell() -> None:
    from rich.console import Console

    run = example_run()
    console = Console(width=250, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for table in report.tables(run):
        console.print(table)
    for text in (console.export_text(), report.markdown(run)):
        for cell in run.cells:
            assert (cell.outcome if cell.ms is None else report.shown(cell.ms)) in text
        for shown in ("2.51", "7.53", "44.4", "12.3", "0.31", "compressed, eager", "256 tokens", "choose", "25%"):
            assert shown in text
        assert "256 tokens, forward: 2.51 ms, compiled; in operations 2.0 ms" in " ".join(text.split())  # titles wrap
        assert "gemm<4, float>" in text and "80%" in text and "all others" in text
        assert text.count("out of memory") == 2
    assert "| vcc-bert | compressed, eager | 2.51 | 2.00 | 7.53 |  | 0.31 | 0.62 |" in report.markdown(run)


def test_stages_of_a_compiled_run_are_said_to_be_those_of_the_uncompiled_one() -> None:
    run = example_run()
    note = "4.0 ms, uncompiled: stages cannot be told apart in a compiled graph"
    assert note not in report.markdown(run)
    assert note in report.markdown(replace(run, settings=replace(TINY, compile="ours")))


def test_the_ratio_is_to_the_dense_model_of_the_same_cell() -> None:
    run = example_run()
    assert run.ratio(run.find("vcc-bert", 256, "forward")) == pytest.approx(2.0)
    assert run.ratio(run.find("bert", 768, "forward")) == 1.0
    assert run.ratio(run.find("vcc-bert", 256, "training")) is None  # the dense model did not fit
    assert run.ratio(run.find("vcc-bert", 768, "forward")) is None
    assert replace(run, settings=replace(TINY, models=("vcc-bert",))).ratio(run.cells[0]) is None


def test_the_picture_is_drawn_even_if_nothing_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for number, run in enumerate((example_run(), replace(example_run(), cells=()))):
        report.plot(run, tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").read_bytes().startswith(b"\x89PNG")


def test_names_beside_lines_are_moved_apart_and_no_further() -> None:
    assert report.apart([0.0, 0.0, 0.0], 1.0) == [-1.0, 0.0, 1.0]
    assert report.apart([0.0, 1.0, 5.0], 1.0) == [0.0, 1.0, 5.0]
    assert report.apart([0.0, 2.0, 2.0, 2.6], 1.0) == pytest.approx([0.0, 1.2, 2.2, 3.2])
    assert report.apart([], 1.0) == []


# ------------------------------------------------------------------------------------------------------------- command


def test_the_command_measures_writes_and_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "--preset cpu --size tiny --models vcc-t5,t5 --lengths 64,128 --training --batch 2 --ragged 0.5"
    run = call(bench, [*line.split(), "--out", str(tmp_path)], "vcc bench")
    assert len(run.cells) == 8
    assert {cell.outcome for cell in run.cells} == {"measured"}
    assert [cell.tokens for cell in run.cells if cell.mode == "forward"] == [83, 96, 179, 192]
    assert (run.settings.batch, run.settings.precision, run.settings.device) == (2, "fp32", "cpu")
    assert report.load(tmp_path / "bench.json") == run
    capsys.readouterr()
    assert call(bench, ["--show", str(tmp_path / "bench.json"), "--markdown"], "vcc bench") == run
    assert "| vcc-t5 | compressed, " in capsys.readouterr().out


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"models=gpt: they must be among vcc-roberta, .*"):
        bench(models=("bert", "gpt"), out=tmp_path)
    with pytest.raises(UsageError, match=r"lengths=\(8,\)"):
        bench(lengths=(8,), out=tmp_path)
    with pytest.raises(UsageError, match="workers=0, patience=300.0: at least 1 worker"):
        bench(workers=0, out=tmp_path)
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="no CUDA GPU"):
            bench(preset="gpu", out=tmp_path)


def test_the_presets_hold_what_the_table_of_goals_needs() -> None:
    for preset in PRESETS.values():
        assert set(preset.models) <= set(CONTENDERS) and preset.size in SIZES
    assert {"vcc-roberta", "vcc-t5", "roberta", "t5", "led", "longformer", "bigbird"} <= set(PRESETS["gpu"].models)
    assert PRESETS["gpu"].lengths == (4096, 16384, 131072)
    assert {"vcc-bert", "bert"} <= set(PRESETS["cpu"].models) and 32768 in PRESETS["cpu"].lengths


# --------------------------------------------------------------------------------------- parts, shapes, knobs, batches


@pytest.mark.parametrize("name", deep_but(QUICK, ["vcc-t5", "t5", "longt5-global", "led"]))
@pytest.mark.parametrize("mode", ["forward", "training"])
def test_encoder_decoders_run_whole_and_in_parts(name: str, mode: str) -> None:
    """What is run is what is named: by which sides of the model get gradients."""
    sides = {"encoder": {"encoder"}, "decoder": {"decoder"}, "whole": {"encoder", "decoder"}}
    for part, wanted in sides.items():
        settings = replace(TINY, models=(name,), part=part, target=8)
        assert measure(name, 64, mode, settings).outcome == "measured"
        step, model, _ = measuring.prepare(name, 64, "training", settings, CPU)
        step()
        moved = {key for key, value in model.named_parameters() if value.grad is not None and value.grad.norm() > 0}
        told = "layers" if name == "led" else "block"
        if part == "encoder":
            assert any(told in key for key in moved) and not any("decoder" in key for key in moved)
        else:
            found = {side for side in ("encoder", "decoder") if any(f"{side}.{told}" in key for key in moved)}
            assert found == wanted


def test_the_shapes_are_those_of_the_papers_models() -> None:
    def parameters(name: str, size: str, part: str) -> float:
        options = replace(PRESETS["cpu"], part=part)
        model = build(name, SIZES[size], 512, 0.0, torch.float32, torch.device("meta"), options)
        return sum(parameter.numel() for parameter in model.parameters()) / 1e6

    assert round(parameters("t5", "base", "whole")) == 223 and round(parameters("t5", "large", "whole")) == 738
    assert round(parameters("t5", "3b", "whole"), -1) == 2850
    words, positions = (50_265 - SIZES["base"].words) * 768 / 1e6, (16_384 - 1024) * 768 / 1e6  # of its own, and ours
    assert round(parameters("led", "base", "whole") + words + positions) == 162
    with pytest.raises(UsageError, match="size=3b: roberta does not support the head width"):
        bench(models=("t5", "roberta"), size="3b", preset="cpu")
    with pytest.raises(UsageError, match="budget"):
        bench(models=("vcc-bert",), scales=(256, 16, 1), budget=(90,), preset="cpu")
    with pytest.raises(UsageError, match="part=decoder: roberta has no decoder"):
        bench(models=("t5", "roberta"), part="decoder", preset="cpu")


def test_the_knobs_of_ours_and_of_the_others_reach_the_models() -> None:
    options = replace(TINY, scales=(32, 1), budget=(5,), vips=7, window_layers=2, window=64, block=16, random_blocks=2)
    ours = build("vcc-bert", SIZES["tiny"], 256, 0.0, torch.float32, CPU, options)
    assert (ours.vcc.scales, ours.vcc.budget, ours.vcc.window_layers) == ((32, 1), (5,), 2)
    assert int(inputs("vcc-bert", ours, 1, 256, 0.0, CPU, options)["vip_mask"].sum()) == 7

    def config(name: str) -> Any:
        return build(name, SIZES["tiny"], 256, 0.0, torch.float32, CPU, options).config

    assert config("longformer").attention_window in (64, [64] * 3) and max(config("led").attention_window) == 64
    assert (config("bigbird").block_size, config("bigbird").num_random_blocks) == (16, 2)
    assert (config("longt5-global").local_radius, config("longt5-global").global_block_size) == (31, 16)
    assert measure("longformer", 256, "forward", options).attention == "window 64 + global, eager"
    assert measure("bigbird", 256, "forward", options).attention == "block-sparse, blocks of 16, eager"


def test_the_largest_batch_that_fits_is_timed_and_its_time_is_told_a_sequence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def small(name: str, model: object, batch: int, *more: object) -> object:
        if batch > 5:
            raise MemoryError
        return inputs(name, model, batch, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(measuring, "inputs", small)
    run = bench(preset="cpu", models=("bert",), lengths=(128,), size="tiny", fit=True, out=tmp_path)
    (cell,) = run.cells
    assert (cell.batch, cell.tokens, cell.outcome) == (4, 512, "measured")
    assert cell.sequence_ms == pytest.approx(cell.ms / 4)
    told = report.markdown(run)
    assert "| batch | ms per sequence |" in told and f"| 4 | {report.shown(cell.sequence_ms)} |" in told
    assert report.load(tmp_path / "bench.json") == run
