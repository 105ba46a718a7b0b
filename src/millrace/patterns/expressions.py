"""The language of conditions in declarative patterns, read into polars expressions. Nothing in it is run as Python.

or, and, not; == != < <= > >=; + - * /; brackets; numbers, 'text', true, false, null; fields;
contains(f, 's'), starts_with(f, 's'), abs(e); first|last|sum|avg|min|max(STEP.field), count(STEP), previous(field)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import polars as pl

from millrace.errors import DefinitionError
from millrace.patterns import conditions

_TOKEN = re.compile(
    r"\s*(?:(\d+\.\d*|\.\d+|\d+)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|([A-Za-z_]\w*)|(==|!=|<>|<=|>=|[-+*/()<>=,.]))"
)
_COMPARISONS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "==": lambda a, b: a == b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_OF_FIELDS = {
    "first": conditions.first,
    "last": conditions.last,
    "sum": conditions.sum,
    "avg": conditions.avg,
    "min": conditions.min,
    "max": conditions.max,
}
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}


MOST_WORDS, MOST_DEPTH = 500, 30
"""How many words and signs a condition may have, and how deep its brackets and negations may be."""


def parse(text: str) -> pl.Expr:
    """An expression of the language; the error names the place where it is not understood."""
    return _Reader(str(text)).whole()


class _Reader:
    """Reads from left to right; each method reads what binds tighter than the one before."""

    def __init__(self, text: str) -> None:
        self.text, self.place, self.depth = text, 0, 0
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.wrong(f"{text[at:].strip()[0]!r} is not part of the language")
            kinds = ("number", "text", "word", "sign")
            self.tokens.append(
                next(
                    (kind, group)
                    for kind, group in zip(kinds, found.groups(), strict=True)
                    if group is not None
                )
            )
            at = found.end()
            if len(self.tokens) > MOST_WORDS:
                raise self.wrong(
                    f"it has more than {MOST_WORDS} words and signs; divide it into several steps or rules"
                )

    def whole(self) -> pl.Expr:
        expr = self.either()
        if self.place < len(self.tokens):
            raise self.wrong(f"{self.tokens[self.place][1]!r} is not expected here")
        return expr

    def either(self) -> pl.Expr:
        expr = self.both()
        while self.took("or"):
            expr = expr | self.both()
        return expr

    def both(self) -> pl.Expr:
        expr = self.negation()
        while self.took("and"):
            expr = expr & self.negation()
        return expr

    def negation(self) -> pl.Expr:
        if not self.took("not"):
            return self.comparison()
        with self.deeper():
            return ~self.negation()

    def comparison(self) -> pl.Expr:
        expr = self.total()
        for sign, compare in _COMPARISONS.items():
            if self.took(sign):
                return compare(expr, self.total())
        return expr

    def total(self) -> pl.Expr:
        expr = self.product()
        while self.peek() in ("+", "-"):
            expr = expr + self.product() if self.took("+") else expr - self._after("-").product()
        return expr

    def product(self) -> pl.Expr:
        expr = self.single()
        while self.peek() in ("*", "/"):
            expr = expr * self.single() if self.took("*") else expr / self._after("/").single()
        return expr

    def single(self) -> pl.Expr:
        if self.took("-"):
            with self.deeper():
                return pl.lit(0) - self.single()
        if self.took("("):
            with self.deeper():
                expr = self.either()
            self.need(")")
            return expr
        kind, word = self.next()
        if kind == "number":
            return pl.lit(float(word) if "." in word else self.integer(word))
        if kind == "text":
            return pl.lit(re.sub(r"\\(.)", r"\1", word[1:-1]))
        if kind != "word":
            raise self.wrong(f"{word!r} is not expected here")
        if self.took("("):
            with self.deeper():
                return self.call(word)
        return pl.lit(_CONSTANTS[word]) if word in _CONSTANTS else pl.col(word)

    def call(self, name: str) -> pl.Expr:
        if name in _OF_FIELDS:
            step = self.word()
            self.need(".")
            expr = _OF_FIELDS[name](step, self.word())
        elif name == "count":
            expr = conditions.count(self.word())
        elif name == "previous":
            expr = conditions.previous(self.word())
        elif name == "abs":
            expr = self.either().abs()
        elif name in ("contains", "starts_with"):
            field = self.either()
            self.need(",")
            part = self.either()
            expr = (
                field.str.contains(part, literal=True) if name == "contains" else field.str.starts_with(part)
            )
        else:
            known = ", ".join((*_OF_FIELDS, "count", "previous", "contains", "starts_with", "abs"))
            raise self.wrong(f"there is no function {name!r}; there are {known}")
        self.need(")")
        return expr

    def _after(self, sign: str) -> _Reader:
        self.need(sign)
        return self

    def peek(self) -> str | None:
        if self.place == len(self.tokens) or self.tokens[self.place][0] in ("text", "number"):
            return None
        return self.tokens[self.place][1]

    def took(self, word: str) -> bool:
        if self.peek() != word:
            return False
        self.place += 1
        return True

    def next(self) -> tuple[str, str]:
        if self.place == len(self.tokens):
            raise self.wrong("it ends too early")
        self.place += 1
        return self.tokens[self.place - 1]

    def word(self) -> str:
        kind, word = self.next()
        if kind != "word":
            raise self.wrong(f"a name is expected in place of {word!r}")
        return word

    def need(self, sign: str) -> None:
        if not self.took(sign):
            found = self.tokens[self.place][1] if self.place < len(self.tokens) else "the end"
            raise self.wrong(f"{sign!r} is expected in place of {found!r}")

    def integer(self, word: str) -> int:
        if len(word) > 18:
            raise self.wrong(f"{word[:20]}… is not a 64-bit integer; use a smaller one, or a decimal point")
        return int(word)

    @contextmanager
    def deeper(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise self.wrong(f"its brackets and negations are more than {MOST_DEPTH} deep; simplify it")
        yield
        self.depth -= 1

    def wrong(self, why: str) -> DefinitionError:
        shown = self.text if len(self.text) <= 200 else f"{self.text[:200]}…"
        return DefinitionError(f"the condition {shown!r} is not understood: {why}")
