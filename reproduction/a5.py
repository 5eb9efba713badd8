"""Appendix A.5: a decoder that is trained with its prefix compressed."""

from dataclasses import replace
from pathlib import Path

from reproduction.experiment import Experiment, ProcessStep, Workspace, chosen_models
from reproduction.picture import Picture, Point
from reproduction.report import Report, ReportTable, Value
from reproduction.small import reports
from reproduction.small.layout import CURVE, DECODER
from reproduction.small.prefix import PREFIX_READERS
from reproduction.small.prefix_jobs import settings_of
from reproduction.small.steps import SLOWER_CPU, job, missing, seeded, timed, to_warm
from vcc.errors import UsageError

MODULE = "reproduction.small.prefix_jobs"
ROW = 0.25  # training ms of a row as long as a suffix: an estimate for planning on one H200
SEQUENCE = {"all": 6.0, "tree": 3.0, "suffix": 0.4}  # likewise of a row of 4,096 tokens
COLUMNS = (
    "model", "log perplexity of the suffix, before → after", "steps", "GPU s", "training ms a sequence",
    "training ms a step", "training GiB", "sequences at once",
)  # fmt: skip


class AppendixA5(Experiment):
    """The paper describes it and has no numbers; at either scale it is run on one small decoder."""

    name = "a5"
    title = "a decoder trained with its prefix compressed"
    claim = (
        "A decoder can be trained with its prefix compressed: the first token behind it is the VIP, so that nothing "
        "looks ahead. The paper leaves it for future work."
    )

    def reads_text(self, at: Workspace) -> bool:
        return True  # the common decoder and all after it

    def models_of(self, at: Workspace) -> list[str]:
        return chosen_models(at, PREFIX_READERS, self.name) or list(PREFIX_READERS)

    def layout_of(self, at: Workspace) -> Workspace:
        """Models of other experiments have the same names: these are in a folder of their own."""
        return replace(at, out=at.out / "a5")

    def steps(self, at: Workspace) -> list[ProcessStep]:
        if at.small.suffix >= at.small.length:
            raise UsageError(f"--suffix is {at.small.suffix}: it must be less than --length {at.small.length}")
        models = self.models_of(at)
        repeats = range(at.small.seeds)
        warm = [self.warm(at, model) for model in to_warm(self.layout_of(at), models)]
        return [self.begin(at), *warm, self.clock(at, models), *(self.go_on(at, m, n) for n in repeats for m in models)]

    def job(
        self, at: Workspace, what: str, given: dict[str, object], done: Path, needs: tuple[Path, ...], took: float,
        alone: bool = False, shown: str | None = None,
    ) -> ProcessStep:  # fmt: skip
        here = self.layout_of(at)
        step = job(here, what, given, done, needs, took, alone, shown, MODULE, missing(at))
        command = list(step.command)
        command[3] = str(at.packed)  # shared by all experiments
        return replace(step, shown=f"a5{step.shown.removeprefix('small')}", command=tuple(command))

    def begin(self, at: Workspace) -> ProcessStep:
        took = at.small.decoder_steps * at.small.batch * ROW / 60_000 * slower(at)
        return self.job(at, "begin", {}, self.layout_of(at).layout.start(DECODER) / CURVE, (), took + 0.3)

    def warm(self, at: Workspace, model: str) -> ProcessStep:
        layout = self.layout_of(at).layout
        return self.job(at, "warm", {"name": model}, layout.compiled(model), (layout.start(DECODER) / CURVE,), 0.6)

    def clock(self, at: Workspace, models: list[str]) -> ProcessStep:
        layout = self.layout_of(at).layout
        left = [model for model in models if not layout.times(model).exists()] or models[-1:]
        given: dict[str, object] = {"each": [{"name": model} for model in left]}
        needs, took = (layout.start(DECODER) / CURVE,), 0.2 + 0.4 * len(left)
        return self.job(at, "time", given, layout.times(left[-1]), needs, took, alone=True, shown=", ".join(left))

    def go_on(self, at: Workspace, model: str, repeat: int = 0) -> ProcessStep:
        here, small = self.layout_of(at), at.small
        layout = here.layout.repeated(repeat)
        each = SEQUENCE[PREFIX_READERS[model].reads] * small.length / 4096 * slower(at)
        seconds = small.pretrain_seconds or small.pretrain_steps * small.batch * each / 1000
        needs = (here.layout.start(DECODER) / CURVE, *timed(here, model, small.pretrain_seconds))
        given: dict[str, object] = {"name": model, **seeded(repeat)}
        return self.job(at, "go_on", given, layout.pretrained(model) / CURVE, needs, seconds / 60 + 0.5)

    def report(self, at: Workspace) -> Report:
        here, models = self.layout_of(at), self.models_of(at)
        rows, points = [], []
        for model in models:
            rows.append(line(here, model))
            points += [Point(model, one["step"], one["log_perplexity"]) for one in reports.curve(here, model)]
        told = tuple((model, PREFIX_READERS[model].told) for model in models)
        tables = (
            ReportTable("The same start, trained for the same time", COLUMNS, tuple(rows)),
            ReportTable("The models", ("model", "reads"), told),
        )
        picture = Picture("Held-out suffixes", "steps on long rows", "log perplexity", tuple(points))
        return Report(self.name, self.title, self.claim, tables, (picture,), (scale_of(at),))


def line(at: Workspace, model: str) -> tuple[Value, ...]:
    """A row of the table; of several seeds the mean of the last perplexities, and the lowest and highest."""
    curves = [reports.read(at.layout.repeated(n).pretrained(model) / CURVE) for n in range(at.small.seeds)]
    done = [one for one in curves if one]
    learned = [[point["log_perplexity"] for point in one["curve"] if "log_perplexity" in point] for one in done]
    words = ""
    if learned:
        last = [values[-1] for values in learned]
        spread = f" ({min(last):.3f} to {max(last):.3f})" if len(last) > 1 else ""
        words = f"{learned[0][0]:.3f} → {sum(last) / len(last):.3f}{spread}"
    took, batch = reports.times(at, model), at.small.batch
    each = took.get("training_gpu_ms_each") or took.get("training_ms_each")
    memory = took.get("training_gib_several")
    return (
        model, words, f"{done[0]['steps']:,}" if done else None,
        reports.gpu_seconds(at, model, at.layout.pretrained(model)), f"{each:.2f}" if each else None,
        f"{each * batch:.1f}" if each else None, f"{memory:.2f}" if memory else None,
        settings_of(model, at.small).at_once,
    )  # fmt: skip


def slower(at: Workspace) -> float:
    return SLOWER_CPU if at.small.device == "cpu" else 1.0


def scale_of(at: Workspace) -> str:
    small = at.small
    tuned = f"{small.pretrain_seconds:g} GPU s" if small.pretrain_seconds else f"{small.pretrain_steps} steps"
    return (
        f"{small.decoder_steps} steps of {small.batch} x {small.suffix} tokens make the common decoder, {tuned} of "
        f"{small.batch} x {small.length} tokens train each model; tested on the last {small.suffix} tokens of held-out "
        f"rows, but for the first of these, which chooses what is opened; {small.seeds} seeds; "
        f"{small.device}{', compiled' if small.compile else ''}. GPU s: steps times the time of one alone."
    )
