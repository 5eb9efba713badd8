"""The bundled model without transformers gives what Hugging Face's own classes give."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

import vcc
from vcc.data.features import Frame, tokenize_text, tokenize_texts
from vcc.documents.shipped import SHIPPED, bundled, load_asker
from vcc.errors import ModelError
from vcc.hosts.load import load_model
from vcc.hosts.plain_bert import load_plain_bert
from vcc.hosts.plain_tokenizer import PlainTokenizer
from vcc.qa.model import QaModel

TEXTS = [
    "This Agreement is governed by the laws of the State of New York.",
    "Ünïcode, 漢字 and a [SEP] that is text; [MASK], too.\n\tTabs",
    "",
    "x" * 300,
]


@pytest.fixture(scope="module")
def hugging_face() -> tuple[object, object]:
    model, _ = load_model(SHIPPED, AutoModelForQuestionAnswering, local=True)
    return model.eval(), AutoTokenizer.from_pretrained(SHIPPED, local_files_only=True)


def test_logits_and_states_equal_those_of_hugging_face(hugging_face: tuple[object, object]) -> None:
    """On a batch with padding, so masks count, through Hugging Face's own forward and attention."""
    plain, theirs = bundled()[0], vcc.unwrap(hugging_face[0])
    ids = torch.randint(1000, 30000, (3, 200), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(200) < torch.tensor([200, 77, 1])[:, None]).long()
    types = (torch.arange(200) > 20).long().expand(3, 200)
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    with torch.no_grad():
        ours, expected = plain(**given), theirs(**given)
        states, expected_states = plain.base_model(**given), theirs.base_model(**given)
    for found, wanted in (
        (ours.start_logits, expected.start_logits),
        (ours.end_logits, expected.end_logits),
        (states.last_hidden_state, expected_states.last_hidden_state),
    ):
        torch.testing.assert_close(found[mask > 0], wanted[mask > 0], rtol=1e-4, atol=1e-4)


def test_long_texts_are_read_as_by_the_wrapped_model(hugging_face: tuple[object, object]) -> None:
    """Windows, tree, cut and head: the logits of every token of a text of several windows."""
    one, other = QaModel(*bundled()), QaModel(*hugging_face)
    ids = torch.randint(1000, 30000, (3000,), generator=torch.Generator().manual_seed(1)).numpy()
    question = one.ids_of("Which law governs this agreement?")
    with torch.no_grad():
        found, expected = (qa.logits(qa.read([ids]), [len(ids)], [question]) for qa in (one, other))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_are_those_of_hugging_face(hugging_face: tuple[object, object], text: str) -> None:
    ours, theirs = (tokenize_text(text, tokenizer) for tokenizer in (PlainTokenizer(SHIPPED), hugging_face[1]))
    assert ours.ids.tolist() == theirs.ids.tolist()
    assert ours.offsets.tolist() == theirs.offsets.tolist()


def test_batches_and_frames_are_those_of_hugging_face(hugging_face: tuple[object, object]) -> None:
    ours, theirs = PlainTokenizer(SHIPPED), hugging_face[1]
    for found, expected in zip(tokenize_texts(TEXTS, ours), tokenize_texts(TEXTS, theirs), strict=True):
        assert found.tolist() == expected.tolist()
    assert repr(Frame.of(ours)) == repr(Frame.of(theirs))
    assert len(ours) == len(theirs)
    assert (ours.cls_token_id, ours.pad_token_id) == (theirs.cls_token_id, theirs.pad_token_id)
    assert ours.model_max_length == theirs.model_max_length


def test_the_default_is_loaded_once() -> None:
    assert load_asker() is load_asker(None)


ASK = """
import sys
import vcc
document = vcc.read(sys.argv[1])
(answer,) = document.ask("Which law governs this agreement?", top=1, threshold=0)
heavy = ("transformers", "torch._dynamo", "scipy", "sklearn", "torch.distributed.fsdp")
print(answer.text, [name for name in heavy if name in sys.modules])
"""


def test_asking_imports_neither_transformers_nor_the_compiler(tmp_path: Path) -> None:
    file = tmp_path / "contract.txt"
    file.write_text("It ends in May. This Agreement is governed by the laws of Ohio. " + "Words follow here. " * 600)
    done = subprocess.run([sys.executable, "-c", ASK, str(file)], capture_output=True, text=True, check=True)
    assert "Ohio" in done.stdout and done.stdout.rstrip().endswith("[]"), done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED, tmp_path / "model"))


def test_damaged_files_raise_a_model_error(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    name = next(iter(weights))
    for broken in (weights | {name: torch.full_like(weights[name], torch.nan)}, weights | {"other": torch.ones(1)}):
        save_file(broken, folder / "model.safetensors")
        with pytest.raises(ModelError):
            load_plain_bert(folder)
    (folder / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ModelError):
        load_plain_bert(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError):
        PlainTokenizer(folder)


def test_another_kind_of_model_raises_a_model_error(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}))
    with pytest.raises(ModelError, match="relu"):
        load_plain_bert(folder)
