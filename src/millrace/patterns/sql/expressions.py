"""Conditions and measures, from SQL to functions of a scene: columns of rows, navigation among them, and aggregates over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from sqlglot import exp

from millrace.errors import DefinitionError
from millrace.patterns.sql import aggregates, scalars
from millrace.patterns.sql.aggregates import PAIRED, REDUCTIONS
from millrace.patterns.sql.conditionals import branching
from millrace.patterns.sql.scalars import STRICT, Type
from millrace.patterns.sql.scene import Compiled, Scene

_READ = ("this", "expression", "separator")
"""The arguments of an aggregate that are understood; `_argument` says more of the first."""

Members = frozenset[int] | None
"""The variables that rows are asked of, by number; None: all rows."""


@dataclass(frozen=True)
class Ask:
    """What an expression wants to know about how rows are mapped: where the `offset`th first or last is, or all of it."""

    kind: str
    members: Members
    offset: int = 0


@dataclass
class Compiler:
    """Makes functions of expressions over rows of a schema. What they ask of the mapping is noted."""

    schema: pl.Schema
    variables: Sequence[str]
    unions: dict[str, frozenset[int]]
    """Variables, and subsets of them, by name."""
    asks: list[Ask] = field(default_factory=list)
    back: int = 0
    """How many rows before the one it starts from an expression looks, at most."""
    ahead: bool = False
    """Whether it looks at rows after the one it starts from."""

    def of(self, node: exp.Expr, *, inside: bool, final: bool) -> Compiled:
        """The function of a node; `inside` navigation or an aggregate, columns are those of the row it has found."""
        kind = type(node)
        if isinstance(node, exp.Paren):
            return self.of(node.this, inside=inside, final=final)
        if isinstance(node, exp.Column):
            return self._column(node, inside=inside, final=final)
        if isinstance(node, exp.Literal | exp.Null | exp.Boolean | exp.Interval):
            return self._literal(node)
        if kind in REDUCTIONS or kind in PAIRED or isinstance(node, exp.GroupConcat | exp.Filter):
            return self._outermost(node, inside, lambda: self._reduction(node, final=final))
        if isinstance(node, exp.First | exp.Last):
            return self._outermost(node, inside, lambda: self._navigation(node, 0, final=final))
        if isinstance(node, exp.Anonymous):
            return self._named(node, inside=inside, final=final)
        return self._scalar(node, inside=inside, final=final)

    def _named(self, node: exp.Anonymous, *, inside: bool, final: bool) -> Compiled:
        name, given = str(node.this).upper(), node.expressions
        if name in ("__FINAL", "__RUNNING"):
            return self.of(given[0], inside=inside, final=name == "__FINAL")
        if name == "MATCH_NUMBER":
            return Compiled(lambda scene, _: scene.number, pl.Int64())
        if name == "CLASSIFIER":
            return self._classifier(node, inside=inside, final=final)
        if name in ("PREV", "NEXT"):
            by = _offset(given[1], name) if len(given) > 1 else 1
            return self._outermost(
                node, inside, lambda: self._navigation(given[0], -by if name == "PREV" else by, final=final)
            )
        raise DefinitionError(f"{node.sql()}: there is no function {name}")

    def _outermost(self, node: exp.Expr, inside: bool, make: Callable[[], Compiled]) -> Compiled:
        if inside:
            raise DefinitionError(
                f"{node.sql()} is inside of another navigation or aggregate, which is not possible but for PREV(FIRST(…)) and the like"
            )
        return make()

    def _literal(self, node: exp.Expr) -> Compiled:
        if isinstance(node, exp.Interval):
            length = scalars.interval(node)
            return Compiled(lambda _scene, _at: length, pl.Duration("ms"))
        if isinstance(node, exp.Null):
            return Compiled(lambda _scene, _at: None, pl.Null())
        if isinstance(node, exp.Boolean):
            said: Any = bool(node.this)
            return Compiled(lambda _scene, _at: said, pl.Boolean())
        if node.is_string:
            text = str(node.this)
            return Compiled(lambda _scene, _at: text, pl.String())
        number = int(node.this) if str(node.this).isdigit() else float(node.this)
        return Compiled(lambda _scene, _at: number, pl.Int64() if isinstance(number, int) else pl.Float64())

    def _column(self, node: exp.Column, *, inside: bool, final: bool) -> Compiled:
        place, dtype = self._place(node)
        if inside:
            return Compiled(lambda scene, at: None if at is None else scene.rows[at][place], dtype)
        members = self._members(node.args.get("table"))
        self.asks.append(Ask("last", members))

        def last(scene: Scene, _: int | None) -> Any:
            found = scene.last(members, 0, final=final)
            return None if found is None else scene.rows[found][place]

        return Compiled(last, dtype)

    def _classifier(self, node: exp.Anonymous, *, inside: bool, final: bool) -> Compiled:
        names = self.variables
        if inside:
            return Compiled(
                lambda scene, at: None if (label := scene.label(at)) is None else names[label], pl.String()
            )
        members = self._members(node.expressions[0].this if node.expressions else None)
        self.asks.append(Ask("whole", members))

        def label(scene: Scene, _: int | None) -> Any:
            found = scene.label(scene.last(members, 0, final=final))
            return None if found is None else names[found]

        return Compiled(label, pl.String())

    def _navigation(self, node: exp.Expr, by: int, *, final: bool) -> Compiled:
        """FIRST or LAST, and from there so many rows on, which is where the expression inside is asked."""
        inner: exp.Expr = node
        if isinstance(inner, exp.Anonymous) and str(inner.this).upper() in ("__FINAL", "__RUNNING"):
            final, inner = str(inner.this).upper() == "__FINAL", inner.expressions[0]
        first, offset = isinstance(inner, exp.First), 0
        if isinstance(inner, exp.First | exp.Last):
            offset = _offset(inner.expression, "FIRST and LAST") if inner.args.get("expression") else 0
            inner = inner.this
        members = self._one_label(inner)
        asked = self.of(inner, inside=True, final=final)
        self.asks.append(Ask("first" if first else "last", members, offset))
        if _classifies(inner):
            self.asks.append(Ask("whole", None))
        self.back, self.ahead = max(self.back, -by), self.ahead or by > 0

        def moved(scene: Scene, _: int | None) -> Any:
            found = (
                scene.first(members, offset, final=final)
                if first
                else scene.last(members, offset, final=final)
            )
            at = scene.moved(found, by) if by else found
            return None if at is None else asked.answer(scene, at)

        return Compiled(moved, asked.dtype)

    def _reduction(self, node: exp.Expr, *, final: bool) -> Compiled:
        condition: Compiled | None = None
        if isinstance(node, exp.Filter):
            condition = self.of(node.expression.this, inside=True, final=final)
            node = node.this
        scalars.check_words(
            node, {name: said for name, said in node.args.items() if said and name not in _READ}
        )
        given, unique, order = _argument(node)
        members = self._one_label(node)
        self.asks.append(Ask("whole" if _classifies(node) else "all", members))
        star = given is None or isinstance(given, exp.Star) or isinstance(given.this, exp.Star)
        value = (
            Compiled(lambda _scene, _at: True, pl.Boolean())
            if star or given is None
            else self.of(given, inside=True, final=final)
        )
        keys = [
            (
                self.of(one.this, inside=True, final=final).answer,
                bool(one.args.get("desc")),
                bool(one.args.get("nulls_first")),
            )
            for one in order
        ]
        other = self.of(node.expression, inside=True, final=final) if type(node) in PAIRED else None

        def reduced(scene: Scene, _: int | None) -> Any:
            places = list(scene.all(members, final=final))
            if condition is not None:
                places = [at for at in places if condition.answer(scene, at)]
            for key, descending, nulls_first in reversed(keys):
                found = {at: key(scene, at) for at in places}
                known = sorted(
                    (at for at in places if found[at] is not None), key=found.__getitem__, reverse=descending
                )
                unknown = [at for at in places if found[at] is None]
                places = unknown + known if nulls_first else known + unknown
            values = [value.answer(scene, at) for at in places]
            if other is not None:
                pairs = [
                    (one, by)
                    for one, at in zip(values, places, strict=True)
                    if (by := other.answer(scene, at)) is not None
                ]
                return PAIRED[type(node)](pairs) if pairs else None
            values = list(dict.fromkeys(values)) if unique else values
            if isinstance(node, exp.GroupConcat):
                return aggregates.joined(
                    values, node.args["separator"].this if node.args.get("separator") else ""
                )
            return REDUCTIONS[type(node)](values)

        dtype = (
            pl.String() if isinstance(node, exp.GroupConcat) else aggregates.type_of(type(node), value.dtype)
        )
        return Compiled(reduced, dtype)

    def _scalar(self, node: exp.Expr, *, inside: bool, final: bool) -> Compiled:
        special = branching(self, node, inside=inside, final=final)
        if special is not None:
            return special
        if type(node) not in STRICT:
            raise DefinitionError(f"{node.sql()}: {type(node).__name__.lower()} is not known in row patterns")
        inner = [self.of(one, inside=inside, final=final) for one in node.iter_expressions()]
        fn, answers = scalars.function(node), [one.answer for one in inner]

        def strict(scene: Scene, at: int | None) -> Any:
            values = [answer(scene, at) for answer in answers]
            return None if None in values else fn(*values)

        return Compiled(strict, scalars.type_of(node, [one.dtype for one in inner]))

    def _place(self, node: exp.Column) -> tuple[int, Type]:
        names, wanted = list(self.schema), str(node.this.this)
        found = [name for name in names if name == wanted] or [
            name for name in names if name.lower() == wanted.lower()
        ]
        if not found or isinstance(node.this, exp.Star):
            raise DefinitionError(f"{node.sql()}: there is no column {wanted}; there are {', '.join(names)}")
        return names.index(found[0]), self.schema[found[0]]

    def _members(self, table: Any) -> Members:
        if table is None:
            return None
        if not isinstance(table, exp.Identifier):
            raise DefinitionError(
                f"{table} is not a variable of the pattern; there are {', '.join(self.unions)}"
            )
        name = table.this if table.args.get("quoted") else str(table.this).upper()
        if name not in self.unions:
            raise DefinitionError(
                f"{table.sql()} is no variable of the pattern; there are {', '.join(self.unions)}"
            )
        return self.unions[name]

    def _one_label(self, node: exp.Expr) -> Members:
        """The one variable that everything in an expression is asked of."""
        found = {
            self._members(_table(one))
            for one in node.find_all(exp.Column, exp.Anonymous)
            if not _names_variable(one) and _asks_rows(one)
        }
        if len(found) > 1:
            raise DefinitionError(
                f"{node.sql()} asks rows of several variables at once; ask each in a navigation of its own"
            )
        return found.pop() if found else None


def _names_variable(node: exp.Expr) -> bool:
    """Whether a column is really the variable in CLASSIFIER(A)."""
    return isinstance(node.parent, exp.Anonymous) and str(node.parent.this).upper() == "CLASSIFIER"


def _asks_rows(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) or str(node.this).upper() == "CLASSIFIER"


def _table(node: exp.Expr) -> Any:
    if isinstance(node, exp.Column):
        return node.args.get("table")
    return node.expressions[0].this if node.expressions else None


def _classifies(node: exp.Expr) -> bool:
    return any(str(one.this).upper() == "CLASSIFIER" for one in node.find_all(exp.Anonymous))


def _argument(node: exp.Expr) -> tuple[exp.Expr | None, bool, list[exp.Expr]]:
    """What an aggregate is of, whether only different values count, and in which order they come."""
    given, order = node.this, list[exp.Expr]()
    if isinstance(given, exp.Order):
        given, order = given.this, given.expressions
    unique = isinstance(given, exp.Distinct)
    if unique and len(given.expressions) > 1:
        raise DefinitionError(
            f"{node.sql()}: DISTINCT is of one value; cast several to VARCHAR and join them by ||"
        )
    return given.expressions[0] if unique else given, unique, order


def _offset(node: exp.Expr, what: str) -> int:
    if not isinstance(node, exp.Literal) or node.is_string or not str(node.this).isdigit():
        raise DefinitionError(f"{what} by {node.sql()} rows: give a whole number, 0 or more")
    return int(node.this)
