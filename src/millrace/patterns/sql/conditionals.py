"""Expressions with rules of their own for null: AND, OR, CASE, IN, BETWEEN, IS, COALESCE, CAST."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from millrace.errors import DefinitionError, PatternFailed
from millrace.patterns.sql import scalars
from millrace.patterns.sql.match_context import CompiledExpression, ExpressionFunction, MatchContext

if TYPE_CHECKING:
    from millrace.patterns.sql.expressions import ExpressionCompiler


CompileFunction = Callable[[exp.Expr], CompiledExpression]


def compile_conditional(
    compiler: ExpressionCompiler, node: exp.Expr, *, inside: bool, final: bool
) -> CompiledExpression | None:
    """The function of a conditional node; None for other nodes."""

    def of(one: exp.Expr) -> CompiledExpression:
        return compiler.compile(one, inside=inside, final=final)

    return _compile_truth(node, of) or _compile_choice(node, of)


def _compile_truth(node: exp.Expr, of: CompileFunction) -> CompiledExpression | None:
    """Expressions of three-valued logic: true, false or unknown."""
    match node:
        case exp.And() | exp.Or():
            return _compile_logical(
                of(node.this).evaluate, of(node.expression).evaluate, decides=isinstance(node, exp.Or)
            )
        case exp.Not():
            inner = of(node.this).evaluate
            return _boolean_expression(
                lambda context, at: None if (result := inner(context, at)) is None else not result
            )
        case exp.Is():
            left, right = of(node.this).evaluate, of(node.expression).evaluate
            return _boolean_expression(lambda context, at: left(context, at) is right(context, at))
        case exp.NullSafeEQ() | exp.NullSafeNEQ():
            left, right, same = (
                of(node.this).evaluate,
                of(node.expression).evaluate,
                isinstance(node, exp.NullSafeEQ),
            )
            return _boolean_expression(lambda context, at: (left(context, at) == right(context, at)) is same)
        case exp.Between():
            low, high = (
                exp.GTE(this=node.this, expression=node.args["low"]),
                exp.LTE(this=node.this, expression=node.args["high"]),
            )
            return _compile_logical(of(low).evaluate, of(high).evaluate, decides=False)
        case exp.In():
            return _compile_in(
                of(node.this).evaluate,
                [of(one).evaluate for one in (*node.expressions, *filter(None, [node.args.get("query")]))],
            )
    return None


def _compile_choice(node: exp.Expr, of: CompileFunction) -> CompiledExpression | None:
    """Expressions that choose one of several values, or convert one."""
    match node:
        case exp.Subquery() | exp.Select() | exp.Exists():
            raise DefinitionError(f"{node.sql()}: there are no tables to query here; give values instead")
        case exp.Case() | exp.If():
            return _compile_case(node, of)
        case exp.Coalesce():
            parts = [of(one) for one in (node.this, *node.expressions)]
            return CompiledExpression(
                lambda context, at: next(
                    (result for one in parts if (result := one.evaluate(context, at)) is not None), None
                ),
                scalars.common_type([one.dtype for one in parts], node),
            )
        case exp.Nullif():
            kept, other = of(node.this), of(node.expression).evaluate
            return CompiledExpression(
                lambda context, at: (
                    None if (result := kept.evaluate(context, at)) == other(context, at) else result
                ),
                kept.dtype,
            )
        case exp.Cast():
            return _compile_cast(node, of(node.this).evaluate)
    return None


def _boolean_expression(answer: ExpressionFunction) -> CompiledExpression:
    return CompiledExpression(answer, pl.Boolean())


def _compile_logical(
    left: ExpressionFunction, right: ExpressionFunction, *, decides: bool
) -> CompiledExpression:
    """AND and OR: one false decides AND, one true decides OR, even if the other side is unknown."""

    def evaluate_both(context: MatchContext, at: int | None) -> Any:
        first = left(context, at)
        if first is decides:
            return decides
        second = right(context, at)
        return decides if second is decides else None if first is None or second is None else not decides

    return _boolean_expression(evaluate_both)


def _compile_in(value: ExpressionFunction, answers: list[ExpressionFunction]) -> CompiledExpression:
    def found(context: MatchContext, at: int | None) -> Any:
        needle = value(context, at)
        listed = [answer(context, at) for answer in answers]
        if needle is None:
            return None if listed else False
        return (
            True
            if any(needle == one for one in listed if one is not None)
            else None
            if None in listed
            else False
        )

    return _boolean_expression(found)


def _compile_case(node: exp.Expr, of: CompileFunction) -> CompiledExpression:
    branches = [node] if isinstance(node, exp.If) else node.args["ifs"]
    subject = node.this if isinstance(node, exp.Case) else None
    cases: list[tuple[CompiledExpression, CompiledExpression]] = []
    for one in branches:
        condition = (
            exp.EQ(this=subject.copy(), expression=one.this.copy()) if subject is not None else one.this
        )
        cases.append((of(condition), of(one.args["true"])))
    other = node.args.get("false" if isinstance(node, exp.If) else "default")
    otherwise = of(other) if other is not None else None

    def evaluate_case(context: MatchContext, at: int | None) -> Any:
        for condition, value in cases:
            if condition.evaluate(context, at) is True:
                return value.evaluate(context, at)
        return None if otherwise is None else otherwise.evaluate(context, at)

    types = [value.dtype for _, value in cases] + ([otherwise.dtype] if otherwise else [])
    return CompiledExpression(evaluate_case, scalars.common_type(types, node))


def _compile_cast(node: exp.Cast, answer: ExpressionFunction) -> CompiledExpression:
    length = node.to.expressions[0].this.this if node.to.expressions else None
    convert, dtype = scalars.cast_function(node.to.this.value, int(length) if length is not None else None)
    is_tried = isinstance(node, exp.TryCast)

    def evaluate_cast(context: MatchContext, at: int | None) -> Any:
        result = answer(context, at)
        if result is None:
            return None
        try:
            return convert(result)
        except (ValueError, TypeError, OverflowError) as error:
            if is_tried:
                return None
            raise PatternFailed(
                f"{node.sql()}: {result!r} cannot be cast; use TRY_CAST, which gives NULL"
            ) from error

    return CompiledExpression(evaluate_cast, dtype)
