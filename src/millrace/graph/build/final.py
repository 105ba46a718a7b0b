"""The node of `final()`: from a changelog to the rows that hold in the end."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from millrace import graph
from millrace.errors import DefinitionError
from millrace.graph.build.stateless import drop_constant_key, group_all_rows
from millrace.values.columns import ALL_ROWS
from millrace.values.key_hash import hash_series


def build_final(source: graph.Node) -> graph.Node:
    """The rows of a changelog that hold when their windows can no longer change; rows stay as they are."""
    edges = list(graph.edges(graph.Union((source,), source.schema)))
    if all(edge.is_append_only for edge in edges):
        return source
    if any(edge.is_judged for edge in edges):
        return _final_of_each(source)
    for edge in edges:
        if isinstance(edge.origin, graph.Operation) and not (edge.has_panes or edge.origin.is_bounded):
            raise DefinitionError(
                f"final() after {edge.origin.describe().title} without a ttl: its results may be corrected "
                "at any time, so none of them is ever final; say join(..., ttl='1h')"
            )
        if edge.has_panes and isinstance(edge.origin, graph.Aggregation):
            _check_windowing(edge.origin)
    keys = tuple(name for name in _keys_of(edges) if name in source.schema)
    if keys:
        return graph.FinalValues((source,), source.schema, keys)
    source = group_all_rows(source)
    return drop_constant_key(graph.FinalValues((source,), source.schema, (ALL_ROWS,)))


def _final_of_each(source: graph.Node) -> graph.Node:
    """Of rows beside a changelog: the rows as they are, and the final values of the changelog. Steps look at
    each row by itself, so it makes no difference whether they come before or after.
    """
    if not isinstance(source, graph.Union | graph.Stateless):
        return source
    return replace(source, inputs=tuple(build_final(node) for node in source.inputs))


def _keys_of(edges: list[graph.Edge]) -> list[str]:
    """Columns by which equal rows come to one slot: the keys of what shows them, if those can be hashed."""
    keys = dict.fromkeys(
        key
        for edge in edges
        if isinstance(edge.origin, graph.Operation)
        for key in edge.origin.keys
        if _is_hashable(edge.schema[key])
    )
    return list(keys)


def _is_hashable(dtype: pl.DataType) -> bool:
    try:
        hash_series(pl.Series([], dtype=dtype))
    except DefinitionError:
        return False
    return True


def _check_windowing(node: graph.Aggregation) -> None:
    """Refuses panes whose place in event time is known only later."""
    windowing = node.windowing
    if windowing.is_ordered:
        raise DefinitionError(
            f"final() after {windowing.window}: its windows are shown when a later row comes, whenever that "
            "is, so nothing that follows could know how far time has come; use counted() or punctuated() in "
            "event time, or write the results to a topic"
        )
    if windowing.accumulation == "discarding":
        raise DefinitionError(
            "final() after accumulation='discarding': each pane holds a part, and none of them all; use "
            "accumulation='accumulating'"
        )
