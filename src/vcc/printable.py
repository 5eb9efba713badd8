"""Words of others, such as names, titles and messages, made fit for a terminal and for one line of it."""

import re

# What a terminal obeys instead of showing it (C0, DEL, C1), what turns or hides the text around it (directions, tags,
# invisible marks), and halves of surrogate pairs, which stand for bytes of a file name that are no UTF-8.
OBEYED = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    r"""The text on one line, with every such character spelled out: ESC as \x1b, a newline as \n."""
    return OBEYED.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


def printable_lines(text: str) -> str:
    """The same for a message of our own that has several lines: its line ends stay."""
    return "\n".join(map(printable, text.split("\n")))
