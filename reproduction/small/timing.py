"""Time and memory of one model, alone on the device."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reproduction.loop import half_precision
from vcc.bench.kernels import busiest
from vcc.bench.measure import clock, median_ms, peak_gib, process_bytes, reset_peak
from vcc.train.opening import answer_opening_loss, openings_of

QUESTION = 24  # tokens


def measure(
    model: Any,
    vips: str | None,
    length: int,
    device: str,
    at_once: int,
    several: bool = False,
    modes: tuple[str, ...] = ("forward", "training"),
    written: int | None = None,
    opening: float = 0.0,
    once: bool = False,
) -> dict[str, float | None]:
    """Forward and training, for one sequence and a batch, in ms per sequence; peak memory of the training step.
    `several`: only for a batch, since every shape is compiled by itself. `written`: tokens that an encoder-decoder
    writes; None for an encoder. `opening`: in training the loss that teaches what to open is computed too. `once`: run
    each step once and measure nothing, to compile it.

    A small model waits for Python more than for the GPU, so the GPU's busy time is reported too.
    """
    place = torch.device(device)

    def loss(given: dict[str, Any]) -> Tensor:
        if opening and torch.is_grad_enabled():
            with openings_of(model) as seen:
                output = model(**given)
            spans = torch.full((len(given["input_ids"]), 1, 2), length // 2, device=place)
            return output.start_logits.float().pow(2).mean() + opening * answer_opening_loss(seen, spans)
        output = model(**given)
        scores = output.start_logits if written is None else output.logits
        return scores.float().pow(2).mean()

    def given(batch: int) -> dict[str, Any]:
        return inputs(model, vips, batch, length, place, written)

    return measure_losses(model, given, loss, place, [at_once] if several else sorted({1, at_once}), modes, once)


def measure_losses(
    model: Any,
    inputs_of: Callable[[int], dict[str, Any]],
    loss_of: Callable[[dict[str, Any]], Tensor],
    place: torch.device,
    batches: list[int],
    modes: tuple[str, ...],
    once: bool = False,
) -> dict[str, float | None]:
    """The same for any loss of inputs of a batch size; the last of `batches` is the one of training."""
    model.to(place)
    found: dict[str, float | None] = {}
    for mode in modes:
        for batch in batches:
            given = inputs_of(batch)
            training = mode == "training"
            model.train(training)

            def step(given: dict[str, Any] = given, training: bool = training) -> None:
                model.zero_grad(set_to_none=True)
                with torch.set_grad_enabled(training), half_precision(place):
                    loss = loss_of(given)
                if training:
                    loss.backward()

            before = process_bytes("VmRSS")
            clock(step, place)
            if once:
                continue
            reset_peak(place)
            ms, _ = median_ms(step, place)
            found[f"{mode}_ms_{'one' if batch == 1 else 'each'}"] = ms / batch
            found[f"{mode}_gib_{'one' if batch == 1 else 'several'}"] = peak_gib(place, before)
            if place.type == "cuda" and batch == batches[-1]:
                found[f"{mode}_gpu_ms_each"] = sum(kernel.ms for kernel in busiest(step, place)) / batch
    return found


def inputs(
    model: Any, vips: str | None, batch: int, n: int, device: torch.device, written: int | None = None
) -> dict[str, Any]:
    ids = torch.randint(5, model.config.vocab_size, (batch, n), generator=torch.Generator().manual_seed(0))
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if vips is not None:
        given[vips] = (torch.arange(n).expand(batch, n) < QUESTION).long()
    if written is not None:
        given["decoder_input_ids"] = ids[:, :written]
    moved: dict[str, Any] = {name: value.to(device) for name, value in given.items()}
    return moved if written is None else {**moved, "use_cache": False}
