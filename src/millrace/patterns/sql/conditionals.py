"""What is decided case by case: AND and OR of what may be unknown, CASE, IN, BETWEEN, IS, COALESCE, CAST."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from millrace.errors import DefinitionError, PatternFailed
from millrace.patterns.sql import scalars
from millrace.patterns.sql.scene import Answer, Compiled, Scene

if TYPE_CHECKING:
    from millrace.patterns.sql.expressions import Compiler


Of = Callable[[exp.Expr], Compiled]


def branching(compiler: Compiler, node: exp.Expr, *, inside: bool, final: bool) -> Compiled | None:
    """The function of such a node, if it is one."""

    def of(one: exp.Expr) -> Compiled:
        return compiler.of(one, inside=inside, final=final)

    return _truth(node, of) or _choice(node, of)


def _truth(node: exp.Expr, of: Of) -> Compiled | None:
    """What is true, false or unknown."""
    match node:
        case exp.And() | exp.Or():
            return _logical(
                of(node.this).answer, of(node.expression).answer, decides=isinstance(node, exp.Or)
            )
        case exp.Not():
            inner = of(node.this).answer
            return _boolean(lambda scene, at: None if (said := inner(scene, at)) is None else not said)
        case exp.Is():
            left, right = of(node.this).answer, of(node.expression).answer
            return _boolean(lambda scene, at: left(scene, at) is right(scene, at))
        case exp.NullSafeEQ() | exp.NullSafeNEQ():
            left, right, same = (
                of(node.this).answer,
                of(node.expression).answer,
                isinstance(node, exp.NullSafeEQ),
            )
            return _boolean(lambda scene, at: (left(scene, at) == right(scene, at)) is same)
        case exp.Between():
            low, high = (
                exp.GTE(this=node.this, expression=node.args["low"]),
                exp.LTE(this=node.this, expression=node.args["high"]),
            )
            return _logical(of(low).answer, of(high).answer, decides=False)
        case exp.In():
            return _in(
                of(node.this).answer,
                [of(one).answer for one in (*node.expressions, *filter(None, [node.args.get("query")]))],
            )
    return None


def _choice(node: exp.Expr, of: Of) -> Compiled | None:
    """One value of several, or another form of it."""
    match node:
        case exp.Subquery() | exp.Select() | exp.Exists():
            raise DefinitionError(
                f"{node.sql()}: there are no tables that this query could ask; give values instead"
            )
        case exp.Case() | exp.If():
            return _case(node, of)
        case exp.Coalesce():
            parts = [of(one) for one in (node.this, *node.expressions)]
            return Compiled(
                lambda scene, at: next(
                    (said for one in parts if (said := one.answer(scene, at)) is not None), None
                ),
                scalars.common([one.dtype for one in parts], node),
            )
        case exp.Nullif():
            kept, other = of(node.this), of(node.expression).answer
            return Compiled(
                lambda scene, at: None if (said := kept.answer(scene, at)) == other(scene, at) else said,
                kept.dtype,
            )
        case exp.Cast():
            return _cast(node, of(node.this).answer)
    return None


def _boolean(answer: Answer) -> Compiled:
    return Compiled(answer, pl.Boolean())


def _logical(left: Answer, right: Answer, *, decides: bool) -> Compiled:
    """AND, where one false decides, and OR, where one true does, whatever is unknown."""

    def both(scene: Scene, at: int | None) -> Any:
        first = left(scene, at)
        if first is decides:
            return decides
        second = right(scene, at)
        return decides if second is decides else None if first is None or second is None else not decides

    return _boolean(both)


def _in(value: Answer, answers: list[Answer]) -> Compiled:
    def found(scene: Scene, at: int | None) -> Any:
        wanted = value(scene, at)
        listed = [answer(scene, at) for answer in answers]
        if wanted is None:
            return None if listed else False
        return (
            True
            if any(wanted == one for one in listed if one is not None)
            else None
            if None in listed
            else False
        )

    return _boolean(found)


def _case(node: exp.Expr, of: Of) -> Compiled:
    branches = [node] if isinstance(node, exp.If) else node.args["ifs"]
    subject = node.this if isinstance(node, exp.Case) else None
    ways: list[tuple[Compiled, Compiled]] = []
    for one in branches:
        condition = (
            exp.EQ(this=subject.copy(), expression=one.this.copy()) if subject is not None else one.this
        )
        ways.append((of(condition), of(one.args["true"])))
    other = node.args.get("false" if isinstance(node, exp.If) else "default")
    otherwise = of(other) if other is not None else None

    def chosen(scene: Scene, at: int | None) -> Any:
        for condition, value in ways:
            if condition.answer(scene, at) is True:
                return value.answer(scene, at)
        return None if otherwise is None else otherwise.answer(scene, at)

    types = [value.dtype for _, value in ways] + ([otherwise.dtype] if otherwise else [])
    return Compiled(chosen, scalars.common(types, node))


def _cast(node: exp.Cast, answer: Answer) -> Compiled:
    length = node.to.expressions[0].this.this if node.to.expressions else None
    fn, dtype = scalars.cast(node.to.this.value, int(length) if length is not None else None)
    is_tried = isinstance(node, exp.TryCast)

    def cast(scene: Scene, at: int | None) -> Any:
        said = answer(scene, at)
        if said is None:
            return None
        try:
            return fn(said)
        except (ValueError, TypeError, OverflowError) as error:
            if is_tried:
                return None
            raise PatternFailed(
                f"{node.sql()}: {said!r} cannot be cast; use TRY_CAST, which gives NULL"
            ) from error

    return Compiled(cast, dtype)
