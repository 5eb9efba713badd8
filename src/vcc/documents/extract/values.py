"""Read a value from words: a date, a sum, a duration, a number, one of several choices.

Patterns find the expressions in a span. Libraries read them: dateparser the dates, price-parser the sums, text2num the
spelled-out numbers. A span without an expression of its kind has no value.
"""

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vcc.documents.short import DATE, MONEY, NUMBER, SPAN_OF_TIME
from vcc.errors import UsageError

INSTALL = "pip install 'vcc-transformers[forms]'"
LONGEST = 4000  # characters of a span that are searched
SHORT = 40  # characters; so few may be nothing but a date, in any language
UNITS = {
    "day": ("D", 1),
    "week": ("W", 1),
    "month": ("M", 1),
    "quarter": ("M", 3),
    "year": ("Y", 1),
    "decade": ("Y", 10),
}
CLOCK = {"second": "S", "minute": "M", "hour": "H"}
EACH = {
    "annual": "P1Y",
    "yearly": "P1Y",
    "each year": "P1Y",
    "every year": "P1Y",
    "monthly": "P1M",
    "each month": "P1M",
}
MULTIPLES = {"thousand": 1e3, "k": 1e3, "million": 1e6, "m": 1e6, "billion": 1e9, "bn": 1e9}
CURRENCIES = {
    **{"us$": "USD", "u.s.$": "USD", "usd": "USD", "c$": "CAD", "a$": "AUD", "eur": "EUR", "gbp": "GBP"},
    **{"cad": "CAD", "aud": "AUD", "jpy": "JPY", "chf": "CHF"},
    **{"$": "USD", "dollar": "USD", "€": "EUR", "euro": "EUR", "£": "GBP", "pound": "GBP", "¥": "JPY"},
}
ORDINAL = re.compile(r"(\d) ?(st|nd|rd|th|t h|s t|n d|r d)\b", re.IGNORECASE)  # a scan may split "5th" into "5t h"
DIGITS = re.compile(r"\d[\d,]*(?:\.\d+)?")
MULTIPLE = re.compile(r"\d ?(thousand|million|billion|k|m|bn)\b", re.IGNORECASE)
DATES = re.compile(rf"(?<!\w)(?:{DATE})(?!\w)".replace("st|nd|rd|th", "st|nd|rd|th|t h|s t|n d|r d"), re.IGNORECASE)
SUMS = re.compile(
    rf"(?<!\w)(?:(?:USD|EUR|GBP|CAD|AUD|JPY|CHF) ?{NUMBER}|{MONEY})(?! ?(?:%|percent|per cent))", re.IGNORECASE
)
SPANS_OF_TIME = re.compile(rf"(?<!\w)(?:{SPAN_OF_TIME}|{'|'.join(EACH)})", re.IGNORECASE)
NUMBERS = re.compile(rf"(?<!\w)(?:{NUMBER})(?!\w)", re.IGNORECASE)


@dataclass(frozen=True)
class ReadValue:
    """A value and the characters of the span it was read from."""

    value: Any
    start: int
    end: int


def package(name: str) -> Any:
    """A package of the extra `forms`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"reading values needs {error.name}: {INSTALL}") from error


def values_in(kind: str, span: str, choices: Sequence[Any] = ()) -> list[ReadValue]:
    """Every value of a kind in a span, in reading order."""
    span = span[:LONGEST]
    if kind == "text":
        return [ReadValue(" ".join(span.split()), 0, len(span))] if span.strip() else []
    if kind == "choice":
        return choices_in(span, choices)
    pattern, read = READERS[kind]
    found = [(match, read(match.group())) for match in pattern.finditer(span)]
    values = [ReadValue(value, *match.span()) for match, value in found if value is not None]
    if not values and kind == "date" and len(span) <= SHORT and (value := read_date(span, any_language=True)):
        return [ReadValue(value, 0, len(span))]
    return values


def choices_in(span: str, choices: Sequence[Any]) -> list[ReadValue]:
    """The choices that a span names, whole words, the longest first where one holds another."""
    found: list[ReadValue] = []
    for choice in sorted(choices, key=lambda choice: -len(str(choice))):
        words = [re.escape(word) for word in re.split(r"[\W_]+", str(choice)) if word]
        if not words:
            continue
        named = re.compile(r"(?<!\w)" + r"[\W_]+".join(words) + r"(?!\w)", re.IGNORECASE)
        for match in named.finditer(span):
            if all(match.end() <= one.start or one.end <= match.start() for one in found):
                found.append(ReadValue(choice, *match.span()))
    return sorted(found, key=lambda one: one.start)


def read_date(words: str, any_language: bool = False) -> str | None:
    """A day as YYYY-MM-DD; None where day, month or year is missing."""
    words = ORDINAL.sub(r"\1", words)
    words = re.sub(r"\b(?:day|of)\b|[,.]", " ", words) if re.search(r"[^\W\d_]{3}", words) else words
    settings = {"REQUIRE_PARTS": ["day", "month", "year"], "DATE_ORDER": "MDY", "PARSERS": ["absolute-time"]}
    words, dateparser = " ".join(words.split()), package("dateparser")
    found = dateparser.parse(words, languages=None if any_language else ["en"], settings=settings)
    return None if found is None else found.date().isoformat()


def read_number(words: str) -> int | float | None:
    """The first number: in digits, or spelled out."""
    match = DIGITS.search(words)
    if match is None:
        spelled = package("text_to_num").alpha2digit(words.replace("-", " ").lower(), "en", 0)
        match = DIGITS.search(spelled)
    if match is None:
        return None
    number = float(match.group().replace(",", ""))
    multiple = MULTIPLE.search(words)
    return whole(number * MULTIPLES[multiple[1].lower()] if multiple else number)


def whole(number: float) -> int | float:
    return int(number) if number == int(number) else number


def read_sum(words: str) -> dict[str, Any] | None:
    """An amount and the ISO code of its currency, which is None for one that is not known."""
    price = package("price_parser").Price.fromstring(words)
    amount = read_number(words) if price.amount is None else float(price.amount)
    if amount is None or "%" in words or "percent" in words.lower():
        return None
    multiple = MULTIPLE.search(words)
    if price.amount is not None and multiple:
        amount *= MULTIPLES[multiple[1].lower()]
    code = next((code for sign, code in CURRENCIES.items() if sign in words.lower()), None)
    return {"amount": whole(amount), "currency": code}


def read_duration(words: str) -> str | None:
    """An ISO 8601 duration: P90D, P3Y, PT12H."""
    for phrase, value in EACH.items():
        if words.lower().startswith(phrase):
            return value
    number = read_number(words)
    unit = re.search("|".join((*UNITS, *CLOCK)), words, re.IGNORECASE)
    if number is None or unit is None:
        return None
    name = unit.group().lower()
    if name in CLOCK:
        return f"PT{number}{CLOCK[name]}"
    letter, times = UNITS[name]
    return f"P{number * times}{letter}"


READERS: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "date": (DATES, read_date),
    "sum": (SUMS, read_sum),
    "duration": (SPANS_OF_TIME, read_duration),
    "number": (NUMBERS, read_number),
}
