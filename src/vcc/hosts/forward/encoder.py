"""`LongInputEncoder`: the class mixed into the Hugging Face module that owns the encoder layers.

It adds `vip_mask` and `vip_length` to the forward, sends long inputs through `vcc.encode`, and leaves short ones to
Hugging Face.
"""

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from vcc.config import VccConfig
from vcc.core.rows import Rows
from vcc.encode import Step, Watch, encode
from vcc.errors import UsageError
from vcc.hosts.families import Family
from vcc.hosts.families.host import FamilyHost, Inputs, token_places
from vcc.hosts.forward.mixed import read_mixed, some_rows
from vcc.hosts.forward.reports import Watcher
from vcc.hosts.forward.request import LongInput, Request, exporting, named
from vcc.hosts.forward.route import CompressedRoute, DenseRoute, MixedRoute, Route, route
from vcc.hosts.forward.vip_rules import first_tokens, own_places, vips_by_rule
from vcc.hosts.forward.wrapped import EncoderState, Wrapped


class LongInputEncoder(Wrapped):
    """The module that owns the layers. Long inputs go through `encode`, short ones through the untouched forward."""

    host_class: ClassVar[type[FamilyHost]]
    family: ClassVar[Family]
    vcc_state: EncoderState

    @property
    def host(self) -> FamilyHost:
        return self.host_class(self, self.family)

    def begin_state(self, has_decoder: bool) -> None:
        kept = getattr(self.config, "vcc", None)
        settings = VccConfig.from_dict({} if kept is None else kept).resolved(self.host.num_layers)
        self.vcc_state = EncoderState(settings, has_decoder)
        self.config.vcc = settings.to_dict()

    @can_return_tuple
    def forward(
        self,
        *args: Any,
        vip_mask: Tensor | None = None,
        vip_length: int | Tensor | None = None,
        vip_rule: str | None = None,
        **kwargs: Any,
    ) -> Any:
        if torch.onnx.is_in_onnx_export():
            raise UsageError(
                "ONNX is not supported: it has no operator for the cut. Use torch.export (one "
                "program for each length), or export the untouched model, vcc.unwrap(model), to ONNX"
            )
        inputs: dict[str, Any] = named(self.forward_names, args, kwargs)
        if not self.takes(inputs):
            self.vcc_state.report = ()
            return self.dense(inputs)
        passed = self.vcc_state.from_head
        if passed is not None:
            vip_mask, vip_length, vip_rule = passed.vip_mask, passed.vip_length, passed.vip_rule
        request = Request.of(inputs, vip_mask, vip_length, vip_rule)
        chosen = route(request, self.vcc_state.settings, self.host, self.vcc_state.graphs is not None)
        if not torch.compiler.is_compiling():  # a compiled graph counts and reports nothing
            self.vcc_state.begin(len(request.tokens), compressed_inputs(chosen))
        if isinstance(chosen, DenseRoute):
            return self.dense(inputs)
        if isinstance(chosen, CompressedRoute):
            return self.compressed(request, chosen.real)
        return self.mixed(request, chosen)

    def takes(self, inputs: Inputs) -> bool:
        """Whether this is an encoder's input; if not, Hugging Face's own forward runs it or raises."""
        one_of_both = (inputs.get("input_ids") is None) != (inputs.get("inputs_embeds") is None)
        return one_of_both and not getattr(self.config, "is_decoder", False)

    def dense(self, inputs: Inputs) -> Any:
        """The output of Hugging Face's own forward."""
        return self.hf_class.forward(self, **inputs, return_dict=True)

    def mixed(self, request: Request, chosen: MixedRoute) -> Any:
        """The family's output of a batch of which some inputs are compressed."""
        # One graph per number of long inputs would have to be compiled: compress all, and drop the short ones.
        all_of_them = self.vcc_state.graphs is not None and not self.wants("output_hidden_states", request.inputs)

        def read_long(rows: Tensor) -> Any:
            if all_of_them:
                found = self.compressed(request, chosen.real)
                return ModelOutput(some_rows(found, rows, request.tokens.shape))
            return self.compressed(request.rows(rows), chosen.real[rows])

        output = self.host.output(
            *read_mixed(request.inputs, chosen.real, chosen.extent, chosen.short, self.dense, read_long)
        )
        examples = tuple(index for index, short in enumerate(chosen.short) if not short)
        self.vcc_state.report = tuple(replace(layer, examples=examples) for layer in self.vcc_state.report)
        return output

    def compressed(self, request: Request, real: Tensor) -> Any:
        """The family's output of a batch that is compressed as a whole; `real` (B, n) is False for padding."""
        inputs, host, state = request.inputs, self.host, self.vcc_state
        if self.wants("output_attentions", inputs) and not state.before_decoder:
            raise ValueError(
                "output_attentions=True: a compressed layer attends between rows, not tokens, so there is no "
                "token-by-token attention to return; model.vcc_report() shows what each layer opened"
            )
        batch = LongInput(inputs, real, self.find_vips(request, real))
        wanted, compiling = self.wants("output_hidden_states", inputs), torch.compiler.is_compiling()
        if state.graphs is not None and not wanted and not compiling:
            return host.output(state.graphs(self, batch), None)
        if compiling and not wanted:
            return host.output(self.encode_inputs(batch, state.settings)[1], None)
        watcher = Watcher(real.shape[1], wanted)

        def watch(step: Step) -> None:
            watcher(step)
            if state.openings is not None and step.cut is not None and step.tree is not None:
                state.openings.add(step.cut, step.tree)

        first, last = self.encode_inputs(batch, state.settings, watch)
        if not compiling:
            state.report = tuple(watcher.reports)
        return host.output(last, watcher.hidden_states(first, last))

    def encode_inputs(self, batch: LongInput, settings: VccConfig, watch: Watch | None = None) -> tuple[Tensor, Tensor]:
        """Embeddings and last hidden states (B, n, D)."""
        host = self.host
        rows = self.embed(batch, settings)
        return rows.hidden, host.finish(encode(host, rows, batch.vips, settings, watch).hidden)

    def embed(self, batch: LongInput, settings: VccConfig) -> Rows:
        """The tokens before the first layer."""
        real, vips = batch.real, batch.vips
        hidden = self.host.embed(batch.inputs, own_places(vips & real, real) if settings.vip_window == "own" else None)
        # Bool counts fix every later shape for a compiler; an exported program must leave them free.
        counts = real.to(torch.float32) if exporting() else real
        return Rows(hidden, counts, token_places(batch.inputs).to(torch.float32))

    def find_vips(self, request: Request, real: Tensor) -> Tensor:
        """(B, n) the VIPs, by the caller's mask or length, or by the head's rule."""
        if request.vip_mask is not None:
            return request.vip_mask != 0
        if request.vip_length is not None:
            return first_tokens(request.vip_length, real)
        return vips_by_rule(request.vip_rule, request.inputs.get("input_ids"), real, self.config, self.family)

    def wants(self, name: str, inputs: Inputs) -> Any:
        """Whether an optional output is requested, by an argument or the configuration."""
        given = inputs.get(name)
        return getattr(self.config, name) if given is None else given


def compressed_inputs(chosen: Route) -> int:
    """How many inputs of a batch are compressed."""
    if isinstance(chosen, MixedRoute):
        return chosen.short.count(False)
    return len(chosen.real) if isinstance(chosen, CompressedRoute) else 0


def find_encoder(model: Any) -> LongInputEncoder:
    return next(module for module in model.modules() if isinstance(module, LongInputEncoder))
