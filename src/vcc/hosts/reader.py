"""The classes mixed into Hugging Face's: `Reader` into the module that owns the encoder layers, `Head` and `Seq2Seq`
into the models around it. They add `vip_mask` and `vip_length` to forward and change nothing else."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import can_return_tuple

from vcc.config import VccConfig
from vcc.core.rows import Rows, running_count
from vcc.core.vips import check_mask
from vcc.encode import Step, encode
from vcc.hosts.break_even import worth_compressing
from vcc.hosts.host import FamilyHost, Inputs, token_places
from vcc.hosts.vip_rules import first_tokens, vips_by_rule


@dataclass(frozen=True)
class LayerReport:
    """What one layer saw in the last forward pass."""

    layer: int
    tokens: int  # in the input, per sequence, padding included
    rows: int  # the layer computed, per sequence
    scales: tuple[int, ...]  # () in a window layer
    opened: tuple[Tensor, ...]  # per scale but the last: (B, h) the segments opened, numbered within their scale

    @property
    def ratio(self) -> float:
        """Tokens per row: how much the layer was spared."""
        return self.tokens / max(self.rows, 1)


class Wrapped:
    """Any wrapped model: it knows its settings and what its layers did."""

    hf_class: ClassVar[Any]
    forward_names: ClassVar[tuple[str, ...]]  # the parameters of the Hugging Face forward, in order
    config: Any  # this and the next come from Hugging Face's class
    training: bool

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]
        from vcc.hosts.wrap import install

        install(self)

    @property
    def vcc(self) -> VccConfig:
        return find_reader(self).vcc_settings

    def vcc_report(self) -> tuple[LayerReport, ...]:
        """Per layer, what the last forward pass opened and saw; empty if it ran dense or compiled."""
        return find_reader(self).last_report


class Reader(Wrapped):
    """The module that owns the layers. Long inputs go through `encode`, short ones through the untouched forward."""

    host_class: ClassVar[type[FamilyHost]]
    model_type: ClassVar[str]  # the Hugging Face family
    vcc_settings: VccConfig
    last_report: tuple[LayerReport, ...] = ()
    compiled_read: Callable[["Reader", Inputs, Tensor, Tensor], Tensor] | None = None  # set by `vcc.compile`

    @can_return_tuple
    def forward(
        self,
        *args: Any,
        vip_mask: Tensor | None = None,
        vip_length: int | Tensor | None = None,
        vip_rule: str | None = None,
        **kwargs: Any,
    ) -> Any:
        inputs: dict[str, Any] = named(self, args, kwargs)
        host = self.host_class(self)
        if vip_mask is not None and vip_length is not None:
            raise ValueError("vip_mask and vip_length are both given; pass one of them")
        if self.runs_dense(host, inputs, vip_mask):
            self.last_report = ()
            return self.hf_class.forward(self, **inputs, return_dict=True)
        if self.wants("output_attentions", inputs):
            raise ValueError(
                "output_attentions=True: a compressed layer attends between rows, not tokens, so there is no "
                "token-by-token attention to return; model.vcc_report() tells what each layer opened"
            )
        places = token_places(inputs)
        mask = inputs.get("attention_mask")
        if mask is None:
            mask = torch.ones_like(places)
        check_mask(mask, places, "attention_mask")
        real = mask != 0
        vips = self.find_vips(vip_mask, vip_length, vip_rule, inputs, real)
        wanted = self.wants("output_hidden_states", inputs)
        if self.compiled_read is not None and not wanted and not torch.compiler.is_compiling():
            self.last_report = ()
            return host.output(self.compiled_read(self, inputs, real, vips), None)
        reports: list[LayerReport] = []
        states: list[Tensor | None] = []
        some = None if isinstance(wanted, bool) else set(wanted)  # the numbers of some layers

        def watch(step: Step) -> None:
            opened = () if step.cut is None else tuple(nodes.detach() for nodes in step.cut.opened_nodes)
            scales = () if step.tree is None else step.tree.scales
            seen = step.rows if step.cut is not None else places.shape[1]
            reports.append(LayerReport(step.layer, places.shape[1], seen, scales, opened))
            if wanted:
                states.append(step.whole().hidden if some is None or step.layer in some else None)

        watching = wanted or not torch.compiler.is_compiling()
        first, last = self.read(inputs, real, vips, self.vcc_settings, watch if watching else None)
        if not torch.compiler.is_compiling():
            self.last_report = tuple(reports)
        if not wanted:
            return host.output(last, None)
        if states[-1] is not None:
            states[-1] = last
        return host.output(last, (first, *states) if some is None else tuple(states))

    def read(
        self,
        inputs: Inputs,
        real: Tensor,
        vips: Tensor,
        settings: VccConfig,
        watch: Callable[[Step], None] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Embeddings and last hidden states (B, n, D) of a long input."""
        host = self.host_class(self)
        hidden = host.embed(inputs, own_places(vips & real, real) if settings.vip_window == "own" else None)
        rows = Rows(hidden, real, token_places(inputs).to(torch.float32))
        return hidden, host.finish(encode(host, rows, vips, settings, watch).hidden)

    def wants(self, name: str, inputs: Inputs) -> Any:
        """Whether an optional output is asked for, by an argument or by the configuration."""
        given = inputs.get(name)
        return getattr(self.config, name) if given is None else given

    def runs_dense(self, host: FamilyHost, inputs: Inputs, vip_mask: Tensor | None) -> bool:
        """Whether the untouched forward takes this input: too short to gain, or not an encoder's input at all."""
        ids, embeds = inputs.get("input_ids"), inputs.get("inputs_embeds")
        if (ids is None) == (embeds is None) or getattr(self.config, "is_decoder", False):
            return True  # not ours: Hugging Face's own forward runs it or says what is wrong
        places = token_places(inputs)
        if vip_mask is not None:
            check_mask(vip_mask, places, "vip_mask")
        n = places.shape[1]
        if host.longest is not None and n > host.longest:
            return False  # the untouched model has no positions for it
        below = self.vcc_settings.dense_below
        return not worth_compressing(n, self.vcc_settings) if below == "auto" else n < below

    def find_vips(
        self,
        vip_mask: Tensor | None,
        vip_length: int | Tensor | None,
        rule: str | None,
        inputs: Inputs,
        real: Tensor,
    ) -> Tensor:
        if vip_mask is not None:
            return vip_mask != 0
        if vip_length is not None:
            return first_tokens(vip_length, real)
        return vips_by_rule(rule, inputs.get("input_ids"), real, self.config, self.model_type)


class Head(Wrapped):
    """A model around a reader: it passes the VIPs on, or says how its head usually finds them."""

    vip_rule: ClassVar[str | None]

    def forward(
        self,
        *args: Any,
        vip_mask: Tensor | None = None,
        vip_length: int | Tensor | None = None,
        vip_rule: str | None = None,
        **kwargs: Any,
    ) -> Any:
        inputs: dict[str, Any] = named(self, args, kwargs)
        labels = inputs.get("labels")
        if vip_mask is None and vip_length is None and self.vip_rule == "mask" and labels is not None:
            vip_mask = labels != -100
        if vip_mask is not None and vip_mask.ndim == 3:  # multiple choice: one sequence per choice
            vip_mask = vip_mask.flatten(0, 1)
        if isinstance(vip_length, Tensor) and vip_length.ndim == 2:
            vip_length = vip_length.flatten()
        rule = vip_rule or self.vip_rule  # a head around this one knows better
        return self.hf_class.forward(self, **inputs, vip_mask=vip_mask, vip_length=vip_length, vip_rule=rule)


class Seq2Seq(Wrapped):
    """An encoder-decoder model: the VIPs go to the encoder alone."""

    vip_rule: ClassVar[str | None]
    get_encoder: Any

    def forward(
        self, *args: Any, vip_mask: Tensor | None = None, vip_length: int | Tensor | None = None, **kwargs: Any
    ) -> Any:
        inputs: dict[str, Any] = named(self, args, kwargs)
        if inputs.get("encoder_outputs") is None:
            wanted = ("input_ids", "attention_mask", "inputs_embeds", "output_attentions", "output_hidden_states")
            given = {name: inputs[name] for name in wanted if inputs.get(name) is not None}
            read = self.get_encoder()(
                **given, return_dict=True, vip_mask=vip_mask, vip_length=vip_length, vip_rule=self.vip_rule
            )
            # The decoders take a plain BaseModelOutput by name, and any other output by the order of its fields.
            inputs["encoder_outputs"] = BaseModelOutput(
                read.last_hidden_state, hidden_states=read.hidden_states, attentions=read.attentions
            )
        return self.hf_class.forward(self, **inputs)


def own_places(vips: Tensor, real: Tensor) -> Tensor:
    """Places counted separately among VIPs and among the rest, so that neither depends on the other; -1 for padding."""
    rest = real & ~vips
    return torch.where(vips, running_count(vips) - 1, torch.where(rest, running_count(rest) - 1, -1))


def named(model: Wrapped, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments by name."""
    return {**dict(zip(model.forward_names, args, strict=False)), **kwargs}


def with_vips(forward: Any) -> inspect.Signature:
    """The signature of a Hugging Face forward, with the VIPs' parameters before its keyword arguments."""
    signature = inspect.signature(forward)
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in ("vip_mask", "vip_length")
    ]
    parameters = list(signature.parameters.values())
    at = next((i for i, p in enumerate(parameters) if p.kind is inspect.Parameter.VAR_KEYWORD), len(parameters))
    return signature.replace(parameters=[*parameters[:at], *extra, *parameters[at:]])


def find_reader(model: Any) -> Reader:
    return next(module for module in model.modules() if isinstance(module, Reader))
