"""The loss of finding is the cross entropy of the best cosine of each passage, worked out here question by question."""

import math

import numpy as np
import torch

from shipped_model.data import TokenQuestion, Unit
from shipped_model.finding import LONGEST, Pairs, PairStream, finding_loss
from tests.shipped_model.test_ways import by_vcc
from vcc.core.tree import flatten_tree
from vcc.encode import in_windows


def test_loss_equals_the_cross_entropy_of_best_cosines() -> None:
    qa = by_vcc().qa
    rng = np.random.default_rng(0)
    passages = [rng.integers(300, 900, n) for n in (70, 20, 41)]
    questions = [rng.integers(300, 900, n) for n in (4, 2, 6)]
    loss = finding_loss(qa, Pairs(questions, passages, torch.tensor([0, 1, 0])))
    expected = []
    for scale in qa.config.scales[:2]:
        for i, question in enumerate(questions):
            vips = in_windows(qa.host, qa.vips([question]), qa.config.resolved(qa.host.num_layers)).hidden[0].mean(0)
            best = []
            for j, passage in enumerate(passages):
                tokens = flatten_tree(qa.read([passage])).hidden[0]
                nodes = [tokens[a : a + scale].mean(0) for a in range(0, len(tokens), scale)]
                cosines = [torch.cosine_similarity(vips, node, dim=0).item() for node in nodes]
                if j == i or (i, j) not in ((0, 2), (2, 0)):  # the first and the last passage are of one document
                    best.append((j == i, 20 * max(cosines)))
            right = next(value for own, value in best if own)
            expected.append(math.log(sum(math.exp(value) for _, value in best)) - right)
    assert math.isclose(loss.item(), np.mean(expected), rel_tol=1e-4)


def test_passages_hold_an_answer_and_stand_once_in_a_batch() -> None:
    rng = np.random.default_rng(1)
    units = []
    for i in range(50):
        ids = rng.integers(300, 900, 900)
        ids[400 + i : 402 + i] = 200 + i
        units.append(Unit(ids, (TokenQuestion(np.array([7]), ((400 + i, 401 + i),)),) * 3, owner=i // 2))
    batch = next(iter(PairStream({"squad11_train": units}, pairs=100)))
    assert len(batch.passages) == len({passage.tobytes() for passage in batch.passages}) <= 50
    assert all(len(passage) == LONGEST and (passage < 300).sum() == 2 for passage in batch.passages)
