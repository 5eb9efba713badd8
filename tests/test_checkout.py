"""Research code is found in a checkout, and its absence is one clear line."""

from pathlib import Path

import pytest

from vcc import checkout
from vcc.bench.contenders import RESEARCH
from vcc.bench.settings import PRESETS, check
from vcc.cli import main
from vcc.errors import UsageError


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in an installed wheel: no folder beside the package."""
    monkeypatch.setattr(checkout, "ROOT", tmp_path)


def test_a_checkout_has_it() -> None:
    assert checkout.has_research()
    assert checkout.research("registry", "this test").EXPERIMENTS


def test_the_command_says_in_one_line_where_to_get_it(
    installed: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "vcc.commands.reproduce", raising=False)
    assert main(["reproduce", "table1"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "vcc reproduce needs the folder reproduction/" in told and "clone" in told
    assert main(["--help"]) == 0
    assert "reproduce" in capsys.readouterr().out


@pytest.mark.parametrize("name", RESEARCH)
def test_models_of_a_benchmark_that_need_it_say_so(name: str, installed: None) -> None:
    from dataclasses import replace

    with pytest.raises(UsageError, match="needs the folder reproduction/"):
        check(replace(PRESETS["cpu"], models=(name,)))
    check(replace(PRESETS["cpu"], models=("bert",)))


def test_a_model_saved_with_block_attention_is_not_loaded_without_it(installed: None) -> None:
    from transformers import BertConfig, BertForMaskedLM

    from vcc.train.models import restored

    plain = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    assert isinstance(restored(BertForMaskedLM(plain)), BertForMaskedLM)
    plain.attention_blocks = {"name": "mra"}
    with pytest.raises(UsageError, match="a model saved with attention_blocks needs the folder"):
        restored(BertForMaskedLM(plain))
