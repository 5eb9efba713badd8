"""Any length: positions run on through the windows, and beyond the checkpoint's table they repeat, as in the paper."""

import tempfile

import pytest
import torch
from transformers.models.pegasus.modeling_pegasus import PegasusSinusoidalPositionalEmbedding

import vcc
from tests.hosts.models import (
    AFTER_PADDING,
    EVERY_HOST,
    ONE_EACH,
    REAL,
    SEQ2SEQ,
    TABLE,
    WITH_TABLE,
    build,
    difference,
    encoded,
    one,
    ragged,
    states,
)
from vcc.hosts.families.bart import longer_sinusoids

LONG = 2 * TABLE + 21
# The first place's row in the table; in RoBERTa's, 1.
FIRST = {"bart": 2, "mpnet": 2, **dict.fromkeys(AFTER_PADDING[:-1], 1)}
REPEATING = tuple(family for family in WITH_TABLE if family != "pegasus")


def reader_of(model: vcc.hosts.forward.wrapped.Wrapped) -> vcc.hosts.forward.encoder.LongInputEncoder:
    return vcc.hosts.forward.encoder.find_encoder(model)


@pytest.mark.parametrize("family", EVERY_HOST)
@pytest.mark.parametrize("dense_below", [0, 10_000, "auto"])
def test_any_length_is_read_compressed_or_not(family: str, dense_below: int | str) -> None:
    """Where the untouched model has no positions for the length, it is compressed whatever `dense_below` says."""
    config = vcc.VccConfig(scales=(8, 2, 1), budget=(3, 4), window=12, dense_below=dense_below)  # type: ignore[arg-type]
    wrapped = vcc.wrap(build(family), config)
    with torch.no_grad():
        output = wrapped(**one(LONG).arguments(family))
    assert bool(encoded(output).isfinite().all()) and encoded(output).shape == (1, LONG, 32)
    assert bool(wrapped.vcc_report()) == (dense_below != 10_000 or family in WITH_TABLE)


@pytest.mark.parametrize("family", REPEATING)
def test_positions_beyond_the_table_repeat_it(family: str) -> None:
    model, batch = build(family), one(LONG)
    first = FIRST.get(family, 0)
    rows = TABLE - (0 if family == "bart" else first)  # BART's table has its two unused rows on top
    places = first + torch.arange(LONG) % rows
    if family == "bart":
        table = model.encoder.embed_positions.weight
        expected = model.encoder.layernorm_embedding(model.get_input_embeddings()(batch.ids) + table[places])
    else:
        expected = model.embeddings(input_ids=batch.ids, position_ids=places[None])
        if family == "electra":
            expected = model.embeddings_project(expected)
        if "albert" in family:
            expected = model.encoder.embedding_hidden_mapping_in(expected)
    with torch.no_grad():
        actual = states(vcc.wrap(model, REAL)(**batch.arguments(family), output_hidden_states=True))[0]
    assert difference(actual, expected) == 0


@pytest.mark.parametrize("family", WITH_TABLE)
@pytest.mark.parametrize("vip_window", ["inline", "own"])
def test_extending_changes_nothing_before_training(family: str, vip_window: str) -> None:
    config = vcc.VccConfig(**REAL.to_dict() | {"vip_window": vip_window})
    batch = ragged(LONG)
    outputs = []
    for max_length in (None, LONG, LONG + 40):
        with torch.no_grad():
            outputs.append(vcc.wrap(build(family), config, max_length)(**batch.arguments(family)))
    assert difference(outputs[1], outputs[0], batch.real) == 0
    assert difference(outputs[2], outputs[0], batch.real) == 0


@pytest.mark.parametrize("family", EVERY_HOST)
def test_the_configuration_tells_how_many_positions_there_are(family: str) -> None:
    model = build(family)
    wrapped = vcc.wrap(model, REAL, max_length=LONG)
    if family in ("t5", "t5-v1.1", "mt5"):
        assert "max_position_embeddings" not in wrapped.config.to_dict()
        return
    unused = 0 if family == "bart" else FIRST.get(family, 0)
    assert wrapped.config.max_position_embeddings == LONG + unused
    assert reader_of(wrapped).config.max_position_embeddings == LONG + unused
    assert model.config.max_position_embeddings == TABLE, "the model that was wrapped stays as it is"
    for name, parameter in wrapped.named_parameters():
        if "position" in name:
            spare = FIRST["bart"] if family == "bart" else 0
            assert parameter.shape[0] == wrapped.config.max_position_embeddings + spare
    for name, parameter in model.named_parameters():
        assert "position" not in name or parameter.shape[0] in (TABLE, TABLE + 2)


@pytest.mark.parametrize("family", WITH_TABLE)
def test_a_table_that_is_long_enough_stays_as_it_is(family: str) -> None:
    model = build(family)
    wrapped = vcc.wrap(model, REAL, max_length=TABLE // 2)
    assert wrapped.config.max_position_embeddings == TABLE
    for ours, theirs in zip(wrapped.parameters(), model.parameters(), strict=True):
        assert ours is theirs


@pytest.mark.parametrize("family", WITH_TABLE)
def test_an_extended_model_is_saved_and_loaded_with_its_positions(family: str) -> None:
    wrapped = vcc.wrap(build(family), REAL, max_length=LONG)
    for name, parameter in wrapped.named_parameters():
        if "position" in name and family != "pegasus":
            parameter.data += torch.randn_like(parameter)  # as if trained
    batch = ragged(LONG)
    with tempfile.TemporaryDirectory() as folder:
        wrapped.save_pretrained(folder)
        loaded = type(wrapped).from_pretrained(folder, dtype=torch.float64)
    assert loaded.config.max_position_embeddings == wrapped.config.max_position_embeddings
    with torch.no_grad():
        assert difference(loaded(**batch.arguments(family)), wrapped(**batch.arguments(family))) == 0


@pytest.mark.parametrize("family", WITH_TABLE)
def test_an_extended_model_unwraps_to_one_that_reads_that_far(family: str) -> None:
    """And its untouched forward agrees with the open cut."""
    wrapped = vcc.wrap(build(family), vcc.VccConfig(window_layers=0, budget=(999,), dense_below=0), max_length=LONG)
    batch = ragged(LONG)
    with torch.no_grad():
        expected = vcc.unwrap(wrapped)(**batch.inputs(family))
        assert difference(wrapped(**batch.arguments(family)), expected, batch.real) < 1e-12


@pytest.mark.parametrize("family", REPEATING)
def test_extended_positions_train_on_their_own(family: str) -> None:
    """A place and the one it was copied from get gradients of their own; without extension, one for both."""
    gradients = []
    for max_length in (None, LONG):
        wrapped = vcc.wrap(build(family), REAL, max_length)
        wrapped.zero_grad()
        encoded(wrapped(**one(LONG).arguments(family))).square().sum().backward()
        (table,) = (p for name, p in reader_of(wrapped).named_parameters() if "position" in name)
        assert table.grad is not None
        gradients.append(table.grad)
    kept, extended = gradients
    first, size = FIRST.get(family, 0), kept.shape[0]
    rows = size - first
    folded = sum(torch.nn.functional.pad(part, (0, 0, 0, rows - len(part))) for part in extended[first:].split(rows))
    assert difference(folded, kept[first:]) < 1e-10
    assert bool((extended[size:].abs().sum(1) > 0).any())


@pytest.mark.parametrize("width", [32, 7])
def test_pegasus_positions_go_on_as_hugging_face_makes_them(width: int) -> None:
    made = PegasusSinusoidalPositionalEmbedding(300, width)
    expected = made.create_weight()
    actual = longer_sinusoids(expected[:20], 300)
    assert actual.shape == expected.shape
    assert float((actual - expected).abs().max()) < 1e-6


@pytest.mark.parametrize("family", ONE_EACH)
def test_padding_beyond_the_table_changes_nothing(family: str) -> None:
    """An input whose real tokens fit, and whose padding makes it too long for the untouched model."""
    batch, n = one(TABLE - 10), TABLE + 30
    wrapped = vcc.wrap(build(family), REAL)
    ids, real, vips = (torch.nn.functional.pad(each, (0, 40)) for each in (batch.ids, batch.real, batch.vips))
    padded = type(batch)(ids, real, vips)
    assert padded.ids.shape[1] == n
    with torch.no_grad():
        expected = encoded(wrapped(**batch.arguments(family)))
        actual = encoded(wrapped(**padded.arguments(family)))[:, : TABLE - 10]
    assert difference(actual, expected) < 1e-10


def test_max_length_must_be_positive() -> None:
    with pytest.raises(ValueError, match="max_length=0"):
        vcc.wrap(build("bert"), REAL, max_length=0)


@pytest.mark.parametrize("family", SEQ2SEQ)
def test_the_decoder_keeps_reading_after_extension(family: str) -> None:
    wrapped = vcc.wrap(build(family, "AutoModelForSeq2SeqLM"), REAL, max_length=LONG)
    generated = wrapped.generate(one(LONG).ids, vip_length=4, max_new_tokens=5, min_new_tokens=5)
    assert generated.shape == (1, 6)
