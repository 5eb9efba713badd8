"""Names are told apart where two stand in one span, and defined terms are none."""

import pytest

from vcc.documents.extract.names import is_defined_term, names_in


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
    ],
)
def test_the_names_of_a_span(span: str, names: list[str]) -> None:
    found = names_in(span)
    assert [one.value for one in found] == names
    assert [" ".join(span[one.start : one.end].split()) for one in found] == names


def test_a_term_in_quotes_is_defined() -> None:
    text = 'Acme Inc. (the "Buyer")'
    assert is_defined_term(text, text.index("Buyer")) and not is_defined_term(text, 0)
