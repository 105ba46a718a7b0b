"""Conditions made ready: what concerns the row alone is a column of bits, the rest a few operations in plain Python.

An expression that asks about earlier events is cut: parts that look at the row alone are computed as columns, once per batch; only
the operators above them run for each event and each match that has begun. What they cannot say falls back to polars, on one row.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from millrace.errors import DefinitionError
from millrace.patterns.cep.match_buffer import Event, Memory, Node, chain
from millrace.patterns.conditions import Asked, Condition, Function, asked

Value = Callable[[Event, Node | None], Any]
MOST_CONDITIONS = 62


Mask = Callable[[int], bool]


@dataclass(frozen=True)
class Test:
    """Whether an event may be taken or passed over by a match. `pure`: the event's mask decides it alone.

    Of any other test the mask may still say that it cannot hold, or that it holds whatever came before.
    """

    holds: Callable[[Event, Node | None], bool]
    pure: bool
    may: Mask = lambda _mask: True
    """Whether it can hold for an event with such a mask."""
    must: Mask = lambda _mask: False
    """Whether it holds for every event with such a mask."""

    __test__ = False


ALWAYS = Test(lambda _event, _node: True, pure=True, must=lambda _mask: True)


def negated(test: Test) -> Test:
    """Holds where it does not."""
    inner, may, must = test.holds, test.may, test.must
    return Test(
        lambda event, node: not inner(event, node),
        test.pure,
        lambda mask: not must(mask),
        lambda mask: not may(mask),
    )


def both(one: Test, other: Test) -> Test:
    """Holds where both hold."""
    if one is ALWAYS or other is ALWAYS:
        return other if one is ALWAYS else one
    a, b = one.holds, other.holds
    return Test(
        lambda event, node: a(event, node) and b(event, node),
        one.pure and other.pure,
        lambda mask: one.may(mask) and other.may(mask),
        lambda mask: one.must(mask) and other.must(mask),
    )


def either(one: Test, other: Test) -> Test:
    """Holds where one of both holds."""
    a, b = one.holds, other.holds
    return Test(
        lambda event, node: a(event, node) or b(event, node),
        one.pure and other.pure,
        lambda mask: one.may(mask) or other.may(mask),
        lambda mask: one.must(mask) or other.must(mask),
    )


@dataclass
class Tests:
    """Makes tests of conditions, and collects the columns that they need."""

    memory: Memory
    bits: list[pl.Expr] = field(default_factory=list)
    extras: list[pl.Expr] = field(default_factory=list)

    def of(self, condition: Condition | None) -> Test:
        """A condition as a test."""
        if condition is None:
            return ALWAYS
        made = [self._term(term) for term in condition.terms]
        joined = made[0]
        for test in made[1:]:
            joined = either(joined, test) if condition.any else both(joined, test)
        return joined

    def mask(self) -> pl.Expr:
        """The column of bits."""
        bits = [
            expr.cast(pl.Boolean).fill_null(value=False).cast(pl.Int64) * (1 << i)
            for i, expr in enumerate(self.bits)
        ]
        return pl.sum_horizontal(bits) if bits else pl.lit(0, pl.Int64)

    def _term(self, term: pl.Expr | Function | Condition) -> Test:
        if isinstance(term, Condition):
            return self.of(term)
        if not isinstance(term, pl.Expr):
            return self._call(term)
        if asked(term):
            return self._asking(term)
        bit = 1 << _place(self.bits, term)
        if len(self.bits) > MOST_CONDITIONS:
            raise DefinitionError(
                f"a pattern has more than {MOST_CONDITIONS} different conditions; join some with | or &, or split the pattern"
            )

        def is_set(mask: int) -> bool:
            return mask & bit != 0

        return Test(lambda event, _node: event.mask & bit != 0, pure=True, may=is_set, must=is_set)

    def _asking(self, term: pl.Expr) -> Test:
        """A test that asks about earlier events; what it says of the row besides is asked first, of the mask."""
        said = json.loads(term.meta.serialize(format="json"))
        match said:
            case {"BinaryExpr": {"op": "And" | "LogicalAnd"}}:
                right, left = (self._term(child) for child in term.meta.pop())
                return both(left, right) if left.pure or not right.pure else both(right, left)
            case _:
                value = self._value(term)
                return Test(lambda event, node: value(event, node) is True, pure=False)

    def _call(self, function: Function) -> Test:
        columns, steps = self.memory.columns, self.memory.steps
        self.memory.looks_back = True

        def holds(event: Event, node: Node | None) -> bool:
            match: dict[str, list[dict[str, Any]]] = {}
            for one in reversed(list(chain(node, -1 if node is None else node.first))):
                match.setdefault(steps[one.step], []).append(dict(zip(columns, one.event.row, strict=False)))
            return bool(function(dict(zip(columns, event.row, strict=False)), match))

        return Test(holds, pure=False)

    def _value(self, expr: pl.Expr) -> Value:
        if not expr.meta.root_names():
            constant = pl.select(expr).item()
            return lambda _event, _node: constant
        if not asked(expr):
            place = _place(self.extras, expr)
            return lambda event, _node: event.extra[place]
        said = json.loads(expr.meta.serialize(format="json"))
        match said:
            case {"Column": str(name)}:
                answer = self.memory.answer(Asked.of(name) or Asked("", None, None))
                return lambda _event, node: answer(node)
            case {"BinaryExpr": {"op": str(op)}} if op in _OPERATORS or op in (
                "And",
                "Or",
                "LogicalAnd",
                "LogicalOr",
            ):
                right, left = (self._value(child) for child in expr.meta.pop())
                return (
                    _logic(op.removeprefix("Logical"), left, right)
                    if op not in _OPERATORS
                    else _plain(_OPERATORS[op], left, right)
                )
            case {"Function": {"function": name}} if (function := _FUNCTIONS.get(str(name))) is not None:
                [inner] = (self._value(child) for child in expr.meta.pop())
                return lambda event, node: None if (value := inner(event, node)) is None else function(value)
            case _:
                return self._by_polars(expr)

    def _by_polars(self, expr: pl.Expr) -> Value:
        self.memory.weight = 100
        values = {name: self._value(pl.col(name)) for name in dict.fromkeys(expr.meta.root_names())}
        return lambda event, node: (
            pl.select(pl.lit(value(event, node)).alias(name) for name, value in values.items())
            .select(expr)
            .item()
        )


def _true_divide(a: Any, b: Any) -> Any:
    return a / b if b else (float("nan") if not a else float("inf") if a > 0 else float("-inf"))


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtEq": operator.le,
    "Gt": operator.gt,
    "GtEq": operator.ge,
    "Plus": operator.add,
    "Minus": operator.sub,
    "Multiply": operator.mul,
    "TrueDivide": _true_divide,
}


def _real(function: Callable[[float], float]) -> Callable[[Any], float]:
    """Where there is no answer, it is no number."""

    def value(of: Any) -> float:
        try:
            return function(of)
        except ValueError:
            return float("nan")

    return value


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "Abs": abs,
    "Negate": operator.neg,
    str({"Boolean": "Not"}): operator.not_,
    str({"Pow": "Sqrt"}): _real(math.sqrt),
    str({"Trigonometry": "Sin"}): _real(math.sin),
    str({"Trigonometry": "Cos"}): _real(math.cos),
    str({"Trigonometry": "ArcSin"}): _real(math.asin),
}
"""Functions of one value, by what polars calls them."""


def _plain(op: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    def value(event: Event, node: Node | None) -> Any:
        a, b = left(event, node), right(event, node)
        return None if a is None or b is None else op(a, b)

    return value


def _logic(op: str, left: Value, right: Value) -> Value:
    decides = op == "Or"

    def value(event: Event, node: Node | None) -> Any:
        a = left(event, node)
        if a is decides:
            return decides
        b = right(event, node)
        if b is decides:
            return decides
        return None if a is None or b is None else not decides

    return value


def _place(known: list[pl.Expr], expr: pl.Expr) -> int:
    for place, other in enumerate(known):
        if other.meta.eq(expr):
            return place
    known.append(expr)
    return len(known) - 1


def columns_of(steps: Sequence[Condition | None]) -> set[str]:
    """The columns of the row that conditions look at, directly or in earlier events."""
    found: set[str] = set()
    for expr in expressions_of(steps):
        names = [(name, Asked.of(name)) for name in expr.meta.root_names()]
        found |= {one.column if one else name for name, one in names if one is None or one.column is not None}  # type: ignore[misc]
    return found


def expressions_of(steps: Sequence[Condition | None]) -> Iterator[pl.Expr]:
    """The expressions of conditions."""
    return (expr for condition in steps if condition for expr in condition.expressions())


def check_conditions(steps: Sequence[Condition | None], schema: pl.Schema) -> None:
    """Refuses what types do not allow, of the row and of earlier events, and what is neither true nor false."""
    rows = schema.to_frame()
    for expr in expressions_of(steps):
        answers = [one.over(pl.col(one.column or next(iter(schema)))) for one in asked(expr)]
        [dtype] = rows.select(pl.all(), *answers).select(expr).dtypes
        if dtype not in (pl.Boolean, pl.Null):
            raise DefinitionError(
                f"the condition {expr} is {dtype}, which is neither true nor false; compare it, as in `... > 0`"
            )
