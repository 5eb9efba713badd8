"""Whether a recorded forward pass may be replayed: only while the model is the one that was recorded."""

import pytest
import torch
from torch import nn

import vcc
from tests.hosts.models import REAL, build, difference, encoded, one
from vcc.hosts.long_input import find_encoder
from vcc.hosts.recorded import can_record, look


def test_a_model_that_is_left_alone_looks_the_same() -> None:
    encoder = find_encoder(vcc.wrap(build("bert"), REAL))
    before = look(encoder)
    with torch.no_grad():
        encoder(**one(45).arguments("bert"))
        next(encoder.parameters()).mul_(2)  # in place, as an optimiser does: a replay reads it
    assert look(encoder) == before


def test_other_tensors_or_modules_are_noticed() -> None:
    encoder = find_encoder(vcc.wrap(build("bert"), REAL))
    layer = encoder.host.layers[1]
    seen = {look(encoder)}
    layer.output.dense.weight = nn.Parameter(layer.output.dense.weight.detach().clone())
    seen.add(look(encoder))
    layer.intermediate.dense = nn.Linear(layer.intermediate.dense.in_features, layer.intermediate.dense.out_features)
    seen.add(look(encoder))
    layer.intermediate.intermediate_act_fn = nn.Tanh()
    seen.add(look(encoder))
    encoder.to(torch.float16)
    seen.add(look(encoder))
    assert len(seen) == 5


def test_modules_of_others_are_not_recorded() -> None:
    class Adapter(nn.Linear):
        switched_on = True

    encoder = find_encoder(vcc.wrap(build("bert"), REAL))
    assert can_record(encoder)
    encoder.host.layers[0].output.dense = Adapter(4, 4)
    assert not can_record(encoder)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_what_is_replayed_is_what_is_computed() -> None:
    plain = vcc.wrap(build("bert", dtype=torch.float32), REAL).cuda()
    fast = vcc.compile(vcc.wrap(build("bert", dtype=torch.float32), REAL).cuda(), whole=False)
    with torch.no_grad():
        for seed in range(4):
            if seed == 2:
                for model in (plain, fast):
                    for weights in model.parameters():
                        weights.mul_(1.1)
            if seed == 3:
                for model in (plain, fast):
                    dense = model.encoder.layer[1].output.dense
                    dense.weight = nn.Parameter(dense.weight * 2)
            batch = one(45, seed=seed)
            given = {name: value.cuda() for name, value in batch.arguments("bert").items()}
            actual, expected = (encoded(model(**given)) for model in (fast, plain))
            assert difference(actual, expected, batch.real.cuda()) < 1e-4
