"""The text form of conditions, for declared patterns. It is parsed into the polars expressions of
`conditions.py`.

Rules come from topics, so the text is untrusted: nothing in it is run as Python, and its length and depth are
limited. Grammar:

or, and, not; == != < <= > >=; + - * /; brackets; numbers, 'text', true, false, null; fields; contains(f,
's'), starts_with(f, 's'), abs(e); first|last|sum|avg|min|max(STEP.field), count(STEP), previous(field)
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
_FIELD_FUNCTIONS = {
    "first": conditions.first,
    "last": conditions.last,
    "sum": conditions.sum,
    "avg": conditions.avg,
    "min": conditions.min,
    "max": conditions.max,
}
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}


MAX_TOKENS, MAX_DEPTH = 500, 30
"""The limits of a condition: its words and signs, and the depth of its brackets and negations."""


def parse_condition(text: str) -> pl.Expr:
    """The expression in a text."""
    return _ConditionParser(str(text)).parse()


class _ConditionParser:
    """Recursive descent. Each method parses operators that bind tighter than those of the method before."""

    def __init__(self, text: str) -> None:
        self.text, self.position, self.depth = text, 0, 0
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.error(f"{text[at:].strip()[0]!r} is not part of the language")
            kinds = ("number", "text", "word", "sign")
            self.tokens.append(
                next(
                    (kind, group)
                    for kind, group in zip(kinds, found.groups(), strict=True)
                    if group is not None
                )
            )
            at = found.end()
            if len(self.tokens) > MAX_TOKENS:
                raise self.error(
                    f"it has more than {MAX_TOKENS} words and signs; divide it into several steps or rules"
                )

    def parse(self) -> pl.Expr:
        expr = self.parse_or()
        if self.position < len(self.tokens):
            raise self.error(f"{self.tokens[self.position][1]!r} is not expected here")
        return expr

    def parse_or(self) -> pl.Expr:
        expr = self.parse_and()
        while self.accept("or"):
            expr = expr | self.parse_and()
        return expr

    def parse_and(self) -> pl.Expr:
        expr = self.parse_not()
        while self.accept("and"):
            expr = expr & self.parse_not()
        return expr

    def parse_not(self) -> pl.Expr:
        if not self.accept("not"):
            return self.parse_comparison()
        with self.nested():
            return ~self.parse_not()

    def parse_comparison(self) -> pl.Expr:
        expr = self.parse_sum()
        for sign, compare in _COMPARISONS.items():
            if self.accept(sign):
                return compare(expr, self.parse_sum())
        return expr

    def parse_sum(self) -> pl.Expr:
        expr = self.parse_product()
        while self.peek() in ("+", "-"):
            expr = (
                expr + self.parse_product() if self.accept("+") else expr - self._expect("-").parse_product()
            )
        return expr

    def parse_product(self) -> pl.Expr:
        expr = self.parse_operand()
        while self.peek() in ("*", "/"):
            expr = (
                expr * self.parse_operand() if self.accept("*") else expr / self._expect("/").parse_operand()
            )
        return expr

    def parse_operand(self) -> pl.Expr:
        if self.accept("-"):
            with self.nested():
                return pl.lit(0) - self.parse_operand()
        if self.accept("("):
            with self.nested():
                expr = self.parse_or()
            self.expect(")")
            return expr
        kind, word = self.next()
        if kind == "number":
            return pl.lit(float(word) if "." in word else self.parse_integer(word))
        if kind == "text":
            return pl.lit(re.sub(r"\\(.)", r"\1", word[1:-1]))
        if kind != "word":
            raise self.error(f"{word!r} is not expected here")
        if self.accept("("):
            with self.nested():
                return self.parse_call(word)
        return pl.lit(_CONSTANTS[word]) if word in _CONSTANTS else pl.col(word)

    def parse_call(self, name: str) -> pl.Expr:
        if name in _FIELD_FUNCTIONS:
            step = self.next_name()
            self.expect(".")
            expr = _FIELD_FUNCTIONS[name](step, self.next_name())
        elif name == "count":
            expr = conditions.count(self.next_name())
        elif name == "previous":
            expr = conditions.previous(self.next_name())
        elif name == "abs":
            expr = self.parse_or().abs()
        elif name in ("contains", "starts_with"):
            field = self.parse_or()
            self.expect(",")
            part = self.parse_or()
            expr = (
                field.str.contains(part, literal=True) if name == "contains" else field.str.starts_with(part)
            )
        else:
            functions = ", ".join((*_FIELD_FUNCTIONS, "count", "previous", "contains", "starts_with", "abs"))
            raise self.error(f"there is no function {name!r}; the functions are {functions}")
        self.expect(")")
        return expr

    def _expect(self, sign: str) -> _ConditionParser:
        self.expect(sign)
        return self

    def peek(self) -> str | None:
        if self.position == len(self.tokens) or self.tokens[self.position][0] in ("text", "number"):
            return None
        return self.tokens[self.position][1]

    def accept(self, word: str) -> bool:
        if self.peek() != word:
            return False
        self.position += 1
        return True

    def next(self) -> tuple[str, str]:
        if self.position == len(self.tokens):
            raise self.error("it ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def next_name(self) -> str:
        kind, word = self.next()
        if kind != "word":
            raise self.error(f"a name is expected in place of {word!r}")
        return word

    def expect(self, sign: str) -> None:
        if not self.accept(sign):
            found = self.tokens[self.position][1] if self.position < len(self.tokens) else "the end"
            raise self.error(f"{sign!r} is expected in place of {found!r}")

    def parse_integer(self, word: str) -> int:
        if len(word) > 18:
            raise self.error(f"{word[:20]}… is not a 64-bit integer; use a smaller one, or a decimal point")
        return int(word)

    @contextmanager
    def nested(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"its brackets and negations are more than {MAX_DEPTH} deep; simplify it")
        yield
        self.depth -= 1

    def error(self, reason: str) -> DefinitionError:
        shown = self.text if len(self.text) <= 200 else f"{self.text[:200]}…"
        return DefinitionError(f"the condition {shown!r} cannot be parsed: {reason}")
