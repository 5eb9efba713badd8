"""Questions that look answerable and are not: an answerable one with a word changed.

Crowd workers wrote such questions by exchanging a name, using an antonym, adding "not", or swapping roles. These
changes are made here; occasionally a question stays answerable.
"""

import random
import re
from collections.abc import Callable, Iterable, Sequence

from vcc.data.example import Example

NAME_OR_NUMBER = re.compile(r"(?<=\s)(?:[A-Z][\w'-]+(?: [A-Z][\w'-]+)*|\d[\d,.]*\d|\d)")
HELPER = re.compile(
    r"\b(is|are|was|were|does|did|do|can|could|would|should|will|has|have|had)\b(?! (?:it |he |she |they )?not\b)", re.I
)
SENTENCE = re.compile(r"(?<=[.!?])\s+")

OPPOSITES = """
able unable; above below; absence presence; accept reject; accepted rejected; active inactive; add remove; added
removed; after before; agree disagree; agreed disagreed; allow prevent; allowed forbidden; allows prevents; always
never; ancient modern; appear disappear; appeared disappeared; approve oppose; approved rejected; arrive leave;
arrived left; attack defend; attacked defended; avoid cause; begin end; began ended; beginning end; begins ends;
benefit harm; best worst; better worse; big small; bigger smaller; birth death; born killed; bought sold; bottom top;
built destroyed; build destroy; buy sell; cheap expensive; cheaper costlier; close open; closed opened; closest
farthest; cold hot; common rare; complex simple; connect separate; connected separated; created destroyed; create
destroy; decline growth; declined grew; decrease increase; decreased increased; decreases increases; deep shallow;
defeat victory; defeated supported; different same; difficult easy; difficulty ease; disadvantage advantage;
disadvantages advantages; earliest latest; early late; earlier later; east west; eastern western; employ dismiss;
enter leave; entered left; exclude include; excluded included; export import; external internal; fail succeed; failed
succeeded; failure success; fall rise; famous unknown; fast slow; faster slower; female male; few many; fewer more;
fewest most; final initial; find lose; found lost; first last; follow precede; followed preceded; former latter;
founded abolished; friend enemy; friends enemies; full empty; gain lose; gained lost; gave took; give take; good bad;
greater lesser; greatest least; guilty innocent; happy unhappy; hard soft; harmful harmless; heavy light; help hinder;
helped hindered; helps hinders; high low; higher lower; highest lowest; inner outer; inside outside; introduce
abolish; introduced abolished; join leave; joined left; kill save; killed saved; known unknown; large small; larger
smaller; largest smallest; least most; legal illegal; less more; long short; longer shorter; longest shortest; lose
win; loss gain; lost won; major minor; majority minority; married divorced; maximum minimum; men women; multiple
single; natural artificial; near far; nearest farthest; negative positive; new old; newest oldest; night day; north
south; northern southern; often rarely; oldest youngest; older younger; over under; past future; peace war; permanent
temporary; poor rich; popular unpopular; possible impossible; powerful weak; private public; produce consume; produced
consumed; protect harm; provide deny; raise lower; raised lowered; reduce increase; reduced increased; refuse accept;
refused accepted; regular irregular; release capture; released captured; remember forget; rural urban; safe dangerous;
similar different; start stop; started stopped; strong weak; stronger weaker; strongest weakest; support oppose;
supported opposed; supports opposes; teach learn; tall short; tallest shortest; tolerant intolerant; true false; upper
lower; useful useless; usually rarely; white black; wide narrow; win lose; winner loser; winning losing; won lost;
with without; within outside; young old; youngest oldest
"""
PAIRS = [pair.split() for pair in " ".join(OPPOSITES.split()).split(";")]
OPPOSITE: dict[str, list[str]] = {}
for _one, _other in PAIRS:
    OPPOSITE.setdefault(_one, []).append(_other)
    OPPOSITE.setdefault(_other, []).append(_one)

Twist = Callable[[Example, Sequence[str], random.Random], str | None]


def names_of(examples: Iterable[Example]) -> dict[str, list[str]]:
    """Names and numbers in the questions of each article."""
    found: dict[str, list[str]] = {}
    for example in examples:
        found.setdefault(example.group, []).extend(NAME_OR_NUMBER.findall(example.question))
    return {group: sorted(set(names)) for group, names in found.items()}


def twist(example: Example, names: Sequence[str], chance: random.Random) -> str | None:
    """Change the question in one of the possible ways, which makes it unanswerable from its paragraph."""
    for way in chance.sample(WAYS, len(WAYS)):
        if changed := way(example, names, chance):
            return changed
    return None


def name_from_elsewhere(example: Example, names: Sequence[str], chance: random.Random) -> str | None:
    """Replace a name or number by another of the article that is not in the paragraph."""
    return renamed(example, [n for n in names if n not in example.document], chance)


def name_from_beside(example: Example, names: Sequence[str], chance: random.Random) -> str | None:
    """Replace one by another that is in the paragraph, but not in a sentence with an answer."""
    sentences = SENTENCE.split(example.document)
    with_answer = " ".join(s for s in sentences if any(answer in s for answer in example.answers))
    others = {n for s in sentences for n in NAME_OR_NUMBER.findall(s)}
    return renamed(example, sorted(n for n in others if n not in with_answer), chance)


def renamed(example: Example, others: Sequence[str], chance: random.Random) -> str | None:
    inside = NAME_OR_NUMBER.findall(example.question)
    old = chance.choice(inside) if inside else ""
    fit = [n for n in others if old and n[0].isdigit() == old[0].isdigit() and n not in example.question]
    return example.question.replace(old, chance.choice(fit), 1) if fit else None


def names_swapped(example: Example, names: Sequence[str], chance: random.Random) -> str | None:
    """Swap two names of the question."""
    inside = [n for n in dict.fromkeys(NAME_OR_NUMBER.findall(example.question)) if not n[0].isdigit()]
    if len(inside) < 2:
        return None
    a, b = chance.sample(inside, 2)
    if a in b or b in a or f"{a} and {b}" in example.question or f"{b} and {a}" in example.question:
        return None
    return example.question.replace(a, "\0").replace(b, a).replace("\0", b)


def opposite(example: Example, names: Sequence[str], chance: random.Random) -> str | None:
    """Replace a word by its opposite."""
    # "How many?" and "How few?" have the same answer.
    words = [m for m in re.finditer(r"(?<![Hh]ow )\b[a-z]+", example.question) if m.group() in OPPOSITE]
    if not words:
        return None
    word = chance.choice(words)
    return example.question[: word.start()] + chance.choice(OPPOSITE[word.group()]) + example.question[word.end() :]


def negated(example: Example, names: Sequence[str], chance: random.Random) -> str | None:
    """ "What did he build?" as "What did he not build?", or "didn't" for "did"."""
    found = HELPER.search(example.question)
    if found is None:
        return None
    word, before, after = found.group(), example.question[: found.start()], example.question[found.end() :]
    if chance.random() < 0.3:
        return before + {"can": "cannot", "will": "won't"}.get(word.lower(), word + "n't") + after
    if word.lower() in ("do", "does", "did"):  # "not" stands before the verb, which follows one or more words later
        words = after.split(" ")
        place = chance.randint(2, 3)
        if len(words) <= place + 1:
            return None
        return before + word + " ".join([*words[:place], "not", *words[place:]])
    return f"{before}{word} not{after}"


WAYS: tuple[Twist, ...] = (name_from_elsewhere, name_from_beside, names_swapped, opposite, negated)
