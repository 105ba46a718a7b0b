"""Rows of several streams as one: columns go together by name, in whatever order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import polars as pl

from millrace import graph, panes
from millrace.errors import DefinitionError
from millrace.values.calls import require_choice

UnionHow: TypeAlias = Literal["vertical", "diagonal"]
"""What happens to columns that some streams lack: an error, or null."""


def build_union(nodes: Sequence[graph.Node], how: UnionHow) -> graph.Union:
    """The node of a union; the first stream says the order of columns."""
    require_choice("how", how, get_args(UnionHow))
    if any(_has_panes(node) for node in nodes):
        nodes = [node if _has_panes(node) else _as_results(node) for node in nodes]
    schema = dict(nodes[0].schema)
    for number, node in enumerate(nodes[1:], start=2):
        _check_types(schema, node.schema, number)
        if how == "diagonal":
            schema |= {name: dtype for name, dtype in node.schema.items() if name not in schema}
        else:
            _check_columns(schema, node.schema, number)
    return graph.Union(tuple(_align(node, pl.Schema(schema)) for node in nodes), pl.Schema(schema))


def _has_panes(node: graph.Node) -> bool:
    return "window_end" in node.schema


def _as_results(node: graph.Node) -> graph.Stateless:
    """Rows of a topic beside results: each is a result that is shown once, and has no time of ingestion."""

    def show(frame: pl.DataFrame) -> pl.DataFrame:
        window = pl.col("event_time").alias("window_start"), (pl.col("event_time") + 1).alias("window_end")
        return frame.drop("ingestion_time", strict=False).with_columns(*window, *panes.shown_once())

    return graph.Stateless(
        (node,),
        graph.derive_schema(show, node.schema, "union"),
        show,
        "rows as results",
        frozenset(),
        frozenset({"ingestion_time", *panes.COLUMNS}),
        internal_identity={"kind": "rows_as_results"},
    )


def _check_types(schema: dict[str, pl.DataType], other: pl.Schema, number: int) -> None:
    for name, dtype in other.items():
        if name in schema and schema[name] != dtype:
            raise DefinitionError(
                f"union: {name} is {schema[name]} in the first stream and {dtype} in stream {number}; cast "
                f"one: with_columns(pl.col({name!r}).cast(...))"
            )


def _check_columns(schema: dict[str, pl.DataType], other: pl.Schema, number: int) -> None:
    lacks = [name for name in schema if name not in other]
    extra = [name for name in other if name not in schema]
    if lacks or extra:
        parts = [f"lacks {', '.join(lacks)}"] if lacks else []
        parts += [f"has {', '.join(extra)} besides"] if extra else []
        raise DefinitionError(
            f"union: stream {number} {' and '.join(parts)}; select() the same columns of all, or say "
            "union(..., how='diagonal'), which fills with null what is missing"
        )


def _align(node: graph.Node, schema: pl.Schema) -> graph.Node:
    """The stream with these columns in this order. The order alone changes no state, so such a step has an
    empty identity.
    """
    if list(node.schema) == list(schema):
        return node
    missing = {name: dtype for name, dtype in schema.items() if name not in node.schema}
    nulls = [pl.lit(None, dtype).alias(name) for name, dtype in missing.items()]

    def align(frame: pl.DataFrame) -> pl.DataFrame:
        filled = frame.with_columns(nulls)
        first = [name for name in schema if name in filled.columns]
        return filled.select(*first, *(name for name in filled.columns if name not in schema))

    return graph.Stateless(
        (node,),
        schema,
        align,
        f"fill {', '.join(missing)}" if missing else "order columns",
        frozenset(),
        frozenset(missing),
        internal_identity={"kind": "fill", "columns": sorted(missing)} if missing else {},
    )
