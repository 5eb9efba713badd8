"""Under cross-attention, trees by position or by key: which loses less at the same budget?

    python -m benchmarks.cross_order

The weights of T5 are random and sharpened, because no trained T5 can be had without a network (`--model` takes one), so
that the order of the two can be told from this, not the size of the loss: that is the mean absolute difference of the
probabilities of the next token from the dense model's, over tokens that both were given.
"""

import sys
from typing import Annotated, Any

import torch
from transformers import AutoModelForSeq2SeqLM, EncoderDecoderCache, T5Config, T5ForConditionalGeneration

import vcc
from vcc.commands.options import call


def random_t5(sharper: float) -> Any:
    config = T5Config(d_model=256, d_kv=32, d_ff=512, num_heads=8, num_layers=4, decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "EncDecAttention.q" in name or "EncDecAttention.k" in name:
                parameter.mul_(sharper)
    return model


@torch.inference_mode()
def probabilities(model: Any, encoded: Any, written: torch.Tensor, cache: EncoderDecoderCache | None) -> torch.Tensor:
    """(tokens, vocabulary) of the next token, after each that was written, one by one."""
    found = []
    for token in written.split(1, 1):
        out = model(encoder_outputs=encoded, decoder_input_ids=token, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        found.append(out.logits[:, -1].softmax(-1))
    return torch.cat(found)


def cross_order(
    model: Annotated[str | None, "folder of a trained T5, BART or Pegasus; unless given, random weights"] = None,
    tokens: Annotated[int, "that the encoder reads"] = 4096,
    written: Annotated[int, "tokens of the decoder"] = 16,
    sharper: Annotated[float, "times the random weights of queries and keys"] = 3.0,
    texts: Annotated[int, "random ones"] = 4,
) -> None:
    """Compare the orders of trees under cross-attention."""
    dense = AutoModelForSeq2SeqLM.from_pretrained(model).eval() if model else random_t5(sharper)
    small = vcc.VccConfig(scales=(16, 1), budget=(32,), window=512, window_layers=1, dense_below=0)
    print("| encoder | order | opened | rows | mean difference |\n|---|---|---|---|---|")
    for encoder in ("dense", "compressed"):
        whole = dense if encoder == "dense" else vcc.wrap(dense, small)
        for order in ("position", "key"):
            for opened in (8, 32):
                wrapped: Any = vcc.wrap(whole, vcc.DecoderConfig(order=order, budget=opened))
                lost, rows = [], []
                for seed in range(texts):
                    draw = torch.Generator().manual_seed(seed)
                    ids = torch.randint(3, 32000, (1, tokens), generator=draw)
                    start = torch.randint(3, 32000, (1, written), generator=draw)
                    with torch.inference_mode():
                        encoded = whole.get_encoder()(ids)
                    cache = wrapped.new_cache()
                    ours = probabilities(wrapped, encoded, start, cache)
                    lost.append(float((ours - probabilities(whole, encoded, start, None)).abs().sum(1).mean()))
                    trees = cache.cross_attention_cache.layers
                    rows.append(sum(float(tree.rows_read) / tree.queries for tree in trees) / len(trees))
                mean, read = sum(lost) / texts, sum(rows) / texts
                print(f"| {encoder} | {order} | {opened} | {read:,.0f} of {tokens:,} | {mean:.4f} |", flush=True)


if __name__ == "__main__":
    sys.exit(call(cross_order, sys.argv[1:], "cross_order"))
