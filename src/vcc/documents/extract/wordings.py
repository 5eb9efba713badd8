"""The questions of a field: from its name, its description and its type; for known clauses those of `vcc review`."""

import re

from vcc.documents.extract.schema import FormField
from vcc.qa.clauses import CLAUSES, Clause

# Other names that schemas use for clauses of CUAD.
ALIASES = {
    **dict.fromkeys(("title", "document title", "name of the agreement"), "Document Name"),
    **dict.fromkeys(("parties", "party names", "contracting parties"), "Parties"),
    **dict.fromkeys(("signing date", "date", "contract date", "date of agreement", "signed on"), "Agreement Date"),
    **dict.fromkeys(("start date", "commencement date"), "Effective Date"),
    **dict.fromkeys(("end date", "expiry date", "term end", "expires on"), "Expiration Date"),
    **dict.fromkeys(("renewal", "renewal period"), "Renewal Term"),
    **dict.fromkeys(("notice period", "renewal notice period"), "Notice Period To Terminate Renewal"),
    **dict.fromkeys(("jurisdiction", "applicable law", "law"), "Governing Law"),
    **dict.fromkeys(("assignment",), "Anti-Assignment"),
    **dict.fromkeys(("liability cap", "limitation of liability"), "Cap On Liability"),
}
# What to ask of a clause to get from its sentence to its value.
PLAIN = {
    "Governing Law": "The laws of which state or country?",
    "Parties": "Who are the parties to the agreement?",
    "Agreement Date": "When was the agreement made?",
    "Effective Date": "When does the agreement take effect?",
    "Expiration Date": "When does the agreement end?",
    "Renewal Term": "How long is the renewal term?",
    "Notice Period To Terminate Renewal": "How many days' notice must be given?",
}
ASKING = {
    "date": ("When is the {}?", "What is the date of the {}?"),
    "duration": ("How long is the {}?",),
    "sum": ("How much is the {}?", "What is the amount of the {}?"),
    "number": ("What is the {}?", "How many {}?"),
}
QUESTION_WORDS = re.compile(r"(?:who|whom|whose|what|which|when|where|why|how|is|are|does|do|did|may|can|must)\b", re.I)


def words_of(name: str) -> str:
    return " ".join(re.sub(r"[\W_]+", " ", name).lower().split())


BY_NAME = {words_of(name): clause for clause in CLAUSES for name in (clause.category, clause.name)}
BY_NAME |= {words_of(alias): next(c for c in CLAUSES if c.category == category) for alias, category in ALIASES.items()}


def clause_of(field: FormField) -> Clause | None:
    """The clause of `vcc review` that a field is named like."""
    return BY_NAME.get(words_of(field.label)) or BY_NAME.get(words_of(field.title))


def clause_question(field: FormField) -> str | None:
    """The question of `vcc review` for a field that is named like a clause."""
    clause = clause_of(field)
    return None if clause is None else clause.question


def is_about(field: FormField, category: str) -> bool:
    """Whether a field is named like a clause of CUAD's category."""
    clause = clause_of(field)
    return clause is not None and clause.category == category


def plain_question(field: FormField, of: str = "") -> str:
    """The one question that names what is wanted most directly."""
    clause = clause_of(field)
    if clause is not None and clause.category in PLAIN and not of:
        return PLAIN[clause.category]
    return own_questions(field, of)[0]


def own_questions(field: FormField, of: str = "") -> list[str]:
    """Questions by its description and its name; `of`: the thing that it is a field of."""
    kind = field.item.kind if field.item is not None else field.kind
    label = f"{field.label} of {of}" if of else field.label
    found = []
    if (said := field.description.strip().rstrip(".")) and not of:
        if said.endswith("?") or QUESTION_WORDS.match(said):
            found.append(said.rstrip("?") + "?")
        else:
            thing = said if said[:2].isupper() else said[0].lower() + said[1:]
            found.append(f"What is {thing}?" if re.match(r"(?:the|an?|its|their) ", thing) else f"What is the {thing}?")
    found += [wording.format(label) for wording in ASKING.get(kind, ("What is the {}?",))]
    return list(dict.fromkeys(found))


def questions_of(field: FormField, of: str = "") -> list[str]:
    """All wordings, the surest first."""
    known = None if of else clause_question(field)
    return ([known] if known else []) + own_questions(field, of)[: 2 if known else 3]
