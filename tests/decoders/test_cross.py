"""Trees under cross-attention: all open is the untouched model; closed nodes count through their means."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    Cache,
    DynamicCache,
    EncoderDecoderCache,
    MT5Config,
    PegasusConfig,
    T5Config,
    T5Gemma2Config,
)

import vcc
from vcc.decoders.cross import CrossLayer, CrossTrees, attend_cross
from vcc.decoders.open_cache import reading
from vcc.errors import ModelError

SIZES: dict[str, Any] = {"vocab_size": 99, "d_model": 32, "pad_token_id": 0, "eos_token_id": 1}
T5: dict[str, Any] = {
    **SIZES,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
BART: dict[str, Any] = {
    **SIZES,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 256,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
CONFIGS: dict[str, Any] = {
    "t5": lambda: T5Config(**T5),
    "mt5": lambda: MT5Config(**T5),
    "bart": lambda: BartConfig(**BART),
    "pegasus": lambda: PegasusConfig(**BART),
}
SMALL: dict[str, Any] = {"scales": (4, 1), "first": 3, "local": 6, "fresh": 8, "piece": 16}
OPEN = vcc.DecoderConfig(**SMALL, budget=1000)
CLOSED = vcc.DecoderConfig(**SMALL, budget=2, spread=0)
WRITE: dict[str, Any] = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}


def tiny(family: str, attention: str = "sdpa") -> Any:
    torch.manual_seed(0)
    model = AutoModelForSeq2SeqLM.from_config(CONFIGS[family](), attn_implementation=attention).double().eval()
    with torch.no_grad():  # sharp enough for closing a node to show
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(2)
    return model


def texts(lengths: tuple[int, ...] = (90, 61)) -> dict[str, Tensor]:
    """A batch of unequal texts, padded on the right."""
    longest, draw = max(lengths), torch.Generator().manual_seed(1)
    ids = torch.randint(3, 99, (len(lengths), longest), generator=draw)
    mask = (torch.arange(longest) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


@pytest.fixture
def through_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all nodes are open dense attention is run instead: here the tree's own is."""
    monkeypatch.setattr(CrossLayer, "reads_all", lambda self, new, tokens_in_tree: False)


def written(model: Any, inputs: dict[str, Tensor], **how: Any) -> Any:
    """What a model generates. Left to itself, transformers gives T5 a cache of as many layers as the encoder has."""
    if not isinstance(model, CrossTrees):
        how["past_key_values"] = EncoderDecoderCache(DynamicCache(), DynamicCache())
    return model.generate(**inputs, **WRITE, **how)


def written_logits(model: Any, inputs: dict[str, Tensor], **how: Any) -> tuple[Tensor, Tensor]:
    out = written(model, inputs, **how, return_dict_in_generate=True, output_logits=True)
    return out.sequences, torch.stack(out.logits)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", CONFIGS)
def test_all_open_is_the_untouched_model(family: str, attention: str, through_the_tree: None) -> None:
    model = tiny(family, attention)
    tokens, logits = written_logits(model, texts())
    own_tokens, own_logits = written_logits(vcc.wrap(model, OPEN), texts())
    assert torch.equal(tokens, own_tokens)
    torch.testing.assert_close(logits, own_logits, rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_all_open_by_the_shortcut_and_by_beams(family: str) -> None:
    model = tiny(family)
    wrapped = vcc.wrap(model, OPEN)
    assert torch.equal(written_logits(model, texts())[0], written_logits(wrapped, texts())[0])
    assert torch.equal(written(model, texts(), num_beams=3), written(wrapped, texts(), num_beams=3))


@pytest.mark.parametrize("family", ["t5", "pegasus"])
def test_beams_all_open_through_the_tree(family: str, through_the_tree: None) -> None:
    model = tiny(family)
    wanted = written(model, texts(), num_beams=3)
    assert torch.equal(wanted, written(vcc.wrap(model, OPEN), texts(), num_beams=3))


def test_closed_nodes_change_the_result_and_fewer_rows_are_read() -> None:
    model = tiny("t5")
    wrapped = vcc.wrap(model, CLOSED)
    assert not torch.equal(written_logits(model, texts())[1], written_logits(wrapped, texts())[1])
    report = wrapped.cross_report()
    assert len(report) == 3
    # 90 tokens: 80 in 20 nodes, of which 2 opened, 10 outside; 61: 48 in 12, 13 outside.
    rows = ((10 + 18 + 8) + (13 + 10 + 8)) / 2
    assert all(layer.keys == 90 and layer.rows == rows for layer in report)


@pytest.mark.parametrize("family", CONFIGS)
def test_a_text_in_a_batch_is_read_as_it_is_alone(family: str) -> None:
    wrapped = vcc.wrap(tiny(family), CLOSED)
    both = texts()
    _, logits = written_logits(wrapped, both)
    alone = {name: part[1:, :61] for name, part in both.items()}
    _, own = written_logits(wrapped, alone)
    torch.testing.assert_close(logits[:, 1:], own, rtol=0, atol=1e-10)


@pytest.mark.parametrize("order", ["position", "key"])
def test_closed_nodes_are_their_tokens_means(order: Any) -> None:
    """Attention over the tree is dense attention over tokens that were replaced by the mean of their node."""
    torch.manual_seed(0)
    k, v, q = (torch.randn(1, 2, n, 8, dtype=torch.float64) for n in (50, 50, 1))
    layer = CrossLayer(vcc.DecoderConfig(**SMALL, budget=3, order=order, spread=0))
    module: Any = torch.nn.Identity()
    module.layer_idx = 0
    with reading(EncoderDecoderCache(DynamicCache(), Cache(layers=[layer]))):
        key, value = layer.update(k, v)
        result, _ = attend_cross("sdpa", module, q, key, value, None, scaling=0.5)
    tree = layer.tree
    assert tree is not None and tree.lengths == (40,)
    for head in range(2):
        nodes = tree.columns[0, head, :40].long().unflatten(0, (-1, 4))
        means = torch.stack([k[0, head, node].mean(0) for node in nodes])
        outside = torch.tensor([c for c in range(50) if c not in set(nodes.flatten().tolist())])
        assert len(outside) == 10
        best = (means @ q[0, head, 0]).topk(3).indices
        seen = [k[0, head].clone(), v[0, head].clone()]
        for number, node in enumerate(nodes):
            if number not in best:
                for part in seen:
                    part[node] = part[node].mean(0)
        weights = (q[0, head, 0] @ seen[0].T * 0.5).softmax(0)
        torch.testing.assert_close(result[0, 0, head], weights @ seen[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_trees_go_with_a_compressed_encoder(family: str, through_the_tree: None) -> None:
    settings = vcc.VccConfig(scales=(4, 1), budget=(4,), window=16, window_layers=1, dense_below=0)
    encoder = vcc.wrap(tiny(family), settings)
    both = vcc.wrap(encoder, OPEN)
    vips = {"vip_mask": (torch.arange(90) < 5).long().expand(2, -1)}
    tokens, logits = written_logits(encoder, texts(), **vips)
    own_tokens, own_logits = written_logits(both, texts(), **vips)
    assert torch.equal(tokens, own_tokens)
    torch.testing.assert_close(logits, own_logits, rtol=0, atol=1e-10)
    assert isinstance(both, CrossTrees) and isinstance(both, type(encoder))


def test_the_model_is_left_alone_and_comes_back() -> None:
    model = tiny("t5")
    before = written(model, texts())
    wrapped = vcc.wrap(model, CLOSED)
    assert type(model).__name__ == type(wrapped).__name__ and not isinstance(model, CrossTrees)
    assert torch.equal(written(model, texts()), before)
    plain = vcc.unwrap(wrapped)
    assert type(plain) is type(model) and plain.config._attn_implementation == "sdpa"
    assert torch.equal(written(plain, texts()), before)
    assert next(plain.parameters()) is next(model.parameters())


def test_what_joins_its_attentions_is_refused() -> None:
    class Joined:
        config = T5Gemma2Config()

    with pytest.raises(ModelError, match="joins the keys"):
        vcc.wrap(Joined(), OPEN)  # type: ignore[type-var]
