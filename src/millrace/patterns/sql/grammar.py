"""The syntax of row patterns in SQL, as a tree: variables, concatenation, alternation,
repetition, exclusion, anchors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from millrace.errors import DefinitionError

MAX_PERMUTED = 6
"""A permutation of n things is n! sequences."""


@dataclass(frozen=True)
class Variable:
    """One row, to be mapped to a variable."""

    name: str


@dataclass(frozen=True)
class Anchor:
    """`^` before the first row of a partition, or `$` after its last."""

    is_end: bool


@dataclass(frozen=True)
class Concatenation:
    """Parts one after the other; without parts, the empty pattern."""

    parts: tuple[RowPatternPart, ...]


@dataclass(frozen=True)
class Alternation:
    """The first part that leads to a match is preferred."""

    parts: tuple[RowPatternPart, ...]


@dataclass(frozen=True)
class Exclusion:
    """`{- … -}`: rows that are matched, but not shown by ALL ROWS PER MATCH."""

    part: RowPatternPart


@dataclass(frozen=True)
class Repetition:
    """From `least` to `most` times. As many as possible are preferred; as few as possible if reluctant."""

    part: RowPatternPart
    least: int
    most: int | None
    is_reluctant: bool


RowPatternPart = Variable | Anchor | Concatenation | Alternation | Exclusion | Repetition

_TOKEN = re.compile(r'\s*(?:([A-Za-z_]\w*)|"((?:[^"]|"")+)"|(\d+)|(\{-|-\}|[(){},|*+?^$]))')
_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def parse_row_pattern(text: str) -> RowPatternPart:
    """The tree of a pattern such as `A B+? (C | D)*`."""
    reader = _RowPatternParser(text)
    part = reader.parse_alternatives()
    if reader.peek is not None:
        raise reader.error(f"{reader.peek!r} is not expected here")
    return part


def normalize_identifier(name_text: str) -> str:
    """An identifier as it is compared: in capitals, unless it is quoted."""
    return name_text[1:-1].replace('""', '"') if name_text.startswith('"') else name_text.upper()


def list_variables(part: RowPatternPart) -> Iterator[str]:
    """The variables in order of their occurrence, with duplicates."""
    match part:
        case Variable(name):
            yield name
        case Concatenation(parts) | Alternation(parts):
            for inner in parts:
                yield from list_variables(inner)
        case Exclusion(inner) | Repetition(inner):
            yield from list_variables(inner)


def contains_part(part: RowPatternPart, kind: type) -> bool:
    """Whether a pattern contains a part of a type."""
    inner = {Concatenation: "parts", Alternation: "parts", Exclusion: "part", Repetition: "part"}.get(
        type(part)
    )
    inside = getattr(part, inner) if inner else ()
    return isinstance(part, kind) or any(
        contains_part(one, kind) for one in (inside if isinstance(inside, tuple) else (inside,))
    )


def may_be_empty(part: RowPatternPart) -> bool:
    """Whether a pattern matches an empty sequence of rows."""
    match part:
        case Variable():
            return False
        case Anchor():
            return True
        case Concatenation(parts):
            return all(map(may_be_empty, parts))
        case Alternation(parts):
            return any(map(may_be_empty, parts))
        case Exclusion(inner):
            return may_be_empty(inner)
        case Repetition(inner, least):
            return least == 0 or may_be_empty(inner)


class _RowPatternParser:
    """A recursive descent parser, with a method for each level of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        self.position = 0
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.error(f"{text[at:].strip()[0]!r} is not expected there")
            word, quoted, number, sign = found.groups()
            name = word.upper() if word else quoted.replace('""', '"') if quoted else None
            self.tokens.append(("name", name) if name else ("number", number) if number else ("sign", sign))
            at = found.end()

    @property
    def peek(self) -> str | None:
        """The next word or sign."""
        return self.tokens[self.position][1] if self.position < len(self.tokens) else None

    def parse_alternatives(self) -> RowPatternPart:
        parts = [self.parse_sequence()]
        while self.accept("|"):
            parts.append(self.parse_sequence())
        return parts[0] if len(parts) == 1 else Alternation(tuple(parts))

    def parse_sequence(self) -> RowPatternPart:
        parts: list[RowPatternPart] = []
        while self.peek is not None and (
            self.tokens[self.position][0] == "name" or self.peek in ("(", "{-", "^", "$")
        ):
            parts.append(self.parse_quantified())
        if not parts:
            raise self.error(
                "it ends too early" if self.peek is None else f"{self.peek!r} is not expected here"
            )
        return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))

    def parse_quantified(self) -> RowPatternPart:
        part = self.parse_primary()
        sign = self.peek
        if (
            self.position == len(self.tokens)
            or self.tokens[self.position][0] != "sign"
            or sign not in (*_QUANTIFIERS, "{")
        ):
            return part
        self.position += 1
        least, most = self.parse_braces() if sign == "{" else _QUANTIFIERS[sign]
        return Repetition(part, least, most, self.accept("?"))

    def parse_primary(self) -> RowPatternPart:
        kind, word = self.tokens[self.position]
        self.position += 1
        if kind == "name":
            return self.parse_permutation() if word == "PERMUTE" and self.peek == "(" else Variable(word)
        if word in "^$":
            return Anchor(is_end=word == "$")
        if word == "{-":
            inner = self.parse_alternatives()
            self.expect("-}")
            return Exclusion(inner)
        if self.accept(")"):
            return Concatenation(())
        inner = self.parse_alternatives()
        self.expect(")")
        return inner

    def parse_permutation(self) -> RowPatternPart:
        self.expect("(")
        parts = [self.parse_alternatives()]
        while self.accept(","):
            parts.append(self.parse_alternatives())
        self.expect(")")
        if len(parts) > MAX_PERMUTED:
            raise self.error(
                f"PERMUTE of {len(parts)} things has too many orders; use at most {MAX_PERMUTED}"
            )
        return Alternation(tuple(Concatenation(order) for order in permutations(parts)))

    def parse_braces(self) -> tuple[int, int | None]:
        least = self.parse_number()
        if least is not None and self.accept("}"):
            if least == 0:
                raise self.error("{0} allows no row; leave the part out")
            return least, least
        self.expect(",")
        most = self.parse_number()
        self.expect("}")
        if most is not None and (most == 0 or most < (least or 0)):
            raise self.error(
                f"{{{least or ''},{most}}} allows no number of rows; use {{least,most}} with "
                "least <= most and most > 0"
            )
        return least or 0, most

    def parse_number(self) -> int | None:
        if self.position < len(self.tokens) and self.tokens[self.position][0] == "number":
            self.position += 1
            return int(self.tokens[self.position - 1][1])
        return None

    def accept(self, sign: str) -> bool:
        if self.position < len(self.tokens) and self.tokens[self.position] == ("sign", sign):
            self.position += 1
            return True
        return False

    def expect(self, sign: str) -> None:
        if not self.accept(sign):
            raise self.error(f"{sign!r} is expected in place of {self.peek or 'the end'!r}")

    def error(self, reason: str) -> DefinitionError:
        return DefinitionError(f"the row pattern {self.text.strip()!r} is not understood: {reason}")
