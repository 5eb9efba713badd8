"""Names are told apart where two stand in one span, and defined terms are none."""

import pytest

from vcc.documents.extract.names import defined_terms, names_in, parties_among


@pytest.mark.parametrize(
    ("span", "names"),
    [
        ("Acme Corporation and Beta Limited", ["Acme Corporation", "Beta Limited"]),
        (
            'Acme, Inc., a Delaware corporation ("Acme") and Beta LLC (the "Buyer")',
            ["Acme, Inc.", "Beta LLC"],
        ),
        ("Harrow & Vale Distribution LLC", ["Harrow & Vale Distribution LLC"]),
        ("Procter and Gamble Company", ["Procter and Gamble Company"]),
        ("Cremer Oleo GmbH & Co KG", ["Cremer Oleo GmbH & Co KG"]),
        ("FAMOUS FIXINS, INC. and PEY DIRT, INC.", ["FAMOUS FIXINS, INC.", "PEY DIRT, INC."]),
        ("Acme Ltd; Beta Ltd;\n\nJohn Smith", ["Acme Ltd", "Beta Ltd", "John Smith"]),
        ("by and between Acme Inc. and John Smith", ["Acme Inc.", "John Smith"]),
        (
            "Nuveen Fund Advisors, LLC, Nuveen Investments, Inc.",
            ["Nuveen Fund Advisors, LLC", "Nuveen Investments, Inc."],
        ),
        ('"Party" and together the "Parties".', []),
        ('"', []),
        ("a Maryland corporation", []),
        ("_________TN 37660", []),
        ('Acme, Inc. ("Company"), a Nevada corporation, and Truck LLC', ["Acme, Inc.", "Truck LLC"]),
        ("Birch Investments Inc.\n\nAnd\n\nMount Holdings Inc.", ["Birch Investments Inc.", "Mount Holdings Inc."]),
        ("Each of Acme and Beta is a Supplier and collectively they are all of the Suppliers.", []),
        ("the Company", []),
        ("", []),
        ("Medica S.p.A.", ["Medica S.p.A."]),
        ("Acme Company, Inc.", ["Acme Company, Inc."]),
        ("Bunker One (USA) Inc.", ["Bunker One (USA) Inc."]),
        ("Party A (Shipper): Express Co., Ltd.", ["Express Co., Ltd."]),
        ("salesmen.com, inc.", ["salesmen.com, inc."]),
        ("doing business as Acme", []),
        ("collectively with Seller and Buyer", []),
        ("Party B", []),
    ],
)
def test_the_names_of_a_span(span: str, names: list[str]) -> None:
    found = names_in(span)
    assert [one.value for one in found] == names
    assert [" ".join(span[one.start : one.end].split()) for one in found] == names


def test_terms_are_defined_in_brackets_or_by_a_name_that_is_given() -> None:
    text = 'Acme Inc. (the "Buyer" or “Acme”), hereinafter called "Us," sells the book "Walden".'
    assert defined_terms(text) == {"buyer", "acme", "us"}


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["Reed's", "Full Company Inc.", "Reed's, Inc."], ["Full Company Inc.", "Reed's, Inc."]),
        (["Acme Ltd", "ACME LTD", "Owner"], ["Acme Ltd"]),  # Owner is defined
        (["Owner"], ["Owner"]),  # but it is all there is
        (["Hill Village, LLC", "Hill Village Media, LLC"], ["Hill Village, LLC", "Hill Village Media, LLC"]),
        (["Acme Ltd", "Beta", "Acme and Beta"], ["Acme Ltd", "Beta"]),
        ([], []),
    ],
)
def test_each_party_is_listed_once_by_its_full_name(names: list[str], kept: list[str]) -> None:
    assert [names[i] for i in parties_among(names, {"owner"})] == kept
