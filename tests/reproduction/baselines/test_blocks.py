"""Block attention against matrices built entry by entry, and inside models against the untouched ones."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, BertForQuestionAnswering, RobertaConfig, RobertaForMaskedLM

from reproduction.baselines.block_models import pattern_of, restore_blocks, without_blocks
from reproduction.baselines.blocks import AttentionBlocks, attend_blocks
from reproduction.baselines.patterns import BigBird, BlockPattern, Mra
from reproduction.baselines.start import KINDS, start_from
from vcc.errors import UsageError

SIZES = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, vocab_size=60)
SIZES |= dict(initializer_range=0.3)  # attention that is not almost even


def random_blocks(n: int, real: int, block: int, seed: int = 0) -> tuple[AttentionBlocks, list[Tensor]]:
    torch.manual_seed(seed)
    q, k, v = (torch.randn(3, n, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask = torch.arange(n).expand(3, n) < torch.tensor([[n], [real], [real]])
    return AttentionBlocks.of(q, k, v, mask, block, 8**-0.5), [q, k, v]


def by_matrix(blocks: AttentionBlocks, wanted: Tensor, rest: bool) -> Tensor:
    """The definition, one weight after the other."""
    N, X, b, d = blocks.q.shape
    out = torch.zeros(N, X * b, d, dtype=torch.float64)
    for e in range(N):
        for i in range(X * b):
            weights, values = [], []
            for j in range(X * b):
                x, y = i // b, j // b
                if not blocks.real[e, y, j % b]:
                    continue
                if wanted[e, x, y]:
                    score = blocks.q[e, x, i % b] @ blocks.k[e, y, j % b]
                elif rest:
                    means = [
                        one[blocks.real[e, z]].mean(0) if blocks.real[e, z].any() else one.mean(0)
                        for one, z in ((blocks.q[e, x], x), (blocks.k[e, y], y))
                    ]
                    score = means[0] @ means[1]
                else:
                    continue
                weights.append(math.exp(float(score.detach()) * blocks.scale))
                values.append(blocks.v[e, y, j % b])
            if weights:
                total = torch.tensor(weights, dtype=torch.float64)
                out[e, i] = (total / total.sum()) @ torch.stack(values)
    return out


def dense(q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
    scores = (q @ k.transpose(1, 2) * 8**-0.5).masked_fill(~real[:, None, :], -torch.inf)
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("rest", [True, False])
def test_block_attention_is_its_definition(rest: bool) -> None:
    blocks, _ = random_blocks(22, 13, 4)
    torch.manual_seed(1)
    wanted = torch.rand(3, 6, 6) < 0.4
    wanted |= torch.eye(6, dtype=torch.bool)
    found = attend_blocks(blocks, wanted, blocks.coarse() if rest else None)
    real = blocks.real.flatten(1)
    torch.testing.assert_close(found[real], by_matrix(blocks, wanted, rest)[real], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("pattern", [Mra(4, 99), Mra(4, 99, rest=False), BigBird(4, window=99), BigBird(4, random=99)])
def test_with_all_blocks_it_is_dense_attention_and_has_its_gradients(pattern: BlockPattern) -> None:
    blocks, given = random_blocks(22, 13, 4)
    real = blocks.real.flatten(1)[:, :22]
    found = pattern.attend(blocks, 0)[:, :22]
    right = dense(*given, real)
    torch.testing.assert_close(found[real], right[real], rtol=1e-10, atol=1e-12)
    direction = torch.randn_like(right)
    ours = torch.autograd.grad((found * direction)[real].sum(), given)
    theirs = torch.autograd.grad((right * direction)[real].sum(), given)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_gradients_of_mra_are_those_of_finite_differences() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 12, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask = torch.arange(12)[None] < 11
    wanted = Mra(4, 1, 1).wanted(torch.randn(1, 3, 3), torch.tensor([[4, 4, 3]]))

    def out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        blocks = AttentionBlocks.of(q, k, v, mask, 4, 0.5)
        return attend_blocks(blocks, wanted, blocks.coarse())[mask]

    assert torch.autograd.gradcheck(out, (q, k, v))


def test_large_scores_neither_overflow_nor_vanish() -> None:
    q = torch.full((1, 8, 4), 60.0)
    k = torch.cat([torch.full((1, 4, 4), -60.0), torch.full((1, 4, 4), 60.0)], 1)
    v = torch.cat([torch.zeros(1, 4, 4), torch.ones(1, 4, 4)], 1)
    wanted = torch.tensor([[[True, False], [True, False]]])  # exact where nothing is, the rest coarse
    blocks = AttentionBlocks.of(q, k, v, torch.ones(1, 8, dtype=torch.bool), 4, 1.0)
    torch.testing.assert_close(attend_blocks(blocks, wanted, blocks.coarse()), torch.ones(1, 8, 4))


def test_mra_chooses_as_many_blocks_as_it_may_and_the_diagonal_first() -> None:
    torch.manual_seed(0)
    wanted = Mra(4, per_row=4, diagonal=3).wanted(torch.randn(2, 10, 10), torch.full((2, 10), 4))
    assert wanted.sum((1, 2)).tolist() == [40, 40]
    assert wanted.diagonal(dim1=1, dim2=2).all() and wanted.diagonal(1, 1, 2).all()


def test_big_bird_sees_window_ends_and_as_many_random_blocks() -> None:
    wanted = BigBird(4, window=3, random=2).wanted(torch.full((1, 12), 4), layer=1)[0]
    assert wanted[0].all() and wanted[11].all() and wanted[:, 0].all() and wanted[:, 11].all()
    assert wanted[3:9].sum(1).tolist() == [3 + 2 + 2] * 6
    assert not torch.equal(wanted, BigBird(4, window=3, random=2).wanted(torch.full((1, 12), 4), layer=0)[0])


# ------------------------------------------------------------------------------------------------------ inside models


def bert(head: type = BertForMaskedLM, positions: int = 16) -> BertForMaskedLM:
    torch.manual_seed(0)
    return head(BertConfig(**SIZES, max_position_embeddings=positions, pad_token_id=0)).eval().double()


def roberta() -> RobertaForMaskedLM:
    torch.manual_seed(0)
    return RobertaForMaskedLM(RobertaConfig(**SIZES, max_position_embeddings=18, pad_token_id=1)).eval().double()


def text(n: int, real: int, pad: int) -> dict[str, Tensor]:
    ids = torch.randint(5, 60, (2, n), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(n) < torch.tensor([[n], [real]])).long()
    return {"input_ids": ids.where(mask == 1, torch.tensor(pad)), "attention_mask": mask}


COVERING = {"mra": {"block": 8, "per_row": 99}, "bigbird": {"block": 8, "window": 99}, "longformer": {"window": 128}}


@pytest.mark.parametrize("kind", COVERING)
@pytest.mark.parametrize("make", [bert, roberta])
def test_where_its_window_covers_everything_a_baseline_is_the_dense_model(kind: str, make: type) -> None:
    model = make()
    given = text(48, 31, model.config.pad_token_id)
    right = start_from(model, "dense", 48)(**given).logits
    baseline = start_from(model, kind, 48, **COVERING[kind])
    more = {"global_attention_mask": torch.arange(48).expand(2, 48) < 5} if kind == "longformer" else {}
    real = given["attention_mask"].bool()
    # Hugging Face's Longformer has its softmax in float32
    near = dict(rtol=1e-4, atol=1e-5) if kind == "longformer" else dict(rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(baseline(**given, **more).logits[real], right[real], **near)


@pytest.mark.parametrize("kind", ["mra", "bigbird"])
def test_neither_padding_nor_neighbours_nor_a_short_batch_before_change_a_result(kind: str) -> None:
    """Hugging Face's Big Bird fails all three: it stays with full attention after one short batch."""
    model = start_from(bert(), kind, 200, block=4)
    given = text(97, 61, 0)
    alone = model(input_ids=given["input_ids"][1:, :61], attention_mask=given["attention_mask"][1:, :61]).logits
    model(input_ids=given["input_ids"][:1, :3])  # short enough for anyone to give up
    together = model(**given).logits
    torch.testing.assert_close(together[1:, :61], alone, rtol=1e-10, atol=1e-12)
    wider = {key: torch.nn.functional.pad(value, (0, 50)) for key, value in given.items()}
    torch.testing.assert_close(model(**wider).logits[:, :61], together[:, :61], rtol=1e-10, atol=1e-12)
    full = without_blocks(model)(**given).logits
    assert (full[0] - together[0]).abs().max() > 1e-4  # it is an approximation, not full attention


def test_training_and_evaluation_see_the_same_blocks() -> None:
    model = start_from(bert(), "bigbird", 64, block=4)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    given = text(64, 50, 0)
    torch.testing.assert_close(model.train()(**given).logits, model.eval()(**given).logits)


@pytest.mark.parametrize("kind", ["mra", "bigbird", "longformer"])
def test_what_was_saved_comes_back(kind: str, tmp_path: Path) -> None:
    options = {"block": 4} if kind != "longformer" else {"window": 8}
    model = start_from(bert(), kind, 64, **options)
    given = text(64, 50, 0)
    model.save_pretrained(tmp_path)
    loaded = restore_blocks(type(model).from_pretrained(tmp_path, dtype=torch.float64))
    assert pattern_of(loaded) == pattern_of(model)
    torch.testing.assert_close(loaded.eval()(**given).logits, model(**given).logits)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_answers_and_learns_and_leaves_the_model_alone(kind: str) -> None:
    model = bert(BertForQuestionAnswering)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    made = start_from(model, kind, 64).train()
    n = 16 if kind == "dense-512" else 64
    given = text(n, n - 3, 0)
    if KINDS[kind].vips:
        given[str(KINDS[kind].vips)] = (torch.arange(n).expand(2, n) < 4).long()
    made(**given).start_logits.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in made.base_model.encoder.parameters() if p.grad is not None)
    assert sum(float(p.grad.abs().sum()) for p in made.base_model.parameters() if p.grad is not None) > 0
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "dense-512"])
def test_every_kind_learns_in_mixed_precision(kind: str) -> None:
    made = start_from(bert(BertForQuestionAnswering).float(), kind, 64).train()
    given = text(64, 61, 0)
    if KINDS[kind].vips:
        given[str(KINDS[kind].vips)] = (torch.arange(64).expand(2, 64) < 4).long()
    with torch.autocast("cpu", torch.bfloat16):
        made(**given).start_logits.float().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in made.parameters() if p.grad is not None)


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="per_raw"):
        start_from(bert(), "mra", 64, per_raw=3)
    with pytest.raises(UsageError, match="block=0"):
        Mra(block=0)
