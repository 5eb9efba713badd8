"""The bundled model learns nothing from CUAD's published test contracts."""

from reproduction.cuad_split import contracts, official_test
from tests.data.words import real_data


def test_no_official_test_contract_is_learned_from_or_chosen_by() -> None:
    data = str(real_data("cuad").parent)
    tested = official_test(data)
    parts = {split: contracts(split, data) for split in ("train", "validation", "test")}
    groups = {split: {example.group for example in some} for split, some in parts.items()}
    assert len(tested) == 102 and groups["test"] == tested
    assert not tested & (groups["train"] | groups["validation"])
    assert not groups["train"] & groups["validation"]
    texts = {example.document for example in parts["test"]}
    assert not texts & {example.document for split in ("train", "validation") for example in parts[split]}
    assert len(parts["test"]) == 102 * 41
