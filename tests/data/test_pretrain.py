"""Packed sequences with tokens hidden."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.words import bert_like, real_data, real_tokenizer, t5_like
from vcc.data.corpus import TokenStore, prepare
from vcc.data.pretrain import MaskedLM, PretrainDataset, SpanCorruption, collate_masked

WORDS = " ".join(f"w{i}" for i in range(50))


def store(sizes):
    """Documents 0, 1, ... whose tokens say which document and place they are: 1000 * document + place."""
    tokens = np.concatenate([1000 * d + np.arange(size) for d, size in enumerate(sizes)])
    return TokenStore(tokens.astype(np.uint32), np.cumsum(sizes).astype(np.int64), "")


class Plain:
    """Hides nothing: shows the packing alone."""

    def raw_length(self, length):
        return length

    def hide_words(self, tokens, rng):
        return tokens


@settings(max_examples=60)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(2, 17), st.integers(0, 5))
def test_an_epoch_reads_every_document_once_in_order_but_for_the_tail(sizes, length, seed):
    total = sum(sizes)
    if total < length:
        with pytest.raises(ValueError, match="must hold one"):
            PretrainDataset(store(sizes), Plain(), length, seed, 1)
        return
    data = PretrainDataset(store(sizes), Plain(), length, seed, size=2 * (total // length))
    for epoch in range(2):
        half = np.concatenate([data[i] for i in range(epoch * data.per_epoch, (epoch + 1) * data.per_epoch)])
        assert len(half) == len(set(half)) == total // length * length  # no token twice, only the tail is missing
        starts = np.flatnonzero(half % 1000 == 0)
        for a, b in zip(starts, [*starts[1:], len(half)], strict=True):  # each document runs on to its end
            assert half[a:b].tolist() == [half[a] + i for i in range(b - a)]


def test_item_i_is_a_function_of_seed_and_i_alone():
    tokenizer = bert_like(WORDS)
    make = lambda seed: PretrainDataset(store([40, 30, 50]), MaskedLM.of(tokenizer, ratio=0.2), 22, seed, 60)
    forward, jumped = make(3), make(3)
    items = [forward[i] for i in range(60)]
    for i in (59, 0, 31, 7):
        again = jumped[i]
        assert all((getattr(again, f) == getattr(items[i], f)).all() for f in ("input_ids", "vip_mask", "labels"))
    assert (items[0].input_ids != make(4)[0].input_ids).any()
    assert (items[0].labels != items[6].labels).any()  # the next epoch hides other tokens


def test_masked_lm_hides_7_5_percent_and_the_hidden_are_the_vips():
    tokenizer = bert_like(WORDS)
    hiding = MaskedLM.of(tokenizer)
    tokens = np.random.default_rng(0).integers(5, len(tokenizer), 4094)
    masked = hiding.hide_words(tokens, np.random.default_rng(1))
    assert len(masked.input_ids) == 4096 and hiding.raw_length(4096) == 4094
    assert masked.vip_mask.sum() == round(0.075 * 4094) == 307
    assert ((masked.labels != -100) == (masked.vip_mask == 1)).all()
    original = np.concatenate([[2], tokens, [3]])
    assert (masked.labels[masked.vip_mask == 1] == original[masked.vip_mask == 1]).all()
    assert (masked.input_ids[masked.vip_mask == 0] == original[masked.vip_mask == 0]).all()
    became = masked.input_ids[masked.vip_mask == 1]
    assert 0.7 < (became == tokenizer.mask_token_id).mean() < 0.9
    assert masked.vip_mask[0] == masked.vip_mask[-1] == 0  # [CLS] and [SEP] are never hidden


def test_clustered_masks_lie_in_few_windows_and_are_as_many():
    tokens = np.full(4094, 7)
    hiding = MaskedLM.of(bert_like(WORDS), cluster_window=64, cluster_density=0.3)
    vips = np.flatnonzero(hiding.hide_words(tokens, np.random.default_rng(0)).vip_mask)
    assert len(vips) == 307
    # 307 at 30% of a window of 64-65 tokens takes 16 of the 63 windows; scattered ones would touch nearly all
    assert len(set(vips // 64)) <= 33
    scattered = np.flatnonzero(MaskedLM.of(bert_like(WORDS)).hide_words(tokens, np.random.default_rng(0)).vip_mask)
    assert len(set(scattered // 64)) > 55


def join(masked, hiding):
    """The inverse of span corruption: put what each sentinel hides back in its place."""
    sentinels = set(hiding.sentinel_ids)
    hidden, pieces = [], masked.labels[:-1].tolist()
    for token in pieces:
        if token in sentinels:
            hidden.append([])
        else:
            hidden[-1].append(token)
    text = []
    for token in masked.input_ids[:-1].tolist():
        text += hidden.pop(0) if token in sentinels else [token]
    return text


@settings(max_examples=60)
@given(st.integers(2, 400), st.integers(0, 100))
def test_span_corruption_loses_nothing(n, seed):
    hiding = SpanCorruption.of(t5_like(WORDS, sentinels=10))
    tokens = np.random.default_rng(seed).integers(13, 60, n)
    masked = hiding.hide_words(tokens, np.random.default_rng(seed))
    assert join(masked, hiding) == tokens.tolist()
    assert masked.input_ids[-1] == masked.labels[-1] == 1
    assert (np.isin(masked.input_ids, hiding.sentinel_ids) == (masked.vip_mask == 1)).all()


def test_span_corruption_hides_15_percent_in_spans_of_3_and_fills_the_length():
    hiding = SpanCorruption.of(t5_like(WORDS))
    raw = hiding.raw_length(512)
    # T5 at 512: 568 tokens of text, 85 hidden in 28 spans: 568 - 85 + 28 + 1 = 512 in, 85 + 28 + 1 = 114 out
    assert raw == 568 and hiding.counts(raw) == (85, 28)
    masked = hiding.hide_words(np.full(raw, 20), np.random.default_rng(0))
    assert len(masked.input_ids) == 512 and len(masked.labels) == 114 and masked.vip_mask.sum() == 28
    sentinels = masked.input_ids[masked.vip_mask == 1]
    assert sentinels.tolist() == list(hiding.sentinel_ids[:28])


def test_batches_pad_inputs_and_labels():
    hiding = SpanCorruption.of(t5_like(WORDS))
    items = [hiding.hide_words(np.full(n, 20), np.random.default_rng(0)) for n in (20, 40)]
    batch = collate_masked(items, pad_id=0, multiple=8)
    assert batch["input_ids"].shape == batch["vip_mask"].shape == (2, 40) and batch["labels"].shape == (2, 9)
    assert batch["attention_mask"].sum(1).tolist() == [len(item.input_ids) for item in items]
    masked = [MaskedLM.of(bert_like(WORDS), ratio=0.2).hide_words(np.full(10, 20), np.random.default_rng(0))]
    assert collate_masked(masked, 0, 8)["labels"].shape == (1, 16)


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"ratio": 0.0}, "ratio 0.0"),
        ({"cluster_window": 0}, "cluster_window 0"),
        ({"ratio": 0.4, "cluster_window": 64}, "cluster_density 0.3 must lie between the mask ratio 0.4 and 1"),
    ],
)
def test_bad_masking_settings_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        MaskedLM.of(bert_like(WORDS), **settings)


def test_a_density_says_nothing_about_masks_that_are_not_clustered():
    assert (
        MaskedLM.of(bert_like(WORDS), ratio=0.4).hide_words(np.full(98, 20), np.random.default_rng(0)).vip_mask.sum()
        == 39
    )


def test_span_corruption_needs_sentinels():
    with pytest.raises(ValueError, match="has no sentinels <extra_id_0>"):
        SpanCorruption.of(bert_like(WORDS))
    with pytest.raises(ValueError, match=r"mean_span 0.5 must be at least 1"):
        SpanCorruption.of(t5_like(WORDS), mean_span=0.5)


def test_real_articles_pack_and_mask(tmp_path):
    tokenizer = real_tokenizer("bert_uncased")
    store = prepare(str(real_data("wikitext2") / "test.jsonl.xz"), tokenizer, tmp_path / "store")
    item = PretrainDataset(store, MaskedLM.of(tokenizer), 4096, seed=0, size=4)[3]
    assert len(item.input_ids) == 4096 and item.vip_mask.sum() == pytest.approx(307, abs=5)
