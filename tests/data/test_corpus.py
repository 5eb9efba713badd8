"""Pretraining text: reading, the filter, the store."""

import json
import lzma
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.data.words import bert_like, t5_like
from vcc.data import corpus as corpus_module
from vcc.data import token_shards
from vcc.data.corpus import TokenStore, measure_components, prepare, stream_texts
from vcc.data.features import tokenize_text, tokenize_texts
from vcc.data.token_shards import in_shards
from vcc.errors import DataError

WORDS = "one two three four five six seven + - = 1 2 3"


@pytest.fixture
def corpus(tmp_path):
    root = tmp_path / "corpus"
    (root / "books").mkdir(parents=True)
    (root / "sums").mkdir()
    (root / "books" / "a.txt").write_text("one two three")
    (root / "books" / "b.jsonl").write_text('{"text": "four five"}\n{"text": "six seven one"}')
    maths = json.dumps({"text": "1+2=3", "meta": {"pile_set_name": "Maths"}})
    (root / "sums" / "c.jsonl.xz").write_bytes(lzma.compress(maths.encode()))
    (root / "sums" / "d.md").write_text("1+1=2")
    (root / "sums" / "picture.png").write_bytes(b"not text")
    return root


def test_every_kind_of_file_is_read_in_a_fixed_order(corpus):
    assert [(t.component, t.text) for t in stream_texts(str(corpus))] == [
        ("books", "one two three"),
        ("books", "four five"),
        ("books", "six seven one"),
        ("Maths", "1+2=3"),
        ("sums", "1+1=2"),
    ]
    assert [t.text for t in stream_texts(str(corpus / "books" / "b.jsonl"))] == ["four five", "six seven one"]


def test_parquet_is_read_too(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")
    import pyarrow

    parquet.write_table(pyarrow.Table.from_pylist([{"content": "one"}]), tmp_path / "a.parquet")
    assert [t.text for t in stream_texts(str(tmp_path), field="content")] == ["one"]


def test_components_above_the_limit_are_dropped_with_a_report(corpus):
    report = measure_components(stream_texts(str(corpus)), bert_like(WORDS), limit=0.3)
    by_name = {c.name: c for c in report.components}
    # books: 8 words in 13 + 9 + 13 = 35 bytes; sums: 5 tokens in 5 bytes
    assert by_name["books"].tokens_per_byte == pytest.approx(8 / 35) and by_name["sums"].tokens_per_byte == 1
    assert str(report).splitlines()[1:] == [
        "  0.229  kept    books (3 documents, 35 bytes)",
        "  1.000  DROPPED Maths (1 documents, 5 bytes)",
        "  1.000  DROPPED sums (1 documents, 5 bytes)",
        "dropped: 2 of 3 components, 2 documents, 22.2% of the bytes",
    ]


def test_a_component_is_measured_on_its_first_documents_and_counted_whole(corpus):
    [books] = measure_components(stream_texts(str(corpus / "books")), bert_like(WORDS), sample=1).components
    assert books.tokens_per_byte == pytest.approx(3 / 13) and (books.documents, books.bytes) == (3, 35)


def test_the_store_holds_the_kept_documents_each_with_its_end_mark(corpus, tmp_path):
    tokenizer = bert_like(WORDS)
    store = prepare(str(corpus), tokenizer, tmp_path / "store")
    assert tokenizer.decode(store.tokens) == "one two three [SEP] four five [SEP] six seven one [SEP]"
    assert store.ends.tolist() == [4, 7, 11] and store.tokens.dtype == np.uint16 and "DROPPED Maths" in store.report
    again = prepare(str(corpus), tokenizer, tmp_path / "store")
    assert again.ends.tolist() == store.ends.tolist()
    t5 = prepare(str(corpus), t5_like(WORDS), tmp_path / "store5")
    assert t5.tokens[3] == 1  # </s>


def test_a_store_of_something_else_and_a_damaged_one_are_refused(corpus, tmp_path):
    prepare(str(corpus), bert_like(WORDS), tmp_path / "store")
    with pytest.raises(DataError, match="delete it or name another folder"):
        prepare(str(corpus), t5_like(WORDS), tmp_path / "store")
    with (tmp_path / "store" / "tokens.bin").open("r+b") as file:
        file.truncate(4)
    with pytest.raises(DataError, match="tokens.bin does not match its hash"):
        TokenStore.open(tmp_path / "store")


@pytest.mark.parametrize("name", ["tokens.bin", "ends.npy"])
def test_a_flipped_bit_is_seen(name, corpus, tmp_path):
    prepare(str(corpus), bert_like(WORDS), tmp_path / "store")
    data = bytearray((tmp_path / "store" / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / "store" / name).write_bytes(data)
    with pytest.raises(DataError, match=f"{name} does not match its hash"):
        prepare(str(corpus), bert_like(WORDS), tmp_path / "store")


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, "{}", '{"made_of": 1, "sha256": 2}'])
def test_facts_that_cannot_be_read_are_refused(text, corpus, tmp_path):
    prepare(str(corpus), bert_like(WORDS), tmp_path / "store")
    (tmp_path / "store" / "facts.json").write_text(text)
    with pytest.raises(DataError, match="delete .* and prepare again"):
        prepare(str(corpus), bert_like(WORDS), tmp_path / "store")


def test_a_source_that_changed_is_seen(corpus, tmp_path):
    first = prepare(str(corpus), bert_like(WORDS), tmp_path / "store")
    file = next(file for file in sorted(corpus.rglob("*.txt")))
    held = file.read_text()
    file.write_text(held + " one")
    with pytest.raises(DataError, match="has changed since"):
        prepare(str(corpus), bert_like(WORDS), tmp_path / "store")
    assert prepare(str(corpus), bert_like(WORDS), tmp_path / "other").digest != first.digest
    file.write_text(held)
    assert prepare(str(corpus), bert_like(WORDS), tmp_path / "store").digest == first.digest


def test_a_store_is_complete_or_absent(corpus, tmp_path):
    (corpus / "books" / "z.jsonl").write_text('{"broken"')
    with pytest.raises(DataError, match="z.jsonl:1: not JSON"):
        prepare(str(corpus), bert_like(WORDS), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_nothing_to_read_is_an_error(tmp_path):
    with pytest.raises(DataError, match="must hold documents"):
        list(stream_texts(str(tmp_path)))
    with pytest.raises(DataError, match="no such file or folder"):
        list(stream_texts(str(tmp_path / "nowhere")))
    (tmp_path / "a.txt").write_text("1+1")
    with pytest.raises(DataError, match="the filter drops every component"):
        prepare(str(tmp_path), bert_like(WORDS), tmp_path / "store")


def test_a_mask_that_a_text_speaks_of_is_not_the_mask(tmp_path):
    (tmp_path / "a.txt").write_text("a [MASK] b [SEP] c")
    tokenizer = bert_like("a b c mask sep [ ]")
    store = prepare(str(tmp_path / "a.txt"), tokenizer, tmp_path / "store", limit=9)
    assert tokenizer.mask_token_id not in store.tokens
    assert [int(token) for token in store.tokens].count(tokenizer.sep_token_id) == 1, "the end mark alone"


def test_a_batch_of_texts_has_the_tokens_of_each_text_alone():
    texts = ["one two [MASK] three", "", "four five", "+ [SEP] =", "nonsense"]
    for tokenizer in (bert_like(WORDS), t5_like(WORDS)):
        together = tokenize_texts(texts, tokenizer)
        for ids, text in zip(together, texts, strict=True):
            assert ids.tolist() == tokenize_text(text, tokenizer).ids.tolist()
    assert tokenize_texts([], bert_like(WORDS)) == []


def test_shards_hold_all_items_in_order_and_close_at_their_size():
    sizes = [3, 1, 9, 1, 1, 1, 2]
    shards = list(in_shards(sizes, lambda size: size, most=4))
    assert shards == [[3, 1], [9], [1, 1, 1, 2]]
    assert list(in_shards([], len)) == []


def texts_in(folder, number=23):
    folder.mkdir()
    words = WORDS.split()[:7]
    lines = [" ".join(words[(i + j) % 7] for j in range(i % 5 + 1)) for i in range(number)]
    (folder / "all.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines))
    return str(folder)


class Killed(BaseException):
    """As if the process ended there."""


@pytest.mark.parametrize("shards_before", [0, 1, 4])
@pytest.mark.parametrize("torn", [False, True])
def test_an_interrupted_run_goes_on_behind_its_last_shard(tmp_path, monkeypatch, shards_before, torn):
    monkeypatch.setattr(token_shards, "SHARD", 40)
    monkeypatch.setattr(in_shards, "__defaults__", (40,))
    source, read = texts_in(tmp_path / "text"), []
    expected = prepare(source, bert_like(WORDS), tmp_path / "whole")

    def tokenize(texts, tokenizer):
        if len(read) > shards_before:  # the first call measures the components
            raise Killed
        read.append(len(texts))
        return tokenize_texts(texts, tokenizer)

    monkeypatch.setattr(corpus_module, "measure_components", lambda *given: expected_report)
    expected_report = measure_components(stream_texts(source), bert_like(WORDS))
    monkeypatch.setattr(corpus_module, "tokenize_texts", tokenize)
    read.append(0)
    with pytest.raises(Killed):
        prepare(source, bert_like(WORDS), tmp_path / "store")
    assert not (tmp_path / "store").exists()
    if torn:  # a shard that was being written when the machine stopped
        with (tmp_path / "store.partial" / "tokens.bin").open("ab") as file:
            file.write(b"half of a shard")
    again, said = [], []
    monkeypatch.setattr(
        corpus_module, "tokenize_texts", lambda texts, one: again.extend(texts) or tokenize_texts(texts, one)
    )
    store = prepare(source, bert_like(WORDS), tmp_path / "store", say=said.append)
    assert np.array_equal(store.tokens, expected.tokens) and np.array_equal(store.ends, expected.ends)
    assert store.digest == expected.digest and store.report == expected.report
    assert len(again) == 23 - sum(read), "what was there is not tokenized again"
    assert said[-1].endswith("tokens/s") and ("going on" in said[0]) == (shards_before > 0)
    assert sorted(file.name for file in (tmp_path / "store").iterdir()) == ["ends.npy", "facts.json", "tokens.bin"]


def test_what_is_left_of_another_corpus_or_damaged_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(in_shards, "__defaults__", (40,))
    source = texts_in(tmp_path / "text")
    expected = prepare(source, bert_like(WORDS), tmp_path / "whole")
    for left in ('{"made_of": {"source": "other"}, "tokens": 3, "documents": 1, "notes": {}}', "[", ""):
        aside = tmp_path / "store.partial"
        aside.mkdir()
        (aside / "progress").write_text(left)
        (aside / "tokens.bin").write_bytes(b"123456")
        (aside / "ends.bin").write_bytes(b"12345678")
        store = prepare(source, bert_like(WORDS), tmp_path / "store")
        assert store.digest == expected.digest
        shutil.rmtree(tmp_path / "store")


def test_two_commands_at_once_prepare_once(corpus, tmp_path):
    tokenizers = [bert_like(WORDS) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda one: prepare(str(corpus), one, tmp_path / "store"), tokenizers))
    alone = prepare(str(corpus), bert_like(WORDS), tmp_path / "alone")
    for store in stores:
        assert np.array_equal(store.tokens, alone.tokens) and np.array_equal(store.ends, alone.ends)
