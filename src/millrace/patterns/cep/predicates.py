"""Conditions compiled to predicates: a bit of the row's mask where the row alone decides, else a few
operations in plain Python.

An expression on earlier events is cut. Parts that look at the row alone become columns, computed once per
batch. Only the operators above them run per event and partial match. In

    (pl.col("kind") == "b") & (pl.col("value") * 2 > first("a", "value"))

`kind == "b"` becomes a bit, `value * 2` a column of extra values, and `>` a Python comparison with the answer
carried by the match (`shared_buffer.py`). It runs only where the bit is set. An operator that has no
equivalent here falls back to polars, on one row; then each step of the pattern counts 100 times in the work
budget.

A predicate also says what the mask alone tells. `may_hold` and `must_hold` are safe bounds: `may_hold(mask)`
is false only if the predicate holds for no event with that mask, and `must_hold(mask)` is true only if it
holds for all of them. The condition above may hold where the bit is set and must hold nowhere; its negation
must hold where the bit is not set. With these bounds rows are dropped that no partial match can take.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
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
    """A test of an event against a partial match. With `is_row_only`, the mask of the event decides alone."""

    holds: Callable[[PatternEvent, MatchTail | None], bool]
    is_row_only: bool
    may_hold: MaskTest = lambda _mask: True
    """False only if it holds for no event with this mask."""
    must_hold: MaskTest = lambda _mask: False
    """True only if it holds for every event with this mask."""

    __test__ = False


ALWAYS = Predicate(lambda _event, _node: True, is_row_only=True, must_hold=lambda _mask: True)


def negate(predicate: Predicate) -> Predicate:
    """Logical NOT. What may fail to hold need not hold, so the bounds change places."""
    inner, may, must = predicate.holds, predicate.may_hold, predicate.must_hold
    return Predicate(
        lambda event, node: not inner(event, node),
        predicate.is_row_only,
        lambda mask: not must(mask),
        lambda mask: not may(mask),
    )


def require_both(one: Predicate, other: Predicate) -> Predicate:
    """Logical AND."""
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
    """Logical OR."""
    a, b = one.holds, other.holds
    return Predicate(
        lambda event, node: a(event, node) or b(event, node),
        one.is_row_only and other.is_row_only,
        lambda mask: one.may_hold(mask) or other.may_hold(mask),
        lambda mask: one.must_hold(mask) or other.must_hold(mask),
    )


@dataclass
class PredicateCompiler:
    """Compiles conditions, and collects the columns that they need:
    `bits` for the mask, `extras` for values.
    """

    answers: RunningAnswers
    bits: list[pl.Expr] = field(default_factory=list)
    extras: list[pl.Expr] = field(default_factory=list)

    def compile(self, condition: Condition | None) -> Predicate:
        """The predicate of a condition; no condition always holds."""
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
        """The bits of all conditions as one column of whole numbers; null counts as false."""
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
                f"a pattern has more than {MAX_CONDITIONS} different conditions; join some with | or &, or "
                "split the pattern"
            )

        def is_set(mask: int) -> bool:
            return mask & bit != 0

        return Predicate(
            lambda event, _node: event.mask & bit != 0, is_row_only=True, may_hold=is_set, must_hold=is_set
        )

    def _compile_earlier(self, term: pl.Expr) -> Predicate:
        """A condition on earlier events. In a conjunction, the part that the mask decides is tested first."""
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
    """NaN where Python raises, as polars answers."""

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
"""Functions of one value, by their names in serialized polars expressions."""


def _strict_operation(
    op: Callable[[Any, Any], Any], left: ValueFunction, right: ValueFunction
) -> ValueFunction:
    def value(event: PatternEvent, node: MatchTail | None) -> Any:
        a, b = left(event, node), right(event, node)
        if a is None or b is None:
            return None
        try:
            return op(a, b)
        except TypeError:  # a decimal and a float, which polars computes as floats
            if not (isinstance(a, Decimal) or isinstance(b, Decimal)):
                raise
            return op(float(a), float(b))

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
    """The columns that conditions read, of the event itself or of earlier ones."""
    found: set[str] = set()
    for expr in expressions_of(steps):
        names = [(name, EarlierValue.parse(name)) for name in expr.meta.root_names()]
        found |= {one.column if one else name for name, one in names if one is None or one.column is not None}  # type: ignore[misc]
    return found


def expressions_of(steps: Sequence[Condition | None]) -> Iterator[pl.Expr]:
    """The polars expressions in conditions; Python functions are left out."""
    return (expr for condition in steps if condition for expr in condition.expressions())


def check_conditions(steps: Sequence[Condition | None], schema: pl.Schema) -> None:
    """Refuses conditions that do not fit the types of the columns, or are not boolean."""
    rows = schema.to_frame()
    for expr in expressions_of(steps):
        for one in earlier_values(expr):
            if one.kind in ("sum", "avg") and schema.get(one.column or "", pl.Int64()).is_temporal():
                raise DefinitionError(
                    f"the condition {expr} adds up {one.column}, which is {schema[one.column or '']}; make "
                    "a column of numbers first, as with .dt.total_milliseconds()"
                )
        answers = [one.aggregate(pl.col(one.column or next(iter(schema)))) for one in earlier_values(expr)]
        [dtype] = rows.select(pl.all(), *answers).select(expr).dtypes
        if dtype not in (pl.Boolean, pl.Null):
            raise DefinitionError(
                f"the condition {expr} is {dtype}, which is neither true nor false; "
                "compare it, as in `... > 0`"
            )
