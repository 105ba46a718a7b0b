"""SQL text as words: where lists are cut, and what FINAL and RUNNING stand before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from millrace.errors import DefinitionError

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)|(?P<text>'(?:[^']|'')*')|(?P<name>"(?:[^"]|"")*"|[A-Za-z_]\w*)|(?P<sign>\d+(?:\.\d+)?|.)""",
    re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """A word, a text, a number or a sign, and where it stands."""

    text: str
    start: int
    end: int
    is_name: bool

    @property
    def upper(self) -> str:
        """As a keyword: in capitals."""
        return self.text.upper() if self.is_name else self.text


def tokenize(text: str) -> list[Token]:
    """The words of a text, without spaces and comments."""
    found = [one for one in _TOKEN.finditer(text) if one.lastgroup != "space"]
    return [Token(one.group(), one.start(), one.end(), one.lastgroup == "name") for one in found]


def find_closing(of: list[Token], place: int) -> int:
    """The place of the bracket that closes the one at `place`."""
    depth = 0
    for at in range(place, len(of)):
        depth += {"(": 1, ")": -1}.get(of[at].text, 0)
        if depth == 0:
            return at
    raise DefinitionError("a bracket is opened and not closed")


def find_opening(of: list[Token], place: int) -> int:
    """The place of the bracket that is closed at `place`."""
    depth = 0
    for at in range(place, -1, -1):
        depth += {")": 1, "(": -1}.get(of[at].text, 0)
        if depth == 0:
            return at
    raise DefinitionError("a bracket is closed and was not opened")


def split_list(text: str) -> Iterator[str]:
    """The parts of a list, cut at the commas outside of brackets."""
    depth = start = 0
    for word in tokenize(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(word.text, 0)
        if word.text == "," and depth == 0:
            yield text[start : word.start].strip()
            start = word.end
    if text[start:].strip():
        yield text[start:].strip()


def mark_semantics(text: str) -> str:
    """The text with FINAL f(…) as __FINAL(f(…)), and RUNNING alike, which SQL parsers understand."""
    found = tokenize(text)
    inserted: list[tuple[int, int, str]] = []
    for at, word in enumerate(found[:-2]):
        if word.upper in ("FINAL", "RUNNING") and found[at + 1].is_name and found[at + 2].text == "(":
            end = found[find_closing(found, at + 2)].end
            inserted += [(word.start, word.end, f"__{word.upper}("), (end, end, ")")]
    for start, end, insertion in sorted(inserted, reverse=True):
        text = text[:start] + insertion + text[end:]
    return text
