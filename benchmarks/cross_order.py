"""Under cross-attention, trees by position or by key: which loses less?

    python -m benchmarks.cross_order prepared out/cross_order --minutes 4

No trained T5 or BART is bundled, so a small BART is trained here to write answers, and kept in the folder. Its encoder
is the bundled model: BERT's layers are BART's. A document is read in windows, each with the question, and the decoder
attends to the states of all windows together. `prepared` is the output of `shipped_model.prepare`.
"""

import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer, BartConfig, BartForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

import vcc
from reproduction.loop import half_precision
from shipped_model.data import Haystack, TokenSets, hide, load, moved
from vcc.commands.options import call
from vcc.data.features import Frame
from vcc.documents.shipped import SHIPPED, load_asker
from vcc.qa.windows import batch, room
from vcc.tasks.metrics import word_f1

WINDOW = 256  # tokens, the question's among them
LONGEST = 24  # tokens of an answer
DECODER_LAYERS = 2
TRAINED_AT = 4  # windows of a document in training
EXAMPLES = 24  # documents in a step
ORDERS: tuple[Literal["position", "key"], ...] = ("position", "key")
LAYER = {  # BART's names of the parts of a BERT layer
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
}


class Asked(NamedTuple):
    """A question in all windows of a document, and the tokens of its answer."""

    windows: list[tuple[Any, Any]]
    answer: Tensor


def documents(data: TokenSets, split: str, windows: int, frame: Frame, seed: int) -> Iterator[Asked]:
    """Paragraphs hidden in other text, without end; the answer is whole in one window at least."""
    names = ("squad11_train", "squad2_train") if split == "train" else ("squad_validation",)
    units = [unit for name in names for unit in data.units[name]]
    chance = random.Random(seed)
    while True:
        unit = chance.choice(units)
        answerable = [question for question in unit.questions if question.spans]
        if not answerable:
            continue
        asked = chance.choice(answerable)
        size = room(asked.ids, frame, WINDOW)
        haystack = Haystack(data.books[split], chance.sample(units, 4 * windows))  # enough, and quick to draw from
        ids, (place,) = hide([unit], haystack, windows * size, chance)
        first, last = moved(asked, place).spans[0]
        if last - first < LONGEST and first // size == last // size < windows:
            pieces = [(asked.ids, ids[at : at + size]) for at in range(0, windows * size, size)]
            yield Asked(pieces, torch.tensor([*ids[first : last + 1].tolist(), *frame.after]))


def small_bart(tokenizer: Any) -> Any:
    """The bundled model as an encoder, and a new decoder."""
    bert = load_asker(str(SHIPPED)).qa.model.bert
    old = bert.config
    config = BartConfig(
        vocab_size=old.vocab_size,
        d_model=old.hidden_size,
        max_position_embeddings=old.max_position_embeddings,
        encoder_layers=old.num_hidden_layers,
        decoder_layers=DECODER_LAYERS,
        encoder_attention_heads=old.num_attention_heads,
        decoder_attention_heads=old.num_attention_heads,
        encoder_ffn_dim=old.intermediate_size,
        decoder_ffn_dim=old.intermediate_size,
        pad_token_id=tokenizer.pad_token_id,
        decoder_start_token_id=tokenizer.cls_token_id,
        forced_eos_token_id=None,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
    )
    model = BartForConditionalGeneration(config)
    encoder, given = model.model.encoder, bert.embeddings
    with torch.no_grad():
        encoder.embed_tokens.weight.copy_(given.word_embeddings.weight)
        # BART has no token types; nearly all tokens have the document's.
        positions = given.position_embeddings.weight + given.token_type_embeddings.weight[1]
        encoder.embed_positions.weight[2:].copy_(positions)  # BART has two unused positions
    encoder.layernorm_embedding.load_state_dict(given.LayerNorm.state_dict())
    for new, layer in zip(encoder.layers, bert.encoder.layer, strict=True):
        for ours, theirs in LAYER.items():
            new.get_submodule(ours).load_state_dict(layer.get_submodule(theirs).state_dict())
    return model


def read(model: Any, asked: Sequence[Asked], frame: Frame) -> tuple[BaseModelOutput, Tensor]:
    """The encoder's states for all windows of each document, concatenated, and their mask."""
    given = batch([pair for one in asked for pair in one.windows], frame)
    ids, mask = given.ids.to(model.device), given.mask.to(model.device)
    states = model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
    together = states.reshape(len(asked), -1, states.shape[-1])
    return BaseModelOutput(last_hidden_state=together), mask.reshape(len(asked), -1)


def train(model: Any, data: TokenSets, frame: Frame, minutes: float) -> None:
    """Train the decoder to write answers, and the encoder a little."""
    encoder = list(model.get_encoder().parameters())
    own = {id(parameter) for parameter in encoder}
    others = [parameter for parameter in model.parameters() if id(parameter) not in own]
    optimizer = torch.optim.AdamW([{"params": encoder, "top": 5e-5}, {"params": others, "top": 1e-3}])
    stream = documents(data, "train", TRAINED_AT, frame, 0)
    start, step, recent = time.perf_counter(), 0, 0.0
    while (done := (time.perf_counter() - start) / (60 * minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = group["top"] * min(1.0, (step + 1) / 100, 2 * (1 - done))
        asked = [next(stream) for _ in range(EXAMPLES)]
        labels = pad_sequence([one.answer for one in asked], True, -100).to(model.device)
        with half_precision(model.device):
            states, mask = read(model, asked, frame)
            loss = model(encoder_outputs=states, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step, recent = step + 1, 0.98 * recent + 0.02 * float(loss.detach())
        if step % 100 == 0:
            print(f"step {step}, loss {recent:.3f}, {done:.0%} of the time", flush=True)


@torch.inference_mode()
def answer(model: Any, asked: Asked, states: BaseModelOutput, mask: Tensor) -> tuple[float, list[int], float]:
    """The mean negative log-likelihood of the right answer's tokens, the generated answer, and rows read per token."""
    right = asked.answer.to(model.device)
    given = torch.cat([right.new_tensor([model.config.decoder_start_token_id]), right[:-1]])
    cache = model.new_cache() if hasattr(model, "new_cache") else None
    out = model(encoder_outputs=states, attention_mask=mask, decoder_input_ids=given[None], past_key_values=cache)
    loss = float(torch.nn.functional.cross_entropy(out.logits[0].float(), right))
    written = model.generate(encoder_outputs=states, attention_mask=mask, max_new_tokens=LONGEST, do_sample=False)
    ends = (model.config.bos_token_id, model.config.eos_token_id)
    layers = model.cross_report() if cache is not None else ()
    rows = sum(layer.rows for layer in layers) / len(layers) if layers else float(mask.sum())
    return loss, [token for token in written[0].tolist() if token not in ends], rows


class Measured(NamedTuple):
    """For each question."""

    losses: list[float]
    written: list[list[int]]
    rows: list[float]
    f1s: list[float]


def measure(model: Any, asked: Sequence[Asked], encoded: Sequence[Any], tokenizer: Any) -> Measured:
    all_of = [answer(model, one, *states) for one, states in zip(asked, encoded, strict=True)]
    losses, written, rows = (list(values) for values in zip(*all_of, strict=True))
    right = [tokenizer.decode(one.answer, skip_special_tokens=True) for one in asked]
    f1s = [word_f1(tokenizer.decode(tokens), text) for tokens, text in zip(written, right, strict=True)]
    return Measured(losses, written, rows, f1s)


def cross_order(
    prepared: Annotated[Path, "what `shipped_model.prepare` wrote"],
    out: Annotated[Path, "folder for the model and what is measured"],
    minutes: Annotated[float, "of training, unless the model is there"] = 4.0,
    questions: Annotated[int, "asked in documents of each length"] = 200,
    windows: Annotated[tuple[int, ...], "of a document"] = (16, 64),
) -> None:
    """Compare the orders of trees under cross-attention."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer, data = AutoTokenizer.from_pretrained(prepared), load(prepared / "tokens.npz.xz")
    frame = Frame.of(tokenizer)
    if (out / "config.json").exists():
        model: Any = BartForConditionalGeneration.from_pretrained(out)
        model.to(device)
    else:
        model = small_bart(tokenizer).to(device).train()
        train(model, data, frame, minutes)
        model.save_pretrained(out)
    model.eval()
    print(
        "| windows | order | opened | rows read | loss | F1 of the answer | same output as dense |\n" + "|---" * 7 + "|"
    )
    found = []
    for number in windows:
        stream = documents(data, "validation", number, frame, 1)
        asked = [next(stream) for _ in range(questions)]
        with torch.inference_mode():
            encoded = [read(model, [one], frame) for one in asked]
        dense = measure(model, asked, encoded, tokenizer)
        settings: list[tuple[Literal["dense", "position", "key"], int]] = [("dense", 0)]
        settings += [(order, opened) for opened in (8, 32) for order in ORDERS]
        for order, opened in settings:
            ours = dense
            if order != "dense":
                wrapped = vcc.wrap(model, vcc.DecoderConfig(order=order, budget=opened))
                ours = measure(wrapped, asked, encoded, tokenizer)
            means = [sum(values) / questions for values in (ours.rows, ours.losses, ours.f1s)]
            same = sum(map(list.__eq__, ours.written, dense.written)) / questions
            found.append((number, order, opened, *means, same))
            rows, loss, f1 = means
            print(
                f"| {number} | {order} | {opened} | {rows:,.0f} | {loss:.4f} | {100 * f1:.1f} | {same:.1%} |",
                flush=True,
            )
        (out / "results.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    sys.exit(call(cross_order, sys.argv[1:], "cross_order"))
