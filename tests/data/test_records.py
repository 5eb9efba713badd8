"""Reading published files, and what is said of bad ones."""

import gzip
import json
import lzma
import sys
import types
import zipfile

import pytest

from vcc.data.corpus import stream_texts
from vcc.data.records import find_split, load_records, read_records
from vcc.errors import DataError

ROWS = [{"id": "1", "text": "naïve"}, {"id": "2", "text": "b"}]
LINES = "\n".join(json.dumps(row) for row in ROWS) + "\n\n"


def write(path, text):
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress(text.encode()))
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("set/dev.jsonl", text)
            archive.writestr("set/train.jsonl", "")
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.xz", "a.jsonl.gz", "a.zip", "lines.json"])
def test_json_lines_read_the_same_however_packed(tmp_path, name):
    assert [r.fields for r in read_records(write(tmp_path / name, LINES), "validation")] == ROWS


@pytest.mark.parametrize("text", [json.dumps(ROWS), json.dumps(ROWS, indent=2)])
def test_a_json_array_reads_as_its_items(tmp_path, text):
    assert [r.fields for r in read_records(write(tmp_path / "a.json", text))] == ROWS


def test_parquet_reads_as_its_rows(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")
    import pyarrow

    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert [r.fields for r in read_records(tmp_path / "a.parquet")] == ROWS


@pytest.mark.parametrize(
    "name",
    [
        "validation.jsonl.xz",
        "dev.json",
        "dev-v2.0.json",
        "hotpot_dev_distractor_v1.json",
        "QuALITY.v1.0.1.htmlstripped.dev",
        "validation_v2_half.jsonl.gz",
        "squad.zip",
    ],
)
def test_published_file_names_are_found(tmp_path, name):
    (tmp_path / name).touch()
    (tmp_path / "README.md").touch()
    (tmp_path / "train-v2.0.json").touch()
    assert find_split(tmp_path, "squad", "validation").name == name
    (tmp_path / "root").mkdir()
    assert find_split(tmp_path / name, "squad", "validation").name == name


def test_a_name_that_is_exactly_the_split_wins_and_two_others_are_an_error(tmp_path):
    for name in ("test_a.jsonl", "test_b.jsonl"):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match="test_a.jsonl, test_b.jsonl all look like the test split"):
        find_split(tmp_path, "x", "test")
    (tmp_path / "test.jsonl").touch()
    assert find_split(tmp_path, "x", "test").name == "test.jsonl"


def test_documents_are_joined_by_id_and_shared(tmp_path):
    write(tmp_path / "docs.jsonl", json.dumps({"doc_id": "d", "document": "text"}))
    write(tmp_path / "train.jsonl", "\n".join(json.dumps({"doc_id": "d", "q": i}) for i in range(2)))
    first, second = load_records("x", "train", str(tmp_path), "")
    assert first.fields["document"] == "text" and first.fields["document"] is second.fields["document"]
    write(tmp_path / "train.jsonl", json.dumps({"doc_id": "missing"}))
    with pytest.raises(DataError, match=r"train.jsonl:1: doc_id 'missing' must be in .*docs.jsonl"):
        load_records("x", "train", str(tmp_path), "")


@pytest.mark.parametrize(
    "text, said", [('{"a": 1}\n{"a": \n', r"a.jsonl:2: not JSON"), ("[1]\n", r"a.jsonl:1: \[1\] must be a JSON object")]
)
def test_a_malformed_line_is_named_with_its_number(tmp_path, text, said):
    with pytest.raises(DataError, match=said):
        list(read_records(write(tmp_path / "a.jsonl", text)))


def test_damaged_and_foreign_files_are_named(tmp_path):
    whole = write(tmp_path / "a.jsonl.xz", LINES * 2000).read_bytes()
    (tmp_path / "a.jsonl.xz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a.jsonl.xz: damaged"):
        list(read_records(tmp_path / "a.jsonl.xz"))
    (tmp_path / "b.jsonl").write_bytes(b'{"a": "\xff\xfe"}\n')
    with pytest.raises(DataError, match=r"b.jsonl: damaged, or not UTF-8"):
        list(read_records(tmp_path / "b.jsonl"))
    with pytest.raises(DataError, match=r"c.json:2: not JSON"):
        list(read_records(write(tmp_path / "c.json", '[{"a": 1},\n{]')))


def test_a_missing_or_mistyped_field_says_which_and_what_is_there(tmp_path):
    record = next(read_records(write(tmp_path / "a.jsonl", '{"question": 3, "answers": ["a", 1]}')))
    with pytest.raises(DataError, match=r"a.jsonl:1: must have a field 'context' or 'text'; it has 'question', 'ans"):
        record.get("context", "text")
    with pytest.raises(DataError, match=r"field 'question' is 3: must be str"):
        record.get("question")
    with pytest.raises(DataError, match=r"'answers' holds 1: must hold strings only"):
        record.texts("answers")


def test_missing_places_and_splits_are_errors(tmp_path, monkeypatch):
    monkeypatch.delenv("VCC_DATA", raising=False)
    with pytest.raises(DataError, match="no such file or folder"):
        load_records("squad", "train", str(tmp_path / "nowhere"), "")
    with pytest.raises(DataError, match="no such file or folder"):
        load_records("squad", "train", "./nowhere", "")
    with pytest.raises(DataError, match=r"no train split of squad: must hold squad/train.jsonl.xz.*it holds nothing"):
        load_records("squad", "train", str(tmp_path), "")
    with pytest.raises(DataError, match="split 'dev' must be one of train, validation, test"):
        load_records("squad", "dev", str(tmp_path), "")
    with pytest.raises(DataError, match="crd3 is not on the hub"):
        load_records("crd3", "train", None, "")


def test_the_environment_names_the_folder(tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    write(tmp_path / "x" / "test.jsonl", LINES)
    monkeypatch.setenv("VCC_DATA", str(tmp_path))
    assert [r.fields for r in load_records("x", "test", None, "")] == ROWS


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the `datasets` package: one set has a script and a Parquet copy, another is gone."""
    asked = []

    def load_dataset(name, config=None, split=None, streaming=False, revision=None):
        asked.append((name, config, split, streaming, revision))
        if name == "gone/set":
            raise FileNotFoundError("no such data set")
        if revision is None:
            raise RuntimeError("Dataset scripts are no longer supported, but found set.py")
        return iter(ROWS)

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    monkeypatch.delenv("VCC_DATA", raising=False)
    return asked


def test_a_hub_set_with_a_script_is_read_from_its_parquet_copy(hub):
    assert [r.fields for r in load_records("set", "train", None, "owner/set:config")] == ROWS
    assert hub == [
        ("owner/set", "config", "train", False, None),
        ("owner/set", "config", "train", False, "refs/convert/parquet"),
    ]
    assert [text.text for text in stream_texts("owner/set")] == ["naïve", "b"] and hub[-1][3] is True


def test_a_hub_that_cannot_answer_is_named(hub, monkeypatch):
    with pytest.raises(DataError, match="gone/set: its test split cannot be loaded from the hub: no such data set"):
        load_records("set", "test", "gone/set", "")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match="pip install 'vcc-transformers.train.'"):
        load_records("set", "test", "owner/set", "")


def test_scrolls_is_read_from_its_zip_on_the_hub(tmp_path, monkeypatch):
    import huggingface_hub

    write(tmp_path / "qasper.zip", LINES)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda repo, name, repo_type: str(tmp_path / name))
    monkeypatch.delenv("VCC_DATA", raising=False)
    assert [r.fields for r in load_records("qasper", "validation", None, "tau/scrolls")] == ROWS
