"""Short answers to short questions: "How much insurance ...?" is answered by the amount.

A model trained on contracts prefers whole clauses. If a question asks for a sum, a number, a date, a period or an
address, the answer is the expression of that kind in the span. A span that may hold such an answer in other words
("after the war", "dozens") stays as it is; one that cannot scores lower.
"""

import re
from functools import cache
from typing import NamedTuple

REACH = 40  # characters beside a span, which may contain half an expression
BLANK = r"(?:[^\S\n]+|[^\S\n]*\n[^\S\n]*)"  # but no empty line
BESIDE = 12  # characters before a span: "since", "after the"
TOGETHER = 90  # characters between expressions of one answer: "$1,000,000 ... $2,000,000"

WORDS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    "|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|billion"
)
DIGITS = r"\d+(?:,\d+)*(?:\.\d+)?"
SPELLED = rf"(?:(?:{WORDS})(?:[- ](?:and )?(?:{WORDS}))*)"
SIZE = r"(?: ?[kMGT]i?B\b|[kMGT]\b|bn\b| (?:thousand|million|billion|trillion))?"  # 100K, 4 GB, 4 million
ONE = rf"(?:{SPELLED} ?\({DIGITS}%?\)|{DIGITS}{SIZE}|{SPELLED})"
NUMBER = rf"{ONE}(?:(?:, {ONE})* (?:to|or) {ONE}| ?[-–] ?{ONE})?"  # also "2, 5 or 10", "400K to 500K"
MONTH = (
    "(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
CURRENCY = r"(?:(?:US |U\.S\. )?(?:dollars|euros|pounds)|USD|EUR|GBP)"
SIGNED = rf"(?:US|U\.S\.|C|A)?[$€£¥] ?{DIGITS}(?: ?(?:thousand|million|billion|k|m|bn)\b)?"
SUM = rf"(?:{SIGNED}|{NUMBER} ?{CURRENCY})"
MONEY = rf"(?:{SIGNED}|{NUMBER} ?(?:(?:percent|per cent)(?: \({DIGITS} ?%\))?|%|{CURRENCY}))"
SPAN_OF_TIME = (
    rf"{NUMBER}[- ](?:(?:business|calendar|working|full|consecutive) )?"
    r"(?:second|minute|hour|day|week|month|quarter|year|decade)s?\b"
)
AGE = rf"(?:age of|aged|age) {NUMBER}(?: years?\b)?|{NUMBER}[- ]years?(?:[- ]old| of age)\b"
DATE = (
    rf"(?:{MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}|\d{{1,2}}(?:st|nd|rd|th)?(?: day)?(?: of)? {MONTH},? \d{{4}}"
    rf"|{MONTH} \d{{4}}|\d{{4}}-\d\d-\d\d|\d{{1,2}}/\d{{1,2}}/\d{{2,4}}|\b(?:1[0-9]|20)\d\d\b)"
)

EMAIL = r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
PRICES = "amount|price|fee|cost|sum|percentage|rate|salary|premium|cap|limit|percent"
LASTING = "period|duration|delay|interval|timeout|time limit"
TIMES = "second|minute|hour|day|week|month|year"

# The same in other words.
VAGUE = r"(?:dozens?|couple|several|few|many|most|all|both|half|once|twice|none|no|single|free|little|thousands)\b"
PERIOD = rf"(?:since|until|from|between|during|always|forever|(?:{TIMES}|decade|season|life|century)(?:s|time)?)\b"
MOMENT = (
    r"(?:after|before|during|since|until|when|while|once|immediately|ago|early|late|mid|middle|beginning|end|now"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun|to|yester)days?|tomorrow|spring|summer|autumn|winter|week(?:end)?|month|year"
    rf"|morning|evening|night|season|century|centuries|{MONTH}|\d{{3,4}}s?|\d+(?:st|nd|rd|th))(?!\w)"
)


class Kind(NamedTuple):
    """What a question asks for: expressions that are an answer by themselves, and words that may be one."""

    exact: re.Pattern[str]
    other: re.Pattern[str] | None


@cache
def compiled(words: str) -> re.Pattern[str]:
    """A pattern in which a blank may be a line break: files wrap their lines anywhere. It is compiled when a question
    needs it: all of them take longer than a short text takes to be asked."""
    words = words.replace("[- ]", f"(?:-|{BLANK})").replace(" ?", f"{BLANK}?").replace(" ", BLANK)
    return re.compile(rf"(?<!\w)(?:{words})", re.IGNORECASE)


NO_OTHER = r"(?!.{0,200},.{0,200}\b(?:wh\w+|how)\b)"  # "When it rains, what grows?" asks for no date
IS_THE = r"(?:what|which)(?:'s| is| are| was| were)?(?: the| a| an| its)?(?: \w+){0,3}?"
KINDS = (  # what asks for a kind, its expressions, words that may be one; the first match decides
    (r"(?:\w+ )?(?:what|which|is there)\b.{0,25}\be-?mail\b", EMAIL, None),
    (
        rf"(?:\w+ )?how (?:long|soon)\b|(?:\w+ ){{0,2}}how many (?:{TIMES})s\b|(?:\w+ )?{IS_THE} (?:{LASTING})\b",
        SPAN_OF_TIME,
        PERIOD,
    ),
    (r"(?:at )?how old\b|(?:at )?(?:what|which) age\b", AGE, f"{SPAN_OF_TIME}|{NUMBER}"),
    (rf"how much\b.{{0,60}}\b(?:costs?|earns?)\b|{IS_THE} (?:salary|wages?)\b", SUM, "free"),
    (
        rf"(?:\w+ ){{0,2}}how much\b|(?:\w+ )?{IS_THE} (?:{PRICES})\b|(?:what|which) (?:share|portion)\b",
        MONEY,
        f"{NUMBER}|{VAGUE}",
    ),
    (r"(?:\w+ ){0,2}how many\b|(?:what|which)\b.{0,25}\bnumber of\b", NUMBER, VAGUE),
    (
        rf"(?:(?:by|since|until|from) )?when(?! (?:may|can|could|should|would|shall|might)\b)\b{NO_OTHER}"
        rf"|(?:\w+ )?(?:what|which) (?:date|day|year)\b|(?:\w+ )?{IS_THE} (?:date|year)\b",
        DATE,
        MOMENT,
    ),
)

Edges = tuple[int, int]  # first and last + 1 character


def kind_asked(question: str) -> Kind | None:
    """The kind of expression that a question asks for; None: any words."""
    for asks, exact, other in KINDS:
        if re.match(rf"\W*(?:{asks})", question, re.IGNORECASE):
            return Kind(compiled(exact), compiled(other) if other else None)
    return None


def expressions(text: str, start: int, end: int, words: re.Pattern[str]) -> list[Edges]:
    """The expressions that overlap text[start:end]."""
    around = words.finditer(text, max(start - REACH, 0), end + REACH)
    return [found.span() for found in around if found.end() > start and found.start() < end]


def may_answer(text: str, start: int, end: int, kind: Kind) -> bool:
    """Whether a span holds an expression of a kind, or words that may be one."""
    return bool(expressions(text, start, end, kind.exact)) or (
        kind.other is not None and kind.other.search(text, max(start - BESIDE, 0), end) is not None
    )


def shortened(text: str, start: int, end: int, kind: Kind) -> Edges:
    """The first expression of a kind in text[start:end] and those close to it; without one, the whole span."""
    found = expressions(text, start, end, kind.exact)
    if not found:
        return start, end
    return found[0][0], max(stop for _, stop in found if stop - found[0][0] <= max(TOGETHER, found[0][1] - found[0][0]))
