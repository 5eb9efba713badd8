"""The 41 clause questions of CUAD, with our own short names and groups, for `vcc review`.

The categories and the wording of the questions are those of the Contract Understanding Atticus Dataset (CUAD),
by The Atticus Project, CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/); the model is trained with this
wording, so it must not change. Names and groups are ours.
"""

from dataclasses import dataclass

QUESTION = 'Highlight the parts (if any) of this contract related to "{}" that should be reviewed by a lawyer.'


@dataclass(frozen=True)
class Clause:
    category: str  # CUAD's name
    name: str  # ours
    group: str

    @property
    def question(self) -> str:
        return QUESTION.format(self.category)


GROUPS = {
    "The contract": {
        "Document Name": "Title",
        "Parties": "Parties",
        "Agreement Date": "Date of signing",
        "Effective Date": "Date of effect",
        "Governing Law": "Governing law",
        "Third Party Beneficiary": "Third-party beneficiaries",
    },
    "Term and termination": {
        "Expiration Date": "End date",
        "Renewal Term": "Renewal",
        "Notice Period To Terminate Renewal": "Notice against renewal",
        "Termination For Convenience": "Termination without cause",
        "Post-Termination Services": "Duties after the end",
    },
    "Transfer and control": {
        "Anti-Assignment": "Assignment",
        "Change Of Control": "Change of control",
        "Rofr/Rofo/Rofn": "Right of first refusal",
    },
    "Competition": {
        "Exclusivity": "Exclusivity",
        "Non-Compete": "Non-compete",
        "Competitive Restriction Exception": "Exceptions to restrictions",
        "No-Solicit Of Customers": "No poaching of customers",
        "No-Solicit Of Employees": "No poaching of staff",
        "Non-Disparagement": "No disparagement",
        "Most Favored Nation": "Most favoured customer",
    },
    "Money and volume": {
        "Revenue/Profit Sharing": "Revenue or profit share",
        "Price Restrictions": "Limits on prices",
        "Minimum Commitment": "Minimum purchase",
        "Volume Restriction": "Limits on volume",
        "Audit Rights": "Audit",
    },
    "Rights and licences": {
        "Ip Ownership Assignment": "Transfer of IP",
        "Joint Ip Ownership": "Joint IP",
        "License Grant": "Licence",
        "Non-Transferable License": "Non-transferable licence",
        "Affiliate License-Licensor": "Licence from affiliates",
        "Affiliate License-Licensee": "Licence to affiliates",
        "Unlimited/All-You-Can-Eat-License": "Unlimited licence",
        "Irrevocable Or Perpetual License": "Perpetual licence",
        "Source Code Escrow": "Source code in escrow",
    },
    "Liability": {
        "Cap On Liability": "Cap on liability",
        "Uncapped Liability": "Uncapped liability",
        "Liquidated Damages": "Liquidated damages",
        "Warranty Duration": "Warranty period",
        "Insurance": "Insurance",
        "Covenant Not To Sue": "Covenant not to sue",
    },
}
CLAUSES = tuple(Clause(category, name, group) for group, names in GROUPS.items() for category, name in names.items())
