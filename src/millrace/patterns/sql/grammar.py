"""Row patterns as they are written in SQL: variables, sequences, alternatives, repetitions, exclusions, permutations and anchors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from millrace.errors import DefinitionError

MOST_PERMUTED = 6
"""A permutation of n things is n! sequences."""


@dataclass(frozen=True)
class Variable:
    """One row, mapped to a variable."""

    name: str


@dataclass(frozen=True)
class Anchor:
    """Before the first row of a partition, or after its last."""

    end: bool


@dataclass(frozen=True)
class Sequence:
    """One after the other; of nothing: the empty pattern."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Alternatives:
    """The first that leads to a match is preferred."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Excluded:
    """Rows that are matched, but not shown by ALL ROWS PER MATCH."""

    part: Part


@dataclass(frozen=True)
class Repeated:
    """From `least` to `most` times, as often as possible, or, if reluctant, as seldom."""

    part: Part
    least: int
    most: int | None
    reluctant: bool


Part = Variable | Anchor | Sequence | Alternatives | Excluded | Repeated

_TOKEN = re.compile(r'\s*(?:([A-Za-z_]\w*)|"((?:[^"]|"")+)"|(\d+)|(\{-|-\}|[(){},|*+?^$]))')
_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def read(text: str) -> Part:
    """The pattern in a text such as `A B+? (C | D)*`."""
    reader = _Reader(text)
    part = reader.alternatives()
    if reader.peek is not None:
        raise reader.wrong(f"{reader.peek!r} is not expected here")
    return part


def identifier(said: str) -> str:
    """The name that is meant: without quotes its case does not matter."""
    return said[1:-1].replace('""', '"') if said.startswith('"') else said.upper()


def variables(part: Part) -> Iterator[str]:
    """Every variable, in order, repeated where it is repeated."""
    match part:
        case Variable(name):
            yield name
        case Sequence(parts) | Alternatives(parts):
            for inner in parts:
                yield from variables(inner)
        case Excluded(inner) | Repeated(inner):
            yield from variables(inner)


def any_of(part: Part, kind: type) -> bool:
    """Whether something of a kind is in a pattern."""
    inner = {Sequence: "parts", Alternatives: "parts", Excluded: "part", Repeated: "part"}.get(type(part))
    inside = getattr(part, inner) if inner else ()
    return isinstance(part, kind) or any(
        any_of(one, kind) for one in (inside if isinstance(inside, tuple) else (inside,))
    )


def may_be_empty(part: Part) -> bool:
    """Whether a pattern can be fulfilled by no row."""
    match part:
        case Variable():
            return False
        case Anchor():
            return True
        case Sequence(parts):
            return all(map(may_be_empty, parts))
        case Alternatives(parts):
            return any(map(may_be_empty, parts))
        case Excluded(inner):
            return may_be_empty(inner)
        case Repeated(inner, least):
            return least == 0 or may_be_empty(inner)


class _Reader:
    """Reads a pattern by recursive descent, one method for each level of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        self.place = 0
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.wrong(f"{text[at:].strip()[0]!r} is not expected there")
            word, quoted, number, sign = found.groups()
            name = word.upper() if word else quoted.replace('""', '"') if quoted else None
            self.tokens.append(("name", name) if name else ("number", number) if number else ("sign", sign))
            at = found.end()

    @property
    def peek(self) -> str | None:
        """The sign that comes next, or the word."""
        return self.tokens[self.place][1] if self.place < len(self.tokens) else None

    def alternatives(self) -> Part:
        parts = [self.sequence()]
        while self.took("|"):
            parts.append(self.sequence())
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def sequence(self) -> Part:
        parts: list[Part] = []
        while self.peek is not None and (
            self.tokens[self.place][0] == "name" or self.peek in ("(", "{-", "^", "$")
        ):
            parts.append(self.quantified())
        if not parts:
            raise self.wrong(
                "it ends too early" if self.peek is None else f"{self.peek!r} is not expected here"
            )
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def quantified(self) -> Part:
        part = self.primary()
        sign = self.peek
        if (
            self.place == len(self.tokens)
            or self.tokens[self.place][0] != "sign"
            or sign not in (*_QUANTIFIERS, "{")
        ):
            return part
        self.place += 1
        least, most = self.braces() if sign == "{" else _QUANTIFIERS[sign]
        return Repeated(part, least, most, self.took("?"))

    def primary(self) -> Part:
        kind, word = self.tokens[self.place]
        self.place += 1
        if kind == "name":
            return self.permuted() if word == "PERMUTE" and self.peek == "(" else Variable(word)
        if word in "^$":
            return Anchor(end=word == "$")
        if word == "{-":
            inner = self.alternatives()
            self.need("-}")
            return Excluded(inner)
        if self.took(")"):
            return Sequence(())
        inner = self.alternatives()
        self.need(")")
        return inner

    def permuted(self) -> Part:
        self.need("(")
        parts = [self.alternatives()]
        while self.took(","):
            parts.append(self.alternatives())
        self.need(")")
        if len(parts) > MOST_PERMUTED:
            raise self.wrong(
                f"PERMUTE of {len(parts)} things has too many orders; use at most {MOST_PERMUTED}"
            )
        return Alternatives(tuple(Sequence(order) for order in permutations(parts)))

    def braces(self) -> tuple[int, int | None]:
        least = self.number()
        if least is not None and self.took("}"):
            if least == 0:
                raise self.wrong("{0} allows no row; leave the part out")
            return least, least
        self.need(",")
        most = self.number()
        self.need("}")
        if most is not None and (most == 0 or most < (least or 0)):
            raise self.wrong(
                f"{{{least or ''},{most}}} allows no number of rows; use {{least,most}} with least <= most and most > 0"
            )
        return least or 0, most

    def number(self) -> int | None:
        if self.place < len(self.tokens) and self.tokens[self.place][0] == "number":
            self.place += 1
            return int(self.tokens[self.place - 1][1])
        return None

    def took(self, sign: str) -> bool:
        if self.place < len(self.tokens) and self.tokens[self.place] == ("sign", sign):
            self.place += 1
            return True
        return False

    def need(self, sign: str) -> None:
        if not self.took(sign):
            raise self.wrong(f"{sign!r} is expected in place of {self.peek or 'the end'!r}")

    def wrong(self, why: str) -> DefinitionError:
        return DefinitionError(f"the row pattern {self.text.strip()!r} is not understood: {why}")
