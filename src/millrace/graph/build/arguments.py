"""The step before an aggregation that computes the expressions in its aggregates, each as a column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from millrace import graph
from millrace.aggregates import Reduction
from millrace.errors import DefinitionError
from millrace.values import expressions
from millrace.values.columns import ALL_ROWS, ARGUMENT_PREFIX


def bind_arguments(
    upstream: graph.Node, aggregates: Mapping[str, Reduction]
) -> tuple[graph.Node, dict[str, Reduction]]:
    """The rows with the columns that aggregates of expressions read, and the aggregates that read them."""
    for name, aggregate in aggregates.items():
        _check_columns(f"{name}={aggregate}", aggregate, upstream.schema)
    bound = {name: aggregate.bind(name) for name, aggregate in aggregates.items()}
    exprs = {
        aggregate.required_column: expr
        for aggregate in bound.values()
        if (expr := aggregate.argument_expr()) is not None
    }
    return (_build_step(upstream, bound, exprs) if exprs else upstream), bound


def drop_arguments(results: graph.Node) -> graph.SingleGroup:
    """Rows that an operation passes on, without the columns that its aggregates read."""
    names = [name for name in results.schema if name.startswith(ARGUMENT_PREFIX)]
    return graph.SingleGroup(
        (results,),
        pl.Schema({name: dtype for name, dtype in results.schema.items() if name not in names}),
        lambda frame: frame.drop(names, strict=False),
        "results without arguments",
        frozenset(),
        frozenset(),
        internal_identity={"kind": "without_arguments"},
    )


def columns_of(aggregate: Reduction) -> set[str]:
    """The columns of a stream that an aggregate is computed of."""
    if aggregate.argument is None:
        return set(aggregate.input_columns())
    return {name for expr in aggregate.argument.exprs for name in expr.meta.root_names()}


def _build_step(
    upstream: graph.Node, aggregates: Mapping[str, Reduction], exprs: Mapping[str, pl.Expr]
) -> graph.Arguments:
    return graph.Arguments(
        (upstream,),
        pl.Schema(upstream.schema.to_frame().with_columns(**exprs).schema),
        lambda frame: frame.with_columns(**exprs),
        f"aggregate({', '.join(f'{name}={aggregate}' for name, aggregate in aggregates.items())})",
        graph.columns_used(exprs.values()),
        frozenset(exprs),
        tuple(exprs.values()),
        internal_identity={"kind": "arguments"},
    )


def _check_columns(text: str, aggregate: Reduction, schema: pl.Schema) -> None:
    """Refuses columns that there are not, and expressions that look across rows."""
    for column in sorted(columns_of(aggregate)):
        if column not in schema or column == ALL_ROWS:
            raise DefinitionError(f"{text}: {expressions.describe_unknown(column, schema)}")
    if aggregate.argument is None:
        return
    exprs = aggregate.argument.exprs
    known = pl.Schema({name: dtype for name, dtype in schema.items() if name != ALL_ROWS})
    preview = graph.apply_to_no_rows(lambda frame: frame.select(_numbered(exprs)), known, text)
    expressions.check_elementwise(text, exprs, schema)
    if aggregate.argument.where is not None and preview.dtypes[-1] != pl.Boolean:
        raise DefinitionError(
            f"{text}: where= is {preview.dtypes[-1]}, and it must be true or false; compare it with something"
        )


def _numbered(exprs: Iterable[pl.Expr]) -> list[pl.Expr]:
    return [expr.alias(str(number)) for number, expr in enumerate(exprs)]
