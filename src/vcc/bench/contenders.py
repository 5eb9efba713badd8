"""Who is in the race: our wrapped models and the long-document models of Hugging Face, with random weights."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers as hf
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.led.modeling_led import LEDEncoder

from vcc.baselines.block_models import use_blocks
from vcc.baselines.patterns import BigBird, Mra, Pattern
from vcc.config import VccConfig
from vcc.hosts.compile import compile_seconds
from vcc.hosts.wrap import wrap

PADDING = 13  # tokens at the end of our input, so that its padding is real and its length is not a round one
DENSE = ("roberta", "bert")  # what ratios are to: the first of them in the run


@dataclass(frozen=True)
class Size:
    """The size of a model, the same for everyone in a run."""

    layers: int
    width: int
    heads: int
    inner: int  # of the feed-forward layer
    words: int = 32_128


SIZES = {
    "base": Size(12, 768, 12, 3072),
    "minilm": Size(6, 384, 12, 1536),
    "tiny": Size(3, 32, 4, 64, 200),  # says nothing about speed; for trying the command
}


def bert_like(size: Size, positions: int, **more: Any) -> dict[str, Any]:
    own = {"vocab_size": size.words, "hidden_size": size.width, "intermediate_size": size.inner}
    own |= {"num_hidden_layers": size.layers, "num_attention_heads": size.heads}
    return own | {"max_position_embeddings": positions} | more


def t5_like(size: Size, **more: Any) -> dict[str, Any]:
    own = {"vocab_size": size.words, "d_model": size.width, "d_kv": size.width // size.heads, "d_ff": size.inner}
    return own | {"num_layers": size.layers, "num_heads": size.heads} | more


def led_like(size: Size, n: int) -> dict[str, Any]:
    """Half of the layers are the decoder's, which is not timed. The model pads its input to whole windows itself."""
    own = {"vocab_size": size.words, "d_model": size.width, "encoder_ffn_dim": size.inner, "attention_window": 1024}
    own |= {"encoder_layers": max(1, size.layers // 2), "encoder_attention_heads": size.heads}
    return own | {"max_encoder_position_embeddings": up_to(1024, n)}


def modernbert_like(size: Size, n: int) -> dict[str, Any]:
    """Its feed-forward layer is gated and, as in its own base model, three eighths as wide."""
    words = {"pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2, "sep_token_id": 2}
    return bert_like(size, n, **words) | {"intermediate_size": size.inner * 3 // 8}


def up_to(step: int, n: int) -> int:
    return -(-n // step) * step


@dataclass(frozen=True)
class Contender:
    """A kind of model in the race."""

    model: Any
    config: Any
    options: Callable[[Size, int], dict[str, Any]]  # of the configuration, by size and tokens
    attention: str  # its pattern
    ours: bool = False
    global_first: bool = False  # wants to be told which tokens see everything: the first
    pattern: Pattern | None = None  # of the block attention that is put into it


PEERS = {
    "roberta": Contender(hf.RobertaModel, hf.RobertaConfig, lambda size, n: bert_like(size, n + 2), "full"),
    "bert": Contender(hf.BertModel, hf.BertConfig, bert_like, "full"),
    "t5": Contender(hf.T5EncoderModel, hf.T5Config, lambda size, n: t5_like(size), "full"),
    "longt5-local": Contender(hf.LongT5EncoderModel, hf.LongT5Config, lambda size, n: t5_like(size), "local"),
    "longt5-global": Contender(
        hf.LongT5EncoderModel,
        hf.LongT5Config,
        lambda size, n: t5_like(size, encoder_attention_type="transient-global"),
        "transient-global",
    ),
    "led": Contender(LEDEncoder, hf.LEDConfig, led_like, "window 1024 + global", global_first=True),
    "longformer": Contender(
        hf.LongformerModel,
        hf.LongformerConfig,
        lambda size, n: bert_like(size, n + 2, attention_window=512),
        "window 512 + global",
        global_first=True,
    ),
    "bigbird": Contender(
        hf.BigBirdModel, hf.BigBirdConfig, lambda size, n: bert_like(size, up_to(64, n)), "block-sparse"
    ),
    "bigbird-blocks": Contender(
        hf.RobertaModel,
        hf.RobertaConfig,
        lambda size, n: bert_like(size, n + 2),
        "block-sparse, ours",
        pattern=BigBird(),
    ),
    "mra": Contender(
        hf.RobertaModel, hf.RobertaConfig, lambda size, n: bert_like(size, n + 2), "multi-resolution", pattern=Mra()
    ),
    "modernbert": Contender(hf.ModernBertModel, hf.ModernBertConfig, modernbert_like, "full and local"),
}
OURS = {f"vcc-{name}": replace(PEERS[name], ours=True) for name in ("roberta", "t5", "modernbert", "bert")}
CONTENDERS = OURS | PEERS


def reading(n: int) -> tuple[int, VccConfig]:
    """VIPs and settings with which VCC reads n tokens, as in the paper; it compresses however short the input is."""
    vips = min(288, n // 8) if n <= 8_192 else 32 if n <= 65_536 else 48
    config = VccConfig(budget=(80 if n <= 8_192 else 90,), dense_below=0)
    if n > 262_144:
        config = replace(config, scales=(256, 16, 1), budget=(40, 90))
    return vips, replace(config, max_vips=up_to(32, vips))  # so that nothing waits for the device to count them


def build(name: str, size: Size, n: int, dropout: float, dtype: torch.dtype, device: torch.device) -> Any:
    """A model with random weights and positions for n tokens."""
    contender = CONTENDERS[name]
    config = contender.config(**contender.options(size, n))
    for option, value in config.to_dict().items():
        if "dropout" in option and isinstance(value, (int, float)):
            setattr(config, option, dropout)
    with device:
        model = contender.model._from_config(config, dtype=dtype)
    if contender.pattern is not None:
        use_blocks(model, contender.pattern)
    return wrap(model, reading(n)[1]) if contender.ours else model


def inputs(name: str, model: Any, batch: int, n: int, ragged: float, device: torch.device) -> dict[str, Tensor]:
    """Random tokens (B, n). The rows' lengths fall evenly from n to n (1 - ragged).

    Ours always has padding. The others have it, and a mask, in a ragged batch only: without, SDPA runs its fastest
    kernel, compiled or not.
    """
    contender = CONTENDERS[name]
    ids = torch.randint(5, model.config.vocab_size, (batch, n), generator=torch.Generator().manual_seed(0))
    fall = torch.arange(batch) / max(batch - 1, 1)
    lengths = (n * (1 - ragged * fall)).round().clamp(1, n - PADDING * contender.ours)
    place = torch.arange(n).expand(batch, n)
    real = place < lengths[:, None]
    given = {"input_ids": ids.masked_fill(~real, model.config.pad_token_id)}
    if not bool(real.all()):
        given["attention_mask"] = real.long()
    if contender.ours:
        given["vip_mask"] = (place < reading(n)[0]).long()
    if contender.global_first:
        given["global_attention_mask"] = (place == 0).long()
    return {key: value.to(device) for key, value in given.items()}


class Kernels(TorchDispatchMode):
    """Notes which fused attention kernels run: a configuration says only what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = op._schema.name
        if name.startswith("vcc::attention"):
            self.seen.add("triton")
        elif name.startswith("aten::_scaled_dot_product") and "backward" not in name:
            self.seen.add("sdpa " + name.removeprefix("aten::_scaled_dot_product_").partition("_attention")[0])
        return op(*args, **(kwargs or {}))


def attention_of(name: str, model: Any, seen: set[str] | None) -> str:
    """The attention that ran: its pattern, then the kernels that were seen; None: compiled, nobody could look."""
    pattern = CONTENDERS[name].attention
    if CONTENDERS[name].ours:
        ran = model.vcc_report() or compile_seconds(model)
        pattern = "compressed" if ran else f"{pattern} (not compressed)"
    if name == "bigbird" and model.attention_type != "block_sparse":  # it gives up at the first short input, for good
        pattern = "full (fell back)"
    unseen = "sdpa math" if model.config._attn_implementation == "sdpa" else "eager"
    return f"{pattern}, {'compiled' if seen is None else ' + '.join(sorted(seen)) or unseen}"
