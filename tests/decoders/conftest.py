"""Where all nodes are open, steps are left to the model's own attention: a test of the tree must go around that."""

import pytest

from vcc.decoders.layer import TreeLayer


@pytest.fixture(params=["dense short cut", "through the tree"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the short cut for steps, and without."""
    if request.param == "through the tree":
        short = TreeLayer.reads_all

        def only_prefill(self: TreeLayer, new: int, tokens_in_tree: int) -> bool:
            return new > self.settings.block and short(self, new, tokens_in_tree)

        monkeypatch.setattr(TreeLayer, "reads_all", only_prefill)
    return request.param
