"""The table of decoder families with standard attention. It does not import Hugging Face's libraries."""

from dataclasses import dataclass

from vcc.hosts import PREFIX


@dataclass(frozen=True)
class DecoderFamily:
    """A family whose layers pass rotated keys and values to the cache and then to the attention function."""

    model_type: str
    causal_lm: str  # Hugging Face's class with a language modelling head


DECODERS: tuple[DecoderFamily, ...] = (
    DecoderFamily("llama", "LlamaForCausalLM"),  # and SmolLM2, Llama 3
    DecoderFamily("mistral", "MistralForCausalLM"),
    DecoderFamily("qwen2", "Qwen2ForCausalLM"),
    DecoderFamily("qwen3", "Qwen3ForCausalLM"),
    DecoderFamily("gemma3_text", "Gemma3ForCausalLM"),  # layers with sliding windows stay as they are
)


def find_decoder(model_type: str | None) -> DecoderFamily | None:
    """The row of a model type, wrapped ("vcc-llama") or not; None if there is none."""
    plain = (model_type or "").removeprefix(PREFIX)
    return next((family for family in DECODERS if family.model_type == plain), None)
