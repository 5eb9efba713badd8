"""What Hugging Face asks of every model of its own, in the spirit of its test mixins, with every node open, where the
untouched model is the oracle, and with compression forced."""

import inspect
from pathlib import Path

import pytest
import torch
from torch import Tensor

import vcc
from tests.hosts.models import (
    FEW,
    OPEN,
    REAL,
    SEQ2SEQ,
    SOME_HEADS,
    Batch,
    build,
    difference,
    encoded,
    one,
    ragged,
    states,
)
from vcc.errors import UsageError
from vcc.hosts.forward.encoder import find_encoder

SOME = [(family, head) for family, head in SOME_HEADS if family in FEW]


def two(family: str, head: str) -> Batch:
    """Without padding on the left, which classifiers would look at."""
    batch = ragged()
    return Batch(batch.ids[::2], batch.real[::2], batch.vips[::2])


@pytest.mark.parametrize(("family", "head"), SOME)
def test_tuples_hold_what_outputs_hold_and_twice_gives_the_same(family: str, head: str) -> None:
    wrapped, batch = vcc.wrap(build(family, head), REAL), two(family, head)
    with torch.no_grad():
        first = wrapped(**batch.arguments(family, head))
        second = wrapped(**batch.arguments(family, head))
        plain = wrapped(**batch.arguments(family, head), return_dict=False)
    assert difference(second, first) == 0 and isinstance(plain, tuple)
    assert [type(value) for value in first.to_tuple()] == [type(value) for value in plain]
    for ours, theirs in zip(plain, first.to_tuple(), strict=True):
        assert not isinstance(theirs, Tensor) or torch.equal(ours, theirs)


@pytest.mark.parametrize(("family", "head"), SOME)
def test_hidden_states_are_the_untouched_models_and_keep_gradients(family: str, head: str) -> None:
    """Also of multiple choice, whose choices are sequences of their own."""
    model, batch = build(family, head), two(family, head)
    wrapped = vcc.wrap(model, OPEN)
    expected = model(**batch.inputs(family, head), output_hidden_states=True)
    actual = wrapped(**batch.arguments(family, head), output_hidden_states=True)
    ours, theirs = states(actual), states(expected)
    assert len(ours) == len(theirs) == 4
    choices = len(theirs[0]) // len(batch.ids)
    real = batch.real.repeat_interleave(choices, 0)
    for one_state, other in zip(ours, theirs, strict=True):
        assert difference(one_state, other, real) < 1e-10
    ours[0].retain_grad()
    next(value for value in actual.values() if isinstance(value, Tensor)).flatten()[0].backward()
    assert ours[0].grad is not None and bool((ours[0].grad != 0).any())


@pytest.mark.parametrize("settings", [OPEN, REAL], ids=["open", "forced"])
@pytest.mark.parametrize("family", FEW)
def test_embeddings_read_as_their_tokens(family: str, settings: vcc.VccConfig) -> None:
    wrapped, batch = vcc.wrap(build(family), settings), two(family, "AutoModel")
    given = batch.arguments(family)
    with torch.no_grad():
        expected = encoded(wrapped(**given))
        embeds = wrapped.get_input_embeddings()(given.pop("input_ids"))
        actual = encoded(wrapped(inputs_embeds=embeds, **given))
    assert difference(actual, expected, batch.real) < 1e-12


@pytest.mark.parametrize("family", FEW)
def test_the_vocabulary_can_be_resized(family: str) -> None:
    wrapped, batch = vcc.wrap(build(family), REAL), two(family, "AutoModel")
    with torch.no_grad():
        expected = encoded(wrapped(**batch.arguments(family)))
        wrapped.resize_token_embeddings(150)
        assert wrapped.config.vocab_size == wrapped.get_input_embeddings().num_embeddings == 150
        assert difference(encoded(wrapped(**batch.arguments(family))), expected) == 0


@pytest.mark.parametrize(("family", "head"), SOME)
def test_the_signature_is_hugging_faces_with_the_vips(family: str, head: str) -> None:
    model = build(family, head)
    theirs = list(inspect.signature(model.forward).parameters)
    ours = list(inspect.signature(vcc.wrap(model, REAL).forward).parameters)
    added = {"vip_mask", "vip_length", *(["choice_tokens"] if head == "AutoModelForMultipleChoice" else [])}
    assert [name for name in ours if name not in added] == theirs
    assert added < set(ours)


@pytest.mark.parametrize("family", FEW)
def test_attention_implementations_agree(family: str) -> None:
    batch, found = two(family, "AutoModel"), []
    for attention in ("eager", "sdpa"):
        with torch.no_grad():
            found.append(encoded(vcc.wrap(build(family, attention=attention), REAL)(**batch.arguments(family))))
    assert difference(found[0], found[1], batch.real) < 1e-12


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_feed_forward_chunks_change_nothing(family: str) -> None:
    batch = one(40)
    with torch.no_grad():
        expected = encoded(vcc.wrap(build(family), OPEN)(**batch.arguments(family)))
        chunked = vcc.wrap(build(family, chunk_size_feed_forward=1), OPEN)
        assert difference(encoded(chunked(**batch.arguments(family))), expected) < 1e-12


# -------------------------------------------------------------------------------------------------- around the library


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "t5"])
def test_an_exported_program_takes_any_batch_and_says_that_it_takes_one_length(family: str) -> None:
    wrapped = vcc.wrap(build(family, dtype=torch.float32, num_hidden_layers=2, num_layers=2), REAL)
    reader = wrapped.get_encoder() if family in SEQ2SEQ else wrapped

    def given(size: int) -> dict[str, Tensor]:
        batch = one(45)
        inputs = {"input_ids": batch.ids, "attention_mask": batch.real, "vip_mask": batch.vips}
        return {name: tensor.repeat(size, 1) for name, tensor in inputs.items()}

    size, length = torch.export.Dim("size", min=1, max=64), torch.export.Dim("length", min=40, max=64)
    program = torch.export.export(reader, (), given(2), dynamic_shapes=dict.fromkeys(given(2), {0: size}))
    with torch.no_grad():
        for number in (2, 3):
            expected = encoded(reader(**given(number)))
            assert difference(encoded(program.module()(**given(number))), expected) < 1e-4
    with pytest.raises(UsageError, match="length of the input cannot be dynamic.*one program for each length"):
        torch.export.export(reader, (), given(2), dynamic_shapes=dict.fromkeys(given(2), {0: size, 1: length}))


def test_onnx_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped, batch = vcc.wrap(build("bert"), REAL), ragged()
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    with pytest.raises(UsageError, match="ONNX.*vcc.unwrap"):
        wrapped(**batch.arguments("bert"))


def test_sentence_transformers_reads_through_a_wrapped_model(tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from tests.documents.small_model import tokenizer

    words = tokenizer()
    wrapped = vcc.wrap(build("bert", dtype=torch.float32), REAL)
    wrapped.save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    model = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")  # with the mean of all tokens
    model.max_seq_length = 60
    text = " ".join(["one"] * 100)
    vector = model.encode([text], convert_to_tensor=True)
    reader = model[0].auto_model
    assert len(find_encoder(reader).vcc_state.report) == 3, "the compressed path ran"
    given = words(text, return_tensors="pt", truncation=True, max_length=60)
    with torch.no_grad():
        expected = reader(**{name: given[name] for name in ("input_ids", "attention_mask")})[0].mean(1)
    torch.testing.assert_close(vector, expected)
