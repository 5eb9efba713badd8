"""The generator shares the reader's embeddings, words are drawn by their scores, and the reader learns to tell them."""

from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForQuestionAnswering, BertConfig, BertForQuestionAnswering

from shipped_model.data import TokenQuestion, TokenSets, Unit, save
from shipped_model.replaced import RunningText, WithGenerator, pretrain, replaced, running_text
from tests.documents import small_model
from vcc.commands.options import call

ASKED = (TokenQuestion(np.array([7, 8]), ((1, 2),)),)
CONFIG = BertConfig(
    vocab_size=60, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=32,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip


def test_words_are_drawn_by_their_scores_and_only_where_they_are_hidden() -> None:
    torch.manual_seed(0)
    ids = torch.zeros(4000, 2, dtype=torch.int32)
    hidden = torch.tensor([True, False]).expand(4000, 2)
    scores = torch.tensor([0.5, 0.3, 0.2]).log().expand(4000, 3)
    filled = replaced(ids, hidden, scores)
    shares = filled[:, 0].bincount(minlength=3) / 4000
    torch.testing.assert_close(shares, torch.tensor([0.5, 0.3, 0.2]), atol=0.03, rtol=0)
    assert not filled[:, 1].any()


def test_the_generator_is_the_first_layers_with_the_same_embeddings() -> None:
    torch.manual_seed(0)
    reader = BertForQuestionAnswering(CONFIG)
    both = WithGenerator(reader, mask_id=4).double().eval()
    own = both.generator.bert
    assert own.embeddings is reader.bert.embeddings and len(own.encoder.layer) == 2
    assert both.generator.cls.predictions.decoder.weight is reader.bert.embeddings.word_embeddings.weight
    ids = torch.randint(5, 60, (2, 12))
    expected = reader.bert(input_ids=ids, output_hidden_states=True).hidden_states[2]
    torch.testing.assert_close(own(input_ids=ids).last_hidden_state, expected)
    own.encoder.layer[0].output.dense.weight.data.zero_()
    assert reader.bert.encoder.layer[0].output.dense.weight.any(), "its layers are its own"


def test_the_reader_learns_to_tell_replaced_words() -> None:
    """The text is one word, so any other was put in."""
    torch.manual_seed(0)
    both = WithGenerator(BertForQuestionAnswering(CONFIG), mask_id=4)
    text = torch.full((2000,), 10, dtype=torch.int32)
    work = RunningText(both, text, rows=2)
    optimizer, steps, losses = torch.optim.AdamW(both.parameters(), lr=3e-3), work.steps(0, None), []
    for _ in range(60):
        (loss,) = next(steps)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


def test_the_command_saves_a_reader(tmp_path: Path) -> None:
    folder = Path(small_model.saved(tmp_path))
    words = np.random.default_rng(0).integers(5, 40, 3000).astype(np.int32)
    sets = TokenSets(
        {"a_train": [Unit(words[:50], ASKED)], "a_validation": [Unit(words[50:60], ASKED)]}, {"train": words}
    )
    assert len(running_text(sets)) == 3050
    save(sets, folder / "tokens.npz.xz")
    out = tmp_path / "replaced"
    call(pretrain, ["--prepared", str(folder), "--steps", "2", "--rows", "2", "--out", str(out)], "replaced")
    found = AutoModelForQuestionAnswering.from_pretrained(out)
    before = AutoModelForQuestionAnswering.from_pretrained(folder)
    pairs = list(zip(found.base_model.parameters(), before.base_model.parameters(), strict=True))
    assert any((one - other).abs().max() > 1e-4 for one, other in pairs)
