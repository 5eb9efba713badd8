"""Make external text (names, titles, messages) safe for one line of a terminal."""

import re

# Control characters (C0, DEL, C1), characters that reorder or hide text (directions, tags, invisible marks), and lone
# surrogates, which stand for non-UTF-8 bytes of file names.
OBEYED = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    r"""The text on one line, with these characters escaped: ESC as \x1b, a newline as \n."""
    return OBEYED.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


def printable_lines(text: str) -> str:
    """The same for our own messages of several lines: line ends stay."""
    return "\n".join(map(printable, text.split("\n")))
