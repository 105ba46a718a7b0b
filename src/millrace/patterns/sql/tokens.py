"""SQL text as tokens: to split lists, find brackets, and mark what FINAL and RUNNING apply to."""

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
    """A word, a text, a number or a sign, with its position."""

    text: str
    start: int
    end: int
    is_name: bool

    @property
    def upper(self) -> str:
        """In capitals, as keywords are compared."""
        return self.text.upper() if self.is_name else self.text


def tokenize(text: str) -> list[Token]:
    """The tokens of a text, without spaces and comments."""
    found = [one for one in _TOKEN.finditer(text) if one.lastgroup != "space"]
    return [Token(one.group(), one.start(), one.end(), one.lastgroup == "name") for one in found]


def find_closing(of: list[Token], place: int) -> int:
    """The index of the bracket that closes the one at `place`."""
    depth = 0
    for at in range(place, len(of)):
        depth += {"(": 1, ")": -1}.get(of[at].text, 0)
        if depth == 0:
            return at
    raise DefinitionError("a bracket is not closed; add the missing )")


def find_opening(of: list[Token], place: int) -> int:
    """The index of the bracket that the one at `place` closes."""
    depth = 0
    for at in range(place, -1, -1):
        depth += {")": 1, "(": -1}.get(of[at].text, 0)
        if depth == 0:
            return at
    raise DefinitionError("a bracket is closed but not opened; remove it, or add the missing (")


def split_list(text: str) -> Iterator[str]:
    """The parts of a list, split at the commas outside of brackets."""
    depth = start = 0
    for word in tokenize(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(word.text, 0)
        if word.text == "," and depth == 0:
            yield text[start : word.start].strip()
            start = word.end
    if text[start:].strip():
        yield text[start:].strip()


def mark_semantics(text: str) -> str:
    """The text with FINAL f(…) as __FINAL(f(…)), which SQL parsers accept; RUNNING alike."""
    found = tokenize(text)
    inserted: list[tuple[int, int, str]] = []
    for at, word in enumerate(found[:-2]):
        if word.upper in ("FINAL", "RUNNING") and found[at + 1].is_name and found[at + 2].text == "(":
            end = found[find_closing(found, at + 2)].end
            inserted += [(word.start, word.end, f"__{word.upper}("), (end, end, ")")]
    for start, end, insertion in sorted(inserted, reverse=True):
        text = text[:start] + insertion + text[end:]
    return text
