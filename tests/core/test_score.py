import torch

from vcc import Rows
from vcc.core.score import vip_attention, vip_similarity
from vcc.testing import random_rows, tiny_host


def by_hand(q, k, vips: Rows, nodes: Rows, scale: float) -> torch.Tensor:
    """Loops over everything: the average over heads and real VIPs of exp(q k) count / sum of the same."""
    batch, heads, p, _ = q.shape
    result = torch.zeros(batch, len(nodes), dtype=q.dtype)
    for b in range(batch):
        asking = [i for i in range(p) if vips.counts[b, i] > 0]
        for h in range(heads):
            for i in asking:
                e = torch.tensor([float((q[b, h, i] @ k[b, h, j] * scale).exp()) for j in range(len(nodes))]).to(q)
                e = e * nodes.counts[b]
                result[b] += e / e.sum() / heads / len(asking)
    return result


def test_score_is_the_mean_attention_of_the_real_vips() -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    k = torch.randn(2, 3, 6, 5, generator=generator, dtype=torch.float64)
    vips, nodes = random_rows(2, 4), random_rows(2, 6)
    vips = Rows(vips.hidden, torch.tensor([[1.0, 1, 1, 0], [1, 0, 0, 0]]).double(), vips.positions)
    nodes = Rows(nodes.hidden, torch.tensor([[4.0, 4, 4, 4, 3, 0], [4, 4, 0, 0, 0, 0]]).double(), nodes.positions)
    score = vip_attention(q, k, vips, nodes, 0.4)
    torch.testing.assert_close(score, by_hand(q, k, vips, nodes, 0.4), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(score.sum(1), torch.ones(2, dtype=torch.float64))
    assert score[nodes.counts == 0].eq(0).all()


def test_no_vip_scores_every_node_zero() -> None:
    host, nodes = tiny_host(), random_rows(1, 6)
    empty = Rows(nodes.hidden[:, :2], torch.zeros(1, 2).double(), nodes.positions[:, :2])
    assert host.score(0, empty, nodes).eq(0).all()
    assert host.score(0, random_rows(1, 0), nodes).eq(0).all()


def test_bf16_scores_are_computed_in_float32() -> None:
    host = tiny_host(dtype=torch.bfloat16)
    score = host.score(0, random_rows(1, 2, dtype=torch.bfloat16), random_rows(1, 6, dtype=torch.float32))
    assert score.dtype == torch.float32


def test_similarity_is_the_softmax_of_cosines_with_the_mean_vip() -> None:
    vips, nodes = random_rows(2, 3), random_rows(2, 5, seed=1)
    vips = Rows(vips.hidden, torch.tensor([[1.0, 1, 1], [1, 1, 0]]).double(), vips.positions)
    nodes = Rows(nodes.hidden, torch.tensor([[4.0, 4, 4, 4, 3], [4, 1, 1, 0, 0]]).double(), nodes.positions)
    score = vip_similarity(vips, nodes)
    for b, (asking, real) in enumerate(((3, 5), (2, 3))):
        mean = vips.hidden[b, :asking].mean(0)
        cosine = torch.stack([torch.cosine_similarity(mean, node, dim=0) for node in nodes.hidden[b, :real]])
        torch.testing.assert_close(score[b, :real], (20 * cosine).softmax(0))
        assert score[b, real:].eq(0).all()


def test_similarity_needs_a_vip_and_survives_empty_contexts() -> None:
    nodes = random_rows(1, 6)
    empty = Rows(nodes.hidden[:, :2], torch.zeros(1, 2).double(), nodes.positions[:, :2])
    assert vip_similarity(empty, nodes).eq(0).all()
    assert vip_similarity(random_rows(1, 0), nodes).eq(0).all()
    hidden = torch.zeros(1, 6, 8, dtype=torch.float64, requires_grad=True)
    padding = Rows(hidden, torch.zeros(1, 6).double(), nodes.positions)
    vip_similarity(random_rows(1, 2), padding).square().sum().backward()
    assert hidden.grad is not None and hidden.grad.isfinite().all()
