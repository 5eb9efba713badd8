"""Short answers to short questions: "How much insurance ...?" is answered by the amount.

A model trained on contracts prefers whole clauses. If a question asks for a sum, a number, a date, a period or an
address, the answer is the expression of that kind in the span; a span without one scores lower.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from vcc.data.answers import ScoredSpan

LOST = 6.0  # logits subtracted from a span without such an expression
REACH = 40  # characters beside a span, which may contain half an expression
TOGETHER = 90  # characters between expressions of one answer: "$1,000,000 ... $2,000,000"

WORDS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    "|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|billion"
)
DIGITS = r"\d[\d,]*(?:\.\d+)?"
SPELLED = rf"(?:(?:{WORDS})(?:[- ](?:and )?(?:{WORDS}))*)"
NUMBER = rf"(?:{SPELLED} ?\({DIGITS}%?\)|{DIGITS}(?: (?:thousand|million|billion))?|{SPELLED})"
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
DATE = (
    rf"(?:{MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}|\d{{1,2}}(?:st|nd|rd|th)?(?: day)?(?: of)? {MONTH},? \d{{4}}"
    rf"|{MONTH} \d{{4}}|\d{{4}}-\d\d-\d\d|\d{{1,2}}/\d{{1,2}}/\d{{2,4}}|\b(?:1[0-9]|20)\d\d\b)"
)

EMAIL = r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
PRICES = "amount|price|fee|cost|sum|percentage|rate|salary|premium|cap|limit|share|portion|percent"
TIMES = "second|minute|hour|day|week|month|year"
KINDS = tuple(  # the first matching pattern decides
    (re.compile(rf"\W*(?:\w+\W+){{0,2}}?(?:{asks})", re.IGNORECASE), re.compile(rf"(?<!\w)(?:{kind})", re.IGNORECASE))
    for asks, kind in (
        (r"(?:what|which|is there)\b.{0,25}\be-?mail\b", EMAIL),
        (
            rf"how (?:long|soon)\b|how many (?:{TIMES})s\b|(?:what|which)\b.{{0,40}}\b(?:period|duration)\b",
            SPAN_OF_TIME,
        ),
        (r"how much\b.{0,60}\b(?:costs?|earns?)\b|(?:what|which)\b.{0,40}\b(?:salary|wages?)\b", SUM),
        (rf"how much\b|(?:what|which)\b.{{0,40}}\b(?:{PRICES})\b", MONEY),
        (r"how many\b|(?:what|which)\b.{0,25}\bnumber of\b", NUMBER),
        (r"when(?! (?:may|can|could|should|would|shall|might)\b)\b|(?:what|which)\b.{0,25}\b(?:date|day|year)\b", DATE),
    )
)

Edges = tuple[int, int]  # first and last + 1 character


def kind_asked(question: str) -> re.Pattern[str] | None:
    """The kind of expression that a question asks for; None: any words."""
    return next((kind for asks, kind in KINDS if asks.match(question)), None)


def expressions(text: str, start: int, end: int, kind: re.Pattern[str]) -> list[Edges]:
    """The expressions of a kind that overlap text[start:end]."""
    around = kind.finditer(text, max(start - REACH, 0), end + REACH)
    return [found.span() for found in around if found.end() > start and found.start() < end]


def shortened(text: str, start: int, end: int, kind: re.Pattern[str]) -> Edges:
    """The first expression of a kind in text[start:end] and those close to it; without one, the whole span."""
    found = expressions(text, start, end, kind)
    if not found:
        return start, end
    return found[0][0], max(stop for _, stop in found if stop - found[0][0] <= max(TOGETHER, found[0][1] - found[0][0]))


def ranked(text: str, found: Sequence[ScoredSpan], edges: Sequence[Edges], kind: re.Pattern[str]) -> list[ScoredSpan]:
    """Spans, best first, after lowering the scores of those without an expression of a kind."""
    holds = [bool(expressions(text, *place, kind)) for place in edges]
    scored = [span if ok else replace(span, score=span.score - LOST) for span, ok in zip(found, holds, strict=True)]
    return sorted(scored, key=lambda span: -span.score)
