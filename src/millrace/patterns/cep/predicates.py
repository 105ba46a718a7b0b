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
from millrace.patterns.cep.shared_buffer import MatchTail, PatternEvent, RunningAnswers, walk_back
from millrace.patterns.conditions import Condition, ConditionFunction, EarlierValue, earlier_values

ValueFunction = Callable[[PatternEvent, MatchTail | None], Any]
MAX_CONDITIONS = 62


MaskTest = Callable[[int], bool]


@dataclass(frozen=True)
class Predicate:
    """Whether an event may be taken or passed over by a match. `pure`: the event's mask decides it alone.

    Of any other test the mask may still say that it cannot hold, or that it holds whatever came before.
    """

    holds: Callable[[PatternEvent, MatchTail | None], bool]
    is_row_only: bool
    may_hold: MaskTest = lambda _mask: True
    """Whether it can hold for an event with such a mask."""
    must_hold: MaskTest = lambda _mask: False
    """Whether it holds for every event with such a mask."""

    __test__ = False


ALWAYS = Predicate(lambda _event, _node: True, is_row_only=True, must_hold=lambda _mask: True)


def negate(predicate: Predicate) -> Predicate:
    """Holds where it does not."""
    inner, may, must = predicate.holds, predicate.may_hold, predicate.must_hold
    return Predicate(
        lambda event, node: not inner(event, node),
        predicate.is_row_only,
        lambda mask: not must(mask),
        lambda mask: not may(mask),
    )


def require_both(one: Predicate, other: Predicate) -> Predicate:
    """Holds where both hold."""
    if one is ALWAYS or other is ALWAYS:
        return other if one is ALWAYS else one
    a, b = one.holds, other.holds
    return Predicate(
        lambda event, node: a(event, node) and b(event, node),
        one.is_row_only and other.is_row_only,
        lambda mask: one.may_hold(mask) and other.may_hold(mask),
        lambda mask: one.must_hold(mask) and other.must_hold(mask),
    )


def require_either(one: Predicate, other: Predicate) -> Predicate:
    """Holds where one of both holds."""
    a, b = one.holds, other.holds
    return Predicate(
        lambda event, node: a(event, node) or b(event, node),
        one.is_row_only and other.is_row_only,
        lambda mask: one.may_hold(mask) or other.may_hold(mask),
        lambda mask: one.must_hold(mask) or other.must_hold(mask),
    )


@dataclass
class PredicateCompiler:
    """Makes tests of conditions, and collects the columns that they need."""

    answers: RunningAnswers
    bits: list[pl.Expr] = field(default_factory=list)
    extras: list[pl.Expr] = field(default_factory=list)

    def compile(self, condition: Condition | None) -> Predicate:
        """A condition as a test."""
        if condition is None:
            return ALWAYS
        predicates = [self._compile_term(term) for term in condition.terms]
        joined = predicates[0]
        for predicate in predicates[1:]:
            joined = (
                require_either(joined, predicate) if condition.is_any else require_both(joined, predicate)
            )
        return joined

    def mask(self) -> pl.Expr:
        """The column of bits."""
        bits = [
            expr.cast(pl.Boolean).fill_null(value=False).cast(pl.Int64) * (1 << i)
            for i, expr in enumerate(self.bits)
        ]
        return pl.sum_horizontal(bits) if bits else pl.lit(0, pl.Int64)

    def _compile_term(self, term: pl.Expr | ConditionFunction | Condition) -> Predicate:
        if isinstance(term, Condition):
            return self.compile(term)
        if not isinstance(term, pl.Expr):
            return self._compile_function(term)
        if earlier_values(term):
            return self._compile_earlier(term)
        bit = 1 << _index_of(self.bits, term)
        if len(self.bits) > MAX_CONDITIONS:
            raise DefinitionError(
                f"a pattern has more than {MAX_CONDITIONS} different conditions; join some with | or &, or split the pattern"
            )

        def is_set(mask: int) -> bool:
            return mask & bit != 0

        return Predicate(
            lambda event, _node: event.mask & bit != 0, is_row_only=True, may_hold=is_set, must_hold=is_set
        )

    def _compile_earlier(self, term: pl.Expr) -> Predicate:
        """A test that asks about earlier events; what it says of the row besides is asked first, of the mask."""
        tree = json.loads(term.meta.serialize(format="json"))
        match tree:
            case {"BinaryExpr": {"op": "And" | "LogicalAnd"}}:
                right, left = (self._compile_term(child) for child in term.meta.pop())
                return (
                    require_both(left, right)
                    if left.is_row_only or not right.is_row_only
                    else require_both(right, left)
                )
            case _:
                value = self._compile_value(term)
                return Predicate(lambda event, node: value(event, node) is True, is_row_only=False)

    def _compile_function(self, function: ConditionFunction) -> Predicate:
        columns, steps = self.answers.columns, self.answers.steps
        self.answers.looks_back = True

        def holds(event: PatternEvent, node: MatchTail | None) -> bool:
            match: dict[str, list[dict[str, Any]]] = {}
            for one in reversed(list(walk_back(node, -1 if node is None else node.start_seq))):
                match.setdefault(steps[one.step], []).append(dict(zip(columns, one.event.row, strict=False)))
            return bool(function(dict(zip(columns, event.row, strict=False)), match))

        return Predicate(holds, is_row_only=False)

    def _compile_value(self, expr: pl.Expr) -> ValueFunction:
        if not expr.meta.root_names():
            constant = pl.select(expr).item()
            return lambda _event, _node: constant
        if not earlier_values(expr):
            place = _index_of(self.extras, expr)
            return lambda event, _node: event.extra[place]
        tree = json.loads(expr.meta.serialize(format="json"))
        match tree:
            case {"Column": str(name)}:
                answer = self.answers.answer(EarlierValue.parse(name) or EarlierValue("", None, None))
                return lambda _event, node: answer(node)
            case {"BinaryExpr": {"op": str(op)}} if op in _OPERATORS or op in (
                "And",
                "Or",
                "LogicalAnd",
                "LogicalOr",
            ):
                right, left = (self._compile_value(child) for child in expr.meta.pop())
                return (
                    _logical_operation(op.removeprefix("Logical"), left, right)
                    if op not in _OPERATORS
                    else _strict_operation(_OPERATORS[op], left, right)
                )
            case {"Function": {"function": name}} if (function := _FUNCTIONS.get(str(name))) is not None:
                [inner] = (self._compile_value(child) for child in expr.meta.pop())
                return lambda event, node: None if (value := inner(event, node)) is None else function(value)
            case _:
                return self._compile_with_polars(expr)

    def _compile_with_polars(self, expr: pl.Expr) -> ValueFunction:
        self.answers.cost_per_event = 100
        values = {name: self._compile_value(pl.col(name)) for name in dict.fromkeys(expr.meta.root_names())}
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


def _nan_on_error(function: Callable[[float], float]) -> Callable[[Any], float]:
    """Where there is no answer, it is not a number."""

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
    str({"Pow": "Sqrt"}): _nan_on_error(math.sqrt),
    str({"Trigonometry": "Sin"}): _nan_on_error(math.sin),
    str({"Trigonometry": "Cos"}): _nan_on_error(math.cos),
    str({"Trigonometry": "ArcSin"}): _nan_on_error(math.asin),
}
"""Functions of one value, by what polars calls them."""


def _strict_operation(
    op: Callable[[Any, Any], Any], left: ValueFunction, right: ValueFunction
) -> ValueFunction:
    def value(event: PatternEvent, node: MatchTail | None) -> Any:
        a, b = left(event, node), right(event, node)
        return None if a is None or b is None else op(a, b)

    return value


def _logical_operation(op: str, left: ValueFunction, right: ValueFunction) -> ValueFunction:
    decides = op == "Or"

    def value(event: PatternEvent, node: MatchTail | None) -> Any:
        a = left(event, node)
        if a is decides:
            return decides
        b = right(event, node)
        if b is decides:
            return decides
        return None if a is None or b is None else not decides

    return value


def _index_of(expressions: list[pl.Expr], expr: pl.Expr) -> int:
    for place, other in enumerate(expressions):
        if other.meta.eq(expr):
            return place
    expressions.append(expr)
    return len(expressions) - 1


def columns_of(steps: Sequence[Condition | None]) -> set[str]:
    """The columns of the row that conditions look at, directly or in earlier events."""
    found: set[str] = set()
    for expr in expressions_of(steps):
        names = [(name, EarlierValue.parse(name)) for name in expr.meta.root_names()]
        found |= {one.column if one else name for name, one in names if one is None or one.column is not None}  # type: ignore[misc]
    return found


def expressions_of(steps: Sequence[Condition | None]) -> Iterator[pl.Expr]:
    """The expressions of conditions."""
    return (expr for condition in steps if condition for expr in condition.expressions())


def check_conditions(steps: Sequence[Condition | None], schema: pl.Schema) -> None:
    """Refuses what types do not allow, of the row and of earlier events, and what is neither true nor false."""
    rows = schema.to_frame()
    for expr in expressions_of(steps):
        answers = [one.aggregate(pl.col(one.column or next(iter(schema)))) for one in earlier_values(expr)]
        [dtype] = rows.select(pl.all(), *answers).select(expr).dtypes
        if dtype not in (pl.Boolean, pl.Null):
            raise DefinitionError(
                f"the condition {expr} is {dtype}, which is neither true nor false; compare it, as in `... > 0`"
            )
