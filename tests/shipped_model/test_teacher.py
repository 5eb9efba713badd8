"""The teacher is MPNet in our tokens: the same states as with its own, by kernels of PyTorch as by transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForQuestionAnswering, MPNetConfig, MPNetForQuestionAnswering

from shipped_model import teacher, train
from shipped_model.data import TokenQuestion, TokenSets, Unit, save
from tests.documents import small_model
from vcc.commands.options import call

SET = "squad11_train"


@pytest.fixture
def mpnet(tmp_path: Path) -> Path:
    """Two layers, and a vocabulary in another order than ours, with its own special tokens and one word more."""
    folder, tokenizer = tmp_path / "mpnet", small_model.tokenizer()
    ours = [word for word in tokenizer.get_vocab() if word not in teacher.SPECIAL]
    words = ["<s>", "<pad>", "</s>", *sorted(ours, reverse=True), "another", "<mask>"]
    torch.manual_seed(0)
    MPNetForQuestionAnswering(
        MPNetConfig(
            vocab_size=len(words), hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4
        )
    ).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return folder


def test_it_reads_our_tokens_as_its_own(mpnet: Path) -> None:
    tokenizer = small_model.tokenizer()
    theirs = (mpnet / "vocab.txt").read_text().split()
    words = ["[CLS]", "w3", "?", "[SEP]", "w41", "w5", "w3", ".", "[SEP]"]
    own = torch.tensor([[theirs.index(teacher.SPECIAL.get(word, word)) for word in words]])
    plain: Any = MPNetForQuestionAnswering.from_pretrained(mpnet, dtype=torch.float64).eval()
    made = teacher.with_our_tokens(mpnet, tokenizer).double().eval()
    with torch.no_grad():
        expected = plain(input_ids=own).start_logits
        given = torch.tensor([tokenizer.convert_tokens_to_ids(words)])
        torch.testing.assert_close(made(input_ids=given).start_logits, expected, rtol=0, atol=1e-12)


def test_a_vocabulary_that_lacks_our_tokens_is_refused(mpnet: Path) -> None:
    words = (mpnet / "vocab.txt").read_text().replace("w41\n", "other\n")
    (mpnet / "vocab.txt").write_text(words)
    with pytest.raises(ValueError, match="lacks 1 of our tokens, such as 'w41'"):
        teacher.with_our_tokens(mpnet, small_model.tokenizer())


def test_the_fused_attention_is_that_of_transformers(mpnet: Path) -> None:
    plain, fused = (MPNetForQuestionAnswering.from_pretrained(mpnet, dtype=torch.float64).eval() for _ in range(2))
    teacher.with_fused_attention(fused)
    ids, mask = torch.randint(3, 60, (2, 40)), torch.ones(2, 40, dtype=torch.long)
    mask[1, 25:] = 0
    with torch.no_grad():
        for given in (mask, None):
            expected, found = (one(input_ids=ids, attention_mask=given).end_logits for one in (plain, fused))
            real = mask.bool() if given is not None else torch.ones_like(ids, dtype=torch.bool)
            torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-12)


def sets(number: int = 4) -> TokenSets:
    ids = np.arange(10, 30)
    units = tuple(Unit(np.roll(ids, i), (TokenQuestion(np.array([5 + i]), ((i, i + 1),)),), i) for i in range(number))
    names = (SET, "medquad_train", "cuad_train", "squad_validation")
    return TokenSets(dict.fromkeys(names, units), {"train": np.arange(10, 60).repeat(600)})


def test_the_clock_ends_the_lessons_and_the_loss_falls(mpnet: Path) -> None:
    made = teacher.with_fused_attention(teacher.with_our_tokens(mpnet, small_model.tokenizer()))
    practice = teacher.practice_of(sets(), teacher.Frame.of(small_model.tokenizer()), 1.0, 512)
    practice.alone = 1.0
    losses = teacher.learn(made, practice, 0.06, 5e-3, 0)
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:3])


def test_a_teacher_is_trained_from_the_command_line_and_a_pupil_hears_it(
    mpnet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_model.tokenizer().save_pretrained(tmp_path)
    save(sets(), tmp_path / "tokens.npz.xz")
    line = f"--prepared {tmp_path} --mpnet {mpnet} --workers 0 --tokens 1024 --minutes 0.01 --out {tmp_path / 'taught'}"
    call(teacher.teach, line.split(), "teacher")
    assert "token_f1" in capsys.readouterr().out
    assert type(AutoModelForQuestionAnswering.from_pretrained(tmp_path / "taught")) is MPNetForQuestionAnswering
    options = train.TrainOptions(tmp_path, "windows", teacher=tmp_path / "taught", soft=0.5, model=tmp_path / "taught")
    way = train.start(options, small_model.tokenizer(), "cpu")
    assert way.teacher is not None and way.teacher.share == 0.5
    assert not any(p.requires_grad for p in way.teacher.model.parameters())
