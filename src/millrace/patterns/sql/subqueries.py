"""Subqueries in conditions and measures. They do not depend on the rows that are matched, so each is executed
once, before.

The values replace the query in the parsed tree. Writing the tree as text and parsing it again would change
it: the Trino dialect of sqlglot writes FIRST and LAST as ARBITRARY.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, ClassVar

import polars as pl
import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError

from millrace.errors import DefinitionError
from millrace.patterns.sql.tokens import mark_semantics
from millrace.values.columns import DUAL, DUMMY

_ONE_ROW: exp.Expr = exp.values([(1,)], alias=DUAL, columns=[DUMMY])
"""What a query without FROM reads. The SQL of polars ignores WHERE where there is no FROM."""

QueryFunction = Callable[[exp.Expr], pl.DataFrame]
"""Executes a query."""


class _PolarsSQL(Postgres):
    """The dialect of polars: PostgreSQL with TRY_CAST."""

    class Generator(Postgres.Generator):  # type: ignore[valid-type, misc] # sqlglot creates the class dynamically
        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            kind: write for kind, write in Postgres.Generator.TRANSFORMS.items() if kind is not exp.TryCast
        }


def parse_sql(text: str) -> exp.Expr:
    """The syntax tree of an SQL expression."""
    try:
        return sqlglot.parse_one(mark_semantics(text), read="trino")
    except SqlglotError as error:
        reason = str(error).split("\n", maxsplit=1)[0].replace("\x1b[4m", "").replace("\x1b[0m", "")
        raise DefinitionError(f"{text!r} cannot be parsed: {reason}") from error


def replace_queries(tree: exp.Expr, answer: QueryFunction) -> exp.Expr:
    """The tree with values in place of subqueries."""
    if tree.find(exp.Query) is None:
        return tree

    def replace_node(node: exp.Expr) -> exp.Expr:
        match node:
            case exp.Exists():
                return exp.convert(not _answer_query(answer, node.this).is_empty())
            case exp.In() if node.args.get("query"):
                values = [_literal(one) for one in _column_values(answer, node.args["query"])]
                return (
                    exp.In(this=replace_queries(node.this, answer), expressions=values)
                    if values
                    else exp.false()
                )
            case exp.Query():
                return _literal(_single_value(_column_values(answer, node), node))
        return node

    return tree.transform(replace_node)


def execute_without_tables(query: exp.Expr) -> pl.DataFrame:
    """The result of a query that names no table."""
    if query.find(exp.Table) is not None:
        raise DefinitionError(f"{query.sql()}: there are no tables to query here; give values instead")
    return execute(query, {})


def execute(tree: exp.Expr, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The result of a query without row patterns. Names of columns match in any case."""
    column_names = {name for frame in tables.values() for name in frame.columns}
    for column in tree.find_all(exp.Column):
        matching_names = [one for one in column_names if one.lower() == column.name.lower()]
        if column.name not in column_names and matching_names and not isinstance(column.this, exp.Star):
            column.set("this", exp.to_identifier(matching_names[0]))
    for select in tree.find_all(exp.Select):
        if select.args.get("where") and not select.args.get("from_"):
            select.set("from_", exp.From(this=_ONE_ROW.copy()))
    try:
        return pl.SQLContext(tables).execute(tree.sql(dialect=_PolarsSQL, identify=True), eager=True)
    except pl.exceptions.PolarsError as error:
        raise DefinitionError(
            f"the SQL of polars does not support the query around MATCH_RECOGNIZE: {_first_line(error)}; "
            "give the frames that it names, and see what polars.SQLContext takes"
        ) from error


def _answer_query(answer: QueryFunction, node: exp.Expr) -> pl.DataFrame:
    try:
        return answer(node.unnest().copy() if isinstance(node, exp.Subquery) else node.copy())
    except DefinitionError as error:
        if not isinstance(error.__cause__, pl.exceptions.ColumnNotFoundError):
            raise
        raise DefinitionError(
            f"{node.sql()}: {_first_line(error.__cause__)}; a query in a condition or measure is executed "
            "once, before rows are matched, so it cannot name their columns; remove them from the query"
        ) from error


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", maxsplit=1)[0]


def _column_values(answer: QueryFunction, node: exp.Expr) -> list[Any]:
    found = _answer_query(answer, node)
    if found.width != 1:
        raise DefinitionError(
            f"{node.sql()} has {found.width} columns, but one value is needed here; select one column"
        )
    return found.to_series(0).to_list()


def _single_value(values: list[Any], node: exp.Expr) -> Any:
    if len(values) > 1:
        raise DefinitionError(
            f"{node.sql()} has {len(values)} rows, but one value is needed here; add LIMIT 1 or an aggregate"
        )
    return values[0] if values else None


def _literal(value: Any) -> exp.Expr:
    if isinstance(value, date):
        return exp.cast(
            exp.Literal.string(value.isoformat()), "timestamp" if isinstance(value, datetime) else "date"
        )
    return exp.convert(value)
