"""Who is in the race: our wrapped models and the long-document models of Hugging Face, with random weights."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch
import transformers as hf
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.led.modeling_led import LEDEncoder

from vcc.checkout import has_research, research
from vcc.config import VccConfig
from vcc.hosts.compiled.compile import compile_seconds
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
    head: int | None = None  # the width of a head, where it is not that of the model divided among them


SIZES = {
    "base": Size(12, 768, 12, 3072),
    "large": Size(24, 1024, 16, 4096),
    "3b": Size(24, 1024, 32, 16384, head=128),  # T5's alone: others have no heads of their own width
    "minilm": Size(6, 384, 12, 1536),
    "tiny": Size(3, 32, 4, 64, 200),  # says nothing about speed; for trying the command
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a model is told apart from its size. None: its own way."""

    part: Annotated[Literal["encoder", "decoder", "whole"], "of encoder-decoders, what is run"] = "encoder"
    target: Annotated[int, "tokens that a decoder writes"] = 128
    scales: Annotated[tuple[int, ...] | None, "ours: tokens per node, coarse to fine, ending in 1"] = None
    budget: Annotated[tuple[int, ...] | None, "ours: nodes opened at each scale but the last"] = None
    vips: Annotated[int | None, "ours: how many of the first tokens are VIPs"] = None
    window_layers: Annotated[int | None, "ours: how many layers run on windows"] = None
    window: Annotated[int | None, "Longformer, LED: tokens that each sees; LongT5: twice its radius"] = None
    block: Annotated[int | None, "BigBird, MRA: tokens of a block; LongT5: of a global one"] = None
    random_blocks: Annotated[int | None, "BigBird: how many blocks each sees at random"] = None
    exact_blocks: Annotated[int | None, "MRA: how many blocks a row are exact"] = None


def bert_like(size: Size, positions: int, **more: Any) -> dict[str, Any]:
    own = {"vocab_size": size.words, "hidden_size": size.width, "intermediate_size": size.inner}
    own |= {"num_hidden_layers": size.layers, "num_attention_heads": size.heads}
    return own | {"max_position_embeddings": positions} | more


def t5_like(size: Size, **more: Any) -> dict[str, Any]:
    own = {"vocab_size": size.words, "d_model": size.width, "d_ff": size.inner}
    own |= {"d_kv": size.head or size.width // size.heads, "decoder_start_token_id": 0}
    return own | {"num_layers": size.layers, "num_heads": size.heads} | more


def led_like(size: Size, n: int) -> dict[str, Any]:
    """Half of the layers are the decoder's. The model pads its input to whole windows itself."""
    half = max(1, size.layers // 2)
    own = {"vocab_size": size.words, "d_model": size.width, "attention_window": 1024, "decoder_start_token_id": 2}
    own |= {"encoder_layers": half, "encoder_attention_heads": size.heads, "encoder_ffn_dim": size.inner}
    own |= {"decoder_layers": half, "decoder_attention_heads": size.heads, "decoder_ffn_dim": size.inner}
    return own | {"max_encoder_position_embeddings": up_to(1024, n)}


def modernbert_like(size: Size, n: int) -> dict[str, Any]:
    """Its feed-forward layer is gated and, as in its own base model, three eighths as wide."""
    words = {"pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2, "sep_token_id": 2}
    return bert_like(size, n, **words) | {"intermediate_size": size.inner * 3 // 8}


def block_pattern(pattern: str, **settings: int | None) -> dict[str, Any]:
    """Block attention of ours, as a configuration asks for it."""
    given = {name: value for name, value in settings.items() if value is not None}
    made = baselines("patterns").PATTERNS[pattern](**given)
    return {baselines("block_models").KEY: made.to_dict()}


def baselines(module: str) -> Any:
    return research(f"baselines.{module}", f"a model of {', '.join(BLOCKS)}")


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
    whole: Any = None  # of an encoder-decoder, the class of all of it
    in_blocks: bool = False  # its attention is one of the research code's, which only a checkout has
    # Of its configuration, by how it is told to attend; what stands there as None is left as it is.
    tuned: Callable[[Options], dict[str, Any]] = lambda options: {}


PEERS = {
    "roberta": Contender(hf.RobertaModel, hf.RobertaConfig, lambda size, n: bert_like(size, n + 2), "full"),
    "bert": Contender(hf.BertModel, hf.BertConfig, bert_like, "full"),
    "t5": Contender(
        hf.T5EncoderModel,
        hf.T5Config,
        lambda size, n: t5_like(size),
        "full",
        whole=hf.T5ForConditionalGeneration,
    ),
    "longt5-local": Contender(
        hf.LongT5EncoderModel,
        hf.LongT5Config,
        lambda size, n: t5_like(size),
        "local",
        whole=hf.LongT5ForConditionalGeneration,
        tuned=lambda options: {"local_radius": options.window and options.window // 2 - 1},
    ),
    "longt5-global": Contender(
        hf.LongT5EncoderModel,
        hf.LongT5Config,
        lambda size, n: t5_like(size, encoder_attention_type="transient-global"),
        "transient-global",
        whole=hf.LongT5ForConditionalGeneration,
        tuned=lambda options: {
            "local_radius": options.window and options.window // 2 - 1,
            "global_block_size": options.block,
        },
    ),
    "led": Contender(
        LEDEncoder,
        hf.LEDConfig,
        led_like,
        "window {attention_window} + global",
        global_first=True,
        whole=hf.LEDForConditionalGeneration,
        tuned=lambda options: {"attention_window": options.window},
    ),
    "longformer": Contender(
        hf.LongformerModel,
        hf.LongformerConfig,
        lambda size, n: bert_like(size, n + 2, attention_window=512),
        "window {attention_window} + global",
        global_first=True,
        tuned=lambda options: {"attention_window": options.window},
    ),
    "bigbird": Contender(
        hf.BigBirdModel,
        hf.BigBirdConfig,
        lambda size, n: bert_like(size, up_to(64, n)),
        "block-sparse",
        tuned=lambda options: {"block_size": options.block, "num_random_blocks": options.random_blocks},
    ),
    "bigbird-blocks": Contender(
        hf.RobertaModel,
        hf.RobertaConfig,
        lambda size, n: bert_like(size, n + 2),
        "block-sparse (ours)",
        in_blocks=True,
        tuned=lambda options: block_pattern("bigbird", block=options.block, random=options.random_blocks),
    ),
    "mra": Contender(
        hf.RobertaModel,
        hf.RobertaConfig,
        lambda size, n: bert_like(size, n + 2),
        "multi-resolution (ours)",
        in_blocks=True,
        tuned=lambda options: block_pattern("mra", block=options.block, per_row=options.exact_blocks),
    ),
    "modernbert": Contender(hf.ModernBertModel, hf.ModernBertConfig, modernbert_like, "full and local"),
}
OURS = {f"vcc-{name}": replace(PEERS[name], ours=True) for name in ("roberta", "t5", "modernbert", "bert")}
CONTENDERS = OURS | PEERS
BLOCKS = [name for name, contender in CONTENDERS.items() if contender.in_blocks]
OFFERED = [name for name in CONTENDERS if has_research() or name not in BLOCKS]


def reading(n: int, options: Options = Options()) -> tuple[int, VccConfig]:  # noqa: B008  it is frozen
    """VIPs and settings with which VCC reads n tokens, as in the paper unless the options say otherwise; it compresses
    however short the input is."""
    vips = min(288, n // 8) if n <= 8_192 else 32 if n <= 65_536 else 48
    config = VccConfig(budget=(80 if n <= 8_192 else 90,), dense_below=0)
    if n > 262_144:
        config = replace(config, scales=(256, 16, 1), budget=(40, 90))
    vips = vips if options.vips is None else min(options.vips, n)
    given = {name: getattr(options, name) for name in ("scales", "budget", "window_layers")}
    config = replace(config, **{name: value for name, value in given.items() if value is not None})
    return vips, replace(config, max_vips=up_to(32, vips))  # so that nothing waits for the device to count them


def build(
    name: str,
    size: Size,
    n: int,
    dropout: float,
    dtype: torch.dtype,
    device: torch.device,
    options: Options = Options(),  # noqa: B008  it is frozen
) -> Any:
    """A model with random weights and positions for n tokens."""
    contender = CONTENDERS[name]
    tuned = {key: value for key, value in contender.tuned(options).items() if value is not None}
    config = contender.config(**contender.options(size, n) | tuned)
    for option, value in config.to_dict().items():
        if "dropout" in option and isinstance(value, (int, float)):
            setattr(config, option, dropout)
    whole = has_decoder(name) and options.part != "encoder"
    with device:
        model = (contender.whole if whole else contender.model)._from_config(config, dtype=dtype)
    if contender.in_blocks:
        model = baselines("block_models").restore_blocks(model)
    return wrap(model, reading(n, options)[1]) if contender.ours else model


def has_decoder(name: str) -> bool:
    return CONTENDERS[name].whole is not None


def inputs(
    name: str,
    model: Any,
    batch: int,
    n: int,
    ragged: float,
    device: torch.device,
    options: Options = Options(),  # noqa: B008  it is frozen
) -> dict[str, Any]:
    """Random tokens (B, n). The rows' lengths fall evenly from n to n (1 - ragged). Where there is a decoder, random
    tokens to write (B, t); where it is run alone, random states of the encoder (B, n, D), to which gradients flow.

    Ours always has padding. The others have it, and a mask, in a ragged batch only: without, SDPA runs its fastest
    kernel, compiled or not.
    """
    contender = CONTENDERS[name]
    ids = torch.randint(5, model.config.vocab_size, (batch, n), generator=torch.Generator().manual_seed(0))
    fall = torch.arange(batch) / max(batch - 1, 1)
    lengths = (n * (1 - ragged * fall)).round().clamp(1, n - PADDING * contender.ours)
    place = torch.arange(n).expand(batch, n)
    real = place < lengths[:, None]
    given: dict[str, Any] = {"input_ids": ids.masked_fill(~real, model.config.pad_token_id)}
    if not bool(real.all()):
        given["attention_mask"] = real.long()
    if contender.ours:
        given["vip_mask"] = (place < reading(n, options)[0]).long()
    if contender.global_first:
        given["global_attention_mask"] = (place == 0).long()
    given = {key: value.to(device) for key, value in given.items()}
    if has_decoder(name) and options.part != "encoder":
        given["labels"] = torch.randint(5, model.config.vocab_size, (batch, options.target), device=device)
    if options.part == "decoder":
        states = torch.randn(batch, n, model.config.hidden_size, dtype=model.dtype, device=device, requires_grad=True)
        kept = {key: value for key, value in given.items() if key in ("attention_mask", "labels")}
        return {"encoder_outputs": BaseModelOutput(states), **kept}  # type: ignore[arg-type]
    return given


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


def widest(config: Any) -> int | None:
    """The attention window, which some have one of for each layer."""
    window = getattr(config, "attention_window", None)
    return max(window) if isinstance(window, list) else window


def attention_of(name: str, model: Any, seen: set[str] | None) -> str:
    """The attention that ran: its pattern, then the kernels that were seen; None: compiled, nobody could look."""
    pattern = CONTENDERS[name].attention.format(attention_window=widest(model.config))
    if CONTENDERS[name].ours:
        ran = model.vcc_report() or compile_seconds(model)
        pattern = "compressed" if ran else f"{pattern} (not compressed)"
    if name == "bigbird" and model.attention_type != "block_sparse":  # it gives up at the first short input, for good
        pattern = "full (fell back)"
    if name == "bigbird" and model.config.block_size != 64:
        pattern += f", blocks of {model.config.block_size}"
    unseen = "sdpa math" if model.config._attn_implementation == "sdpa" else "eager"
    return f"{pattern}, {'compiled' if seen is None else ' + '.join(sorted(seen)) or unseen}"
