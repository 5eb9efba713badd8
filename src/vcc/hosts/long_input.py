"""`LongInputEncoder`: the class mixed into the Hugging Face module that owns the encoder layers. It adds `vip_mask` and
`vip_length` to its forward, sends long inputs through `vcc.encode`, and leaves short ones to Hugging Face: which, is
decided for each input of a batch on its own."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from vcc.config import VccConfig
from vcc.core.rows import Rows
from vcc.core.vips import check_mask
from vcc.encode import Step, encode
from vcc.errors import UsageError
from vcc.hosts.apart import Extent, read_apart, some_rows
from vcc.hosts.break_even import worth_compressing
from vcc.hosts.families import Family
from vcc.hosts.host import FamilyHost, Inputs, token_places
from vcc.hosts.vip_rules import first_tokens, own_places, vips_by_rule, with_virtual_tokens

VIP_NAMES = ("vip_mask", "vip_length")  # what a wrapped forward takes beyond Hugging Face's


@dataclass(frozen=True)
class LayerReport:
    """What one layer saw in the last forward pass."""

    layer: int
    tokens: int  # in the input, per sequence, padding included
    rows: int  # the layer computed, per sequence
    scales: tuple[int, ...]  # () in a window layer
    opened: tuple[Tensor, ...]  # per scale but the last: (B, h) the segments opened, numbered within their scale
    examples: tuple[int, ...] | None = None  # those of the batch that it tells of, the others ran dense; None: all

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
    has_decoder = False

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]
        install(self)

    @property
    def vcc(self) -> VccConfig:
        return find_encoder(self).vcc_settings

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """What `.half()`, `.to()` and their like come down to."""
        before = places_and_types(self)
        result = super()._apply(fn, recurse)  # type: ignore[misc]
        original = SHARED[self]() if self in SHARED else None
        if original is not None and places_and_types(self) != before:
            warnings.warn(
                f"the {type(original).__name__} that this model was wrapped from shares its weights: it has the new "
                "type and device too. To keep it as it was, wrap a copy: vcc.wrap(copy.deepcopy(model), config)",
                stacklevel=3,
            )
        return result

    def vcc_report(self) -> tuple[LayerReport, ...]:
        """Per layer, what the last forward pass opened and saw; empty if it ran dense or compiled."""
        return find_encoder(self).last_report

    def vcc_share(self) -> tuple[int, int]:
        """How many inputs were compressed since the model was made, and how many it has read in all; the others were
        too short (`dense_below`) and ran through the untouched model."""
        encoder = find_encoder(self)
        return encoder.inputs_compressed, encoder.inputs_read


class LongInputEncoder(Wrapped):
    """The module that owns the layers. Long inputs go through `encode`, short ones through the untouched forward."""

    host_class: ClassVar[type[FamilyHost]]
    family: ClassVar[Family]
    vcc_settings: VccConfig
    before_decoder: bool = False  # whose attentions can be given where ours cannot
    last_report: tuple[LayerReport, ...] = ()
    inputs_read: int = 0
    inputs_compressed: int = 0
    compiled_graphs: Callable[["LongInputEncoder", Inputs, Tensor, Tensor], Tensor] | None = None  # of `vcc.compile`

    @property
    def host(self) -> FamilyHost:
        return self.host_class(self, self.family)

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
        host = self.host
        if vip_mask is not None and vip_length is not None:
            raise ValueError("vip_mask and vip_length are both given; pass one of them")
        if torch.onnx.is_in_onnx_export():
            raise UsageError(
                "ONNX has no operator for a compressed layer's cut through the tree; torch.export keeps it (with one "
                "program for each length), and vcc.unwrap(model) gives the untouched model, which ONNX takes"
            )
        vip_mask = with_virtual_tokens(vip_mask, inputs.get("inputs_embeds"))
        if not self.takes(inputs):
            self.last_report = ()
            return self.hf_class.forward(self, **inputs, return_dict=True)
        places = token_places(inputs)
        if vip_mask is not None:
            check_mask(vip_mask, places, "vip_mask")
        short, extent = self.short_inputs(host, inputs, places)
        if not torch.compiler.is_compiling():
            self.last_report = ()
            self.inputs_read += len(short)
            self.inputs_compressed += short.count(False)
        vips: dict[str, Any] = {"vip_mask": vip_mask, "vip_length": vip_length, "vip_rule": vip_rule}
        if all(short) and (extent is None or host.longest is None or places.shape[1] <= host.longest):
            return self.hf_class.forward(self, **inputs, return_dict=True)
        if extent is None or not any(short):
            return self.compressed(host, inputs, **vips)

        def compressed(rows: Tensor) -> Any:
            if self.compiled_graphs is None or self.wants("output_hidden_states", inputs):
                some = some_rows(inputs, rows, places.shape), some_rows(vips, rows, places.shape)
                return self.compressed(host, some[0], **some[1])
            # A graph for every number of long inputs would have to be compiled: all are read, some in vain.
            return ModelOutput(some_rows(self.compressed(host, inputs, **vips), rows, places.shape))

        dense = lambda given: self.hf_class.forward(self, **given, return_dict=True)
        found = host.output(*read_apart(inputs, inputs["attention_mask"] != 0, extent, short, dense, compressed))
        kept = tuple(i for i, one in enumerate(short) if not one)
        reports: tuple[LayerReport, ...] = self.last_report  # of the compressed part
        self.last_report = tuple(replace(report, examples=kept) for report in reports)
        return found

    def compressed(
        self,
        host: FamilyHost,
        inputs: dict[str, Any],
        vip_mask: Tensor | None,
        vip_length: int | Tensor | None,
        vip_rule: str | None,
    ) -> Any:
        """The family's output of a batch that is compressed as a whole."""
        if inputs.get("past_key_values") is not None:
            raise ValueError(
                "past_key_values: a compressed encoder has no keys and values of tokens before its input, as prefix "
                "tuning adds them; prompt tuning and P-tuning add tokens, and work"
            )
        if self.wants("output_attentions", inputs) and not self.before_decoder:
            raise ValueError(
                "output_attentions=True: a compressed layer attends between rows, not tokens, so there is no "
                "token-by-token attention to return; model.vcc_report() tells what each layer opened"
            )
        places = token_places(inputs)
        if exporting() and not isinstance(places.shape[1], int):
            raise UsageError(
                "torch.export: the length of the input cannot be dynamic, because the shape of the tree follows from "
                "it; export one program for each length that inputs are padded to. The batch can be dynamic"
            )
        mask = inputs.get("attention_mask")
        if mask is None:
            mask = torch.ones_like(places)
        check_mask(mask, places, "attention_mask")
        real = mask != 0
        vips = self.find_vips(vip_mask, vip_length, vip_rule, inputs, real)
        wanted = self.wants("output_hidden_states", inputs)
        if self.compiled_graphs is not None and not wanted and not torch.compiler.is_compiling():
            self.last_report = ()
            return host.output(self.compiled_graphs(self, inputs, real, vips), None)
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
        first, last = self.encode_inputs(inputs, real, vips, self.vcc_settings, watch if watching else None)
        if not torch.compiler.is_compiling():
            self.last_report = tuple(reports)
        if not wanted:
            return host.output(last, None)
        if states[-1] is not None:
            states[-1] = last
        return host.output(last, (first, *states) if some is None else tuple(states))

    def encode_inputs(
        self,
        inputs: Inputs,
        real: Tensor,
        vips: Tensor,
        settings: VccConfig,
        watch: Callable[[Step], None] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Embeddings and last hidden states (B, n, D) of a long input."""
        host = self.host
        rows = self.embed(inputs, real, vips, settings)
        return rows.hidden, host.finish(encode(host, rows, vips, settings, watch).hidden)

    def embed(self, inputs: Inputs, real: Tensor, vips: Tensor, settings: VccConfig) -> Rows:
        """The tokens of a long input, before the first layer."""
        hidden = self.host.embed(inputs, own_places(vips & real, real) if settings.vip_window == "own" else None)
        # Counts of type bool let every later shape be known to a compiler, which an exported program wants to be free.
        counts = real.to(torch.float32) if exporting() else real
        return Rows(hidden, counts, token_places(inputs).to(torch.float32))

    def wants(self, name: str, inputs: Inputs) -> Any:
        """Whether an optional output is asked for, by an argument or by the configuration."""
        given = inputs.get(name)
        return getattr(self.config, name) if given is None else given

    def takes(self, inputs: Inputs) -> bool:
        """Whether this is an encoder's input; else Hugging Face's own forward runs it or says what is wrong."""
        one_of_both = (inputs.get("input_ids") is None) != (inputs.get("inputs_embeds") is None)
        return one_of_both and not getattr(self.config, "is_decoder", False)

    def short_inputs(self, host: FamilyHost, inputs: Inputs, places: Tensor) -> tuple[tuple[bool, ...], Extent | None]:
        """Which inputs of the batch are too short to gain from compression, so that the untouched forward takes them,
        and where each lies in its row, if that was looked at. Nobody can look in a graph that is being compiled: there
        the width of the batch decides for all."""
        n, mask, below = places.shape[1], inputs.get("attention_mask"), self.vcc_settings.dense_below
        rule = places.device.type, self.compiled_graphs is not None

        def is_short(length: int) -> bool:
            if host.longest is not None and length > host.longest:
                return False  # the untouched model has no positions for it
            if below == "auto":
                return not worth_compressing(length, self.vcc_settings, *rule)
            return length < below

        if torch.compiler.is_compiling():
            return (is_short(n),), None
        if mask is None or below == 0 or is_short(n):
            return (is_short(n),) * len(places), None
        check_mask(mask, places, "attention_mask")
        extent = Extent.of(mask != 0, self.family.positions not in ("table", "sinusoids"))
        return tuple(map(is_short, extent.lengths)), extent

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
        return vips_by_rule(rule, inputs.get("input_ids"), real, self.config, self.family)


def named(model: Wrapped, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments by name."""
    return {**dict(zip(model.forward_names, args, strict=False)), **kwargs}


def exporting() -> bool:
    """Whether `torch.export` is at work, with its default `strict=False`. While torch 2.11 compiles, it says that it
    exports."""
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


def find_encoder(model: Any) -> LongInputEncoder:
    return next(module for module in model.modules() if isinstance(module, LongInputEncoder))


def places_and_types(model: Any) -> set[tuple[torch.device, torch.dtype]]:
    return {(parameter.device, parameter.dtype) for parameter in model.parameters()}


# Wrapped model -> the one it was made of, if that is still in use; filled by `vcc.wrap`.
SHARED: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

# Hugging Face class -> wrapped class, of configurations, models and layers alike; filled by `vcc.hosts.register`.
CLASSES: dict[type, type] = {}


def install(model: Any) -> None:
    """Turn the modules inside `model` into wrapped ones, with the settings of their configuration."""
    for module in model.modules():
        if type(module) in CLASSES and not decodes(module):
            module.__class__ = CLASSES[type(module)]
        if isinstance(module, LongInputEncoder):
            settings = VccConfig.from_dict(getattr(module.config, "vcc", None) or {})
            module.vcc_settings = settings.resolved(module.host.num_layers)
            module.before_decoder = model.has_decoder
            for config in {id(c): c for c in (module.config, model.config)}.values():
                config.vcc = module.vcc_settings.to_dict()


def decodes(module: Any) -> bool:
    """T5 builds its decoder from the classes of its encoder."""
    return bool(module.__dict__.get("is_decoder", False))
