"""The classes mixed into the models around an encoder: they pass `vip_mask` and `vip_length` on to it."""

from functools import partial
from typing import Any, ClassVar

from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from vcc.hosts.families import Family
from vcc.hosts.forward.choices import before_document, score_choices
from vcc.hosts.forward.request import named
from vcc.hosts.forward.wrapped import VipArguments, Wrapped, state_of

VIP_NAMES = ("vip_mask", "vip_length")  # parameters that a wrapped forward adds to Hugging Face's


class WithHead(Wrapped):
    """A model around the encoder: it passes the VIPs on, or its head's rule for them."""

    family: ClassVar[Family]
    vip_rule: ClassVar[str | None]

    def forward(
        self,
        *args: Any,
        vip_mask: Tensor | None = None,
        vip_length: int | Tensor | None = None,
        vip_rule: str | None = None,
        choice_tokens: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        inputs: dict[str, Any] = named(self.forward_names, args, kwargs)
        if choice_tokens is not None:
            if vip_mask is None and vip_length is None:
                vip_mask = before_document(choice_tokens, inputs)
            vips = {"vip_mask": vip_mask, "vip_length": vip_length}
            return score_choices(self, partial(self.hf_class.forward, self), inputs, choice_tokens, vips)
        labels = inputs.get("labels")
        if vip_mask is None and vip_length is None and self.vip_rule == "mask" and labels is not None:
            vip_mask = labels != -100
        if vip_mask is not None and vip_mask.ndim == 3:  # multiple choice: one sequence per choice
            vip_mask = vip_mask.flatten(0, 1)
        if isinstance(vip_length, Tensor) and vip_length.ndim == 2:
            vip_length = vip_length.flatten()
        rule = vip_rule or self.vip_rule  # the outer head's rule wins
        if self.family.heads_pass_on:
            return self.hf_class.forward(self, **inputs, vip_mask=vip_mask, vip_length=vip_length, vip_rule=rule)
        state = state_of(self)
        state.from_head = VipArguments(vip_mask, vip_length, rule)
        try:
            return self.hf_class.forward(self, **inputs)
        finally:
            state.from_head = None


class Seq2Seq(Wrapped):
    """An encoder-decoder model: the VIPs go to the encoder alone."""

    vip_rule: ClassVar[str | None]
    has_decoder = True
    get_encoder: Any

    def forward(
        self, *args: Any, vip_mask: Tensor | None = None, vip_length: int | Tensor | None = None, **kwargs: Any
    ) -> Any:
        inputs: dict[str, Any] = named(self.forward_names, args, kwargs)
        if inputs.get("encoder_outputs") is None:
            wanted = ("input_ids", "attention_mask", "inputs_embeds", "output_attentions", "output_hidden_states")
            given = {name: inputs[name] for name in wanted if inputs.get(name) is not None}
            encoded = self.get_encoder()(
                **given, return_dict=True, vip_mask=vip_mask, vip_length=vip_length, vip_rule=self.vip_rule
            )
            # Decoders read a plain BaseModelOutput by name, and any other output by field order.
            inputs["encoder_outputs"] = BaseModelOutput(
                encoded.last_hidden_state, hidden_states=encoded.hidden_states, attentions=encoded.attentions
            )
        return self.hf_class.forward(self, **inputs)

    def _get_candidate_generator(self, *args: Any, **kwargs: Any) -> Any:
        """For assisted generation: an unwrapped assistant takes no VIPs."""
        if not isinstance(kwargs.get("assistant_model"), Wrapped):
            given = kwargs["model_kwargs"]
            kwargs["model_kwargs"] = {name: value for name, value in given.items() if name not in VIP_NAMES}
        return super()._get_candidate_generator(*args, **kwargs)  # type: ignore[misc]
