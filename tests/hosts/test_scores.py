"""The VIPs score nodes with the layer's own attention: Hugging Face's attention probabilities are the oracle."""

import pytest
import torch

import vcc
from tests.hosts.models import EAGER_ROUNDS, EVERY_HOST, FAMILIES, REAL, SEQ2SEQ, build, difference, one
from vcc.hosts.forward.encoder import find_encoder

# ModernBERT's local layers score without their window: how far a segment is does not tell whether it matters.
LAYERS = [(family, layer) for family in FAMILIES for layer in range(3) if family != "modernbert" or layer == 0]


@pytest.mark.parametrize(("family", "layer"), LAYERS)
def test_scores_are_the_layers_attention_averaged_over_heads_and_vips(family: str, layer: int) -> None:
    model, batch = build(family, attention="eager"), one(40, vips=4)
    untouched = model.get_encoder() if family in SEQ2SEQ else model
    with torch.no_grad():
        output = untouched(input_ids=batch.ids, output_attentions=True, output_hidden_states=True)
        reader = find_encoder(vcc.wrap(model, REAL))
        hidden = output.hidden_states[layer]
        tokens = vcc.Rows(hidden, torch.ones(1, 40), torch.arange(40.0)[None])
        vips = vcc.Rows(hidden[:, :4], torch.ones(1, 4), torch.arange(4.0)[None])
        actual = reader.host.score(layer, vips, tokens)
    expected = output.attentions[layer][:, :, :4].mean((1, 2))
    tolerance = 1e-6 if family in EAGER_ROUNDS else 1e-12
    assert difference(actual, expected) < tolerance


@pytest.mark.parametrize("family", EVERY_HOST)
def test_a_segment_of_equal_tokens_scores_what_they_score_together(family: str) -> None:
    """As a node of count 8 in their middle; distances and rotations are then those of the middle."""
    wrapped = vcc.wrap(build(family), REAL)
    reader = find_encoder(wrapped)
    host = reader.host
    torch.manual_seed(0)
    vips = vcc.Rows(torch.randn(1, 3, 32).double(), torch.ones(1, 3), torch.arange(3.0)[None])
    middles = torch.tensor([[20.0, 60.0, 100.0]])
    nodes = vcc.Rows(torch.randn(1, 3, 32).double(), torch.tensor([[8.0, 1.0, 0.0]]), middles)
    copies = vcc.Rows(
        torch.cat([nodes.hidden[:, :1].expand(1, 8, 32), nodes.hidden[:, 1:2]], 1),
        torch.ones(1, 9),
        torch.cat([middles[:, :1].expand(1, 8), middles[:, 1:2]], 1),
    )
    with torch.no_grad():
        together, apart = host.score(1, vips, nodes), host.score(1, vips, copies)
    assert difference(together[:, 0], apart[:, :8].sum(1)) < 1e-12
    assert difference(together[:, 1], apart[:, 8]) < 1e-12
    assert float(together[0, 2]) == 0, "padding scores nothing"
