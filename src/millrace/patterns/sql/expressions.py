"""Conditions and measures, compiled from SQL to functions: columns, navigation (FIRST, LAST,
PREV, NEXT) and aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from sqlglot import exp

from millrace.errors import DefinitionError
from millrace.patterns.sql import aggregates, scalars
from millrace.patterns.sql.aggregates import PAIR_REDUCTIONS, REDUCTIONS
from millrace.patterns.sql.conditionals import compile_conditional
from millrace.patterns.sql.match_context import CompiledExpression, ExpressionFunction, MatchContext
from millrace.patterns.sql.scalars import STRICT_FUNCTIONS, ValueType
from millrace.values.expressions import describe_unknown

_AGGREGATE_ARGUMENTS = ("this", "expression", "separator")
"""The supported arguments of an aggregate; see `_split_argument` for the first."""

VariableSet = frozenset[int] | None
"""Variables by number; None stands for all rows of the match."""


@dataclass(frozen=True)
class MappingQuery:
    """What an expression asks of the mapping: the place of a row (`first`, `last`),
    all rows of variables (`all`), or `whole`.
    """

    kind: str
    variables: VariableSet
    offset: int = 0


@dataclass(frozen=True)
class _SortKey:
    """One expression of ORDER BY in an aggregate."""

    evaluate: ExpressionFunction
    is_descending: bool
    nulls_first: bool

    def sort(self, context: MatchContext, places: list[int]) -> list[int]:
        """The rows by the value of the expression. Stable, so the last key of several is sorted by first."""
        found = {at: self.evaluate(context, at) for at in places}
        with_value = sorted(
            (at for at in places if found[at] is not None), key=found.__getitem__, reverse=self.is_descending
        )
        without = [at for at in places if found[at] is None]
        return without + with_value if self.nulls_first else with_value + without


@dataclass
class ExpressionCompiler:
    """Compiles expressions over rows of a schema, and notes what they ask of the mapping."""

    schema: pl.Schema
    variables: Sequence[str]
    variable_sets: dict[str, frozenset[int]]
    """Variables and subsets by name."""
    queries: list[MappingQuery] = field(default_factory=list)
    rows_back: int = 0
    """The greatest number of rows before the one it starts from that an expression reads."""
    looks_ahead: bool = False
    """Whether an expression reads rows after the one it starts from."""

    def compile(self, node: exp.Expr, *, inside: bool, final: bool) -> CompiledExpression:
        """The function of a node. `inside` navigation or an aggregate,
        a column is read from the row found by that.
        """
        kind = type(node)
        if isinstance(node, exp.Paren):
            return self.compile(node.this, inside=inside, final=final)
        if isinstance(node, exp.Column):
            return self._compile_column(node, inside=inside, final=final)
        if isinstance(node, exp.Literal | exp.Null | exp.Boolean | exp.Interval):
            return self._compile_literal(node)
        if kind in REDUCTIONS or kind in PAIR_REDUCTIONS or isinstance(node, exp.GroupConcat | exp.Filter):
            return self._refuse_nested(node, inside, lambda: self._compile_aggregate(node, final=final))
        if isinstance(node, exp.First | exp.Last):
            return self._refuse_nested(node, inside, lambda: self._compile_navigation(node, 0, final=final))
        if isinstance(node, exp.Anonymous):
            return self._compile_function(node, inside=inside, final=final)
        return self._compile_scalar(node, inside=inside, final=final)

    def _compile_function(self, node: exp.Anonymous, *, inside: bool, final: bool) -> CompiledExpression:
        name, arguments = str(node.this).upper(), node.expressions
        if name in ("__FINAL", "__RUNNING"):
            return self.compile(arguments[0], inside=inside, final=name == "__FINAL")
        if name == "MATCH_NUMBER":
            return CompiledExpression(lambda context, _: context.match_number, pl.Int64())
        if name == "CLASSIFIER":
            return self._compile_classifier(node, inside=inside, final=final)
        if name in ("PREV", "NEXT"):
            by = _parse_offset(arguments[1], name) if len(arguments) > 1 else 1
            return self._refuse_nested(
                node,
                inside,
                lambda: self._compile_navigation(arguments[0], -by if name == "PREV" else by, final=final),
            )
        raise DefinitionError(f"{node.sql()}: there is no function {name}")

    def _refuse_nested(
        self, node: exp.Expr, inside: bool, make: Callable[[], CompiledExpression]
    ) -> CompiledExpression:
        if inside:
            raise DefinitionError(
                f"{node.sql()} is inside of another navigation or aggregate; only PREV and NEXT can contain "
                "FIRST and LAST"
            )
        return make()

    def _compile_literal(self, node: exp.Expr) -> CompiledExpression:
        if isinstance(node, exp.Interval):
            length = scalars.parse_interval(node)
            return CompiledExpression(lambda _context, _at: length, pl.Duration("ms"))
        if isinstance(node, exp.Null):
            return CompiledExpression(lambda _context, _at: None, pl.Null())
        if isinstance(node, exp.Boolean):
            value: Any = bool(node.this)
            return CompiledExpression(lambda _context, _at: value, pl.Boolean())
        if node.is_string:
            text = str(node.this)
            return CompiledExpression(lambda _context, _at: text, pl.String())
        number = int(node.this) if str(node.this).isdigit() else float(node.this)
        return CompiledExpression(
            lambda _context, _at: number, pl.Int64() if isinstance(number, int) else pl.Float64()
        )

    def _compile_column(self, node: exp.Column, *, inside: bool, final: bool) -> CompiledExpression:
        place, dtype = self._find_column(node)
        if inside:
            return CompiledExpression(
                lambda context, at: None if at is None else context.rows[at][place], dtype
            )
        variables = self._find_variables(node.args.get("table"))
        self.queries.append(MappingQuery("last", variables))

        def last(context: MatchContext, _: int | None) -> Any:
            found = context.last_row(variables, 0, final=final)
            return None if found is None else context.rows[found][place]

        return CompiledExpression(last, dtype)

    def _compile_classifier(self, node: exp.Anonymous, *, inside: bool, final: bool) -> CompiledExpression:
        names = self.variables
        if inside:
            return CompiledExpression(
                lambda context, at: None if (label := context.label_of(at)) is None else names[label],
                pl.String(),
            )
        variables = self._find_variables(node.expressions[0].this if node.expressions else None)
        self.queries.append(MappingQuery("whole", variables))

        def label(context: MatchContext, _: int | None) -> Any:
            found = context.label_of(context.last_row(variables, 0, final=final))
            return None if found is None else names[found]

        return CompiledExpression(label, pl.String())

    def _compile_navigation(self, node: exp.Expr, by: int, *, final: bool) -> CompiledExpression:
        """FIRST or LAST, then `by` rows further; the inner expression is evaluated at that row."""
        inner: exp.Expr = node
        if isinstance(inner, exp.Anonymous) and str(inner.this).upper() in ("__FINAL", "__RUNNING"):
            final, inner = str(inner.this).upper() == "__FINAL", inner.expressions[0]
        first, offset = isinstance(inner, exp.First), 0
        if isinstance(inner, exp.First | exp.Last):
            offset = _parse_offset(inner.expression, "FIRST and LAST") if inner.args.get("expression") else 0
            inner = inner.this
        variables = self._common_variables(inner)
        asked = self.compile(inner, inside=True, final=final)
        self.queries.append(MappingQuery("first" if first else "last", variables, offset))
        if _uses_classifier(inner):
            self.queries.append(MappingQuery("whole", None))
        self.rows_back, self.looks_ahead = max(self.rows_back, -by), self.looks_ahead or by > 0

        def navigate(context: MatchContext, _: int | None) -> Any:
            found = (
                context.first_row(variables, offset, final=final)
                if first
                else context.last_row(variables, offset, final=final)
            )
            at = context.move(found, by) if by else found
            return None if at is None else asked.evaluate(context, at)

        return CompiledExpression(navigate, asked.dtype)

    def _compile_aggregate(self, node: exp.Expr, *, final: bool) -> CompiledExpression:
        condition: CompiledExpression | None = None
        if isinstance(node, exp.Filter):
            condition = self.compile(node.expression.this, inside=True, final=final)
            node = node.this
        rest = {
            name: value for name, value in node.args.items() if value and name not in _AGGREGATE_ARGUMENTS
        }
        scalars.check_arguments(node, rest)
        argument, is_distinct, order = _split_argument(node)
        variables = self._common_variables(node)
        self.queries.append(MappingQuery("whole" if _uses_classifier(node) else "all", variables))
        value = self._compile_argument(argument, final=final)
        keys = [self._compile_sort_key(one, final=final) for one in order]
        other = (
            self.compile(node.expression, inside=True, final=final) if type(node) in PAIR_REDUCTIONS else None
        )

        def aggregate(context: MatchContext, _: int | None) -> Any:
            places = list(context.all_rows(variables, final=final))
            if condition is not None:
                places = [at for at in places if condition.evaluate(context, at)]
            for key in reversed(keys):
                places = key.sort(context, places)
            values = [value.evaluate(context, at) for at in places]
            if other is None:
                return _reduce(node, list(dict.fromkeys(values)) if is_distinct else values)
            others = [other.evaluate(context, at) for at in places]
            pairs = [(one, by) for one, by in zip(values, others, strict=True) if by is not None]
            return PAIR_REDUCTIONS[type(node)](pairs) if pairs else None

        is_text = isinstance(node, exp.GroupConcat)
        return CompiledExpression(
            aggregate, pl.String() if is_text else aggregates.type_of(type(node), value.dtype)
        )

    def _compile_argument(self, argument: exp.Expr | None, *, final: bool) -> CompiledExpression:
        """The argument of an aggregate; without one, or with `*`, every row counts."""
        if argument is None or isinstance(argument, exp.Star) or isinstance(argument.this, exp.Star):
            return CompiledExpression(lambda _context, _at: True, pl.Boolean())
        return self.compile(argument, inside=True, final=final)

    def _compile_sort_key(self, node: exp.Expr, *, final: bool) -> _SortKey:
        return _SortKey(
            self.compile(node.this, inside=True, final=final).evaluate,
            bool(node.args.get("desc")),
            bool(node.args.get("nulls_first")),
        )

    def _compile_scalar(self, node: exp.Expr, *, inside: bool, final: bool) -> CompiledExpression:
        special = compile_conditional(self, node, inside=inside, final=final)
        if special is not None:
            return special
        if type(node) not in STRICT_FUNCTIONS:
            raise DefinitionError(
                f"{node.sql()}: {type(node).__name__.lower()} is not supported in row patterns"
            )
        inner = [self.compile(one, inside=inside, final=final) for one in node.iter_expressions()]
        function, answers = scalars.function_of(node), [one.evaluate for one in inner]

        def evaluate_strict(context: MatchContext, at: int | None) -> Any:
            values = [answer(context, at) for answer in answers]
            return None if None in values else function(*values)

        return CompiledExpression(evaluate_strict, scalars.type_of(node, [one.dtype for one in inner]))

    def _find_column(self, node: exp.Column) -> tuple[int, ValueType]:
        names, column_name = list(self.schema), str(node.this.this)
        found = [name for name in names if name == column_name] or [
            name for name in names if name.lower() == column_name.lower()
        ]
        if not found or isinstance(node.this, exp.Star):
            raise DefinitionError(f"{node.sql()}: {describe_unknown(column_name, names)}")
        return names.index(found[0]), self.schema[found[0]]

    def _find_variables(self, table: Any) -> VariableSet:
        if table is None:
            return None
        if not isinstance(table, exp.Identifier):
            raise DefinitionError(
                f"{table} is not a variable of the pattern; there are {', '.join(self.variable_sets)}"
            )
        name = table.this if table.args.get("quoted") else str(table.this).upper()
        if name not in self.variable_sets:
            raise DefinitionError(
                f"{table.sql()} is not a variable of the pattern; there are {', '.join(self.variable_sets)}"
            )
        return self.variable_sets[name]

    def _common_variables(self, node: exp.Expr) -> VariableSet:
        """The one variable whose rows an expression reads."""
        found = {
            self._find_variables(_variable_of(one))
            for one in node.find_all(exp.Column, exp.Anonymous)
            if not _is_variable_name(one) and _reads_rows(one)
        }
        if len(found) > 1:
            raise DefinitionError(
                f"{node.sql()} reads rows of several variables at once; use a navigation for each variable"
            )
        return found.pop() if found else None


def _reduce(node: exp.Expr, values: list[Any]) -> Any:
    if isinstance(node, exp.GroupConcat):
        return aggregates.join_texts(
            values, node.args["separator"].this if node.args.get("separator") else ""
        )
    return REDUCTIONS[type(node)](values)


def _is_variable_name(node: exp.Expr) -> bool:
    """Whether a column node is the variable in CLASSIFIER(A)."""
    return isinstance(node.parent, exp.Anonymous) and str(node.parent.this).upper() == "CLASSIFIER"


def _reads_rows(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) or str(node.this).upper() == "CLASSIFIER"


def _variable_of(node: exp.Expr) -> Any:
    if isinstance(node, exp.Column):
        return node.args.get("table")
    return node.expressions[0].this if node.expressions else None


def _uses_classifier(node: exp.Expr) -> bool:
    return any(str(one.this).upper() == "CLASSIFIER" for one in node.find_all(exp.Anonymous))


def _split_argument(node: exp.Expr) -> tuple[exp.Expr | None, bool, list[exp.Expr]]:
    """The argument of an aggregate, whether it is DISTINCT, and its ORDER BY."""
    argument, order = node.this, list[exp.Expr]()
    if isinstance(argument, exp.Order):
        argument, order = argument.this, argument.expressions
    unique = isinstance(argument, exp.Distinct)
    if unique and len(argument.expressions) > 1:
        raise DefinitionError(
            f"{node.sql()}: DISTINCT takes one value; cast several to VARCHAR and join them by ||"
        )
    return argument.expressions[0] if unique else argument, unique, order


def _parse_offset(node: exp.Expr, function_name: str) -> int:
    if not isinstance(node, exp.Literal) or node.is_string or not str(node.this).isdigit():
        raise DefinitionError(f"{function_name} by {node.sql()} rows: give a whole number, 0 or more")
    return int(node.this)
