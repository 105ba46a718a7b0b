"""Rankings row by row: each pane is a list of ranked rows, and each of them becomes a row with its rank."""

from __future__ import annotations

import polars as pl

from millrace import graph
from millrace.errors import DefinitionError
from millrace.values.columns import RANKED


def build_ranked_rows(results: graph.Node, windowing: graph.Windowing | None) -> graph.PaneRows:
    """The entries of rankings as rows; one that falls out, or gets another rank, is withdrawn."""
    if windowing is not None and windowing.accumulation == "discarding":
        raise DefinitionError(
            "top(explode=True): accumulation='discarding' has no meaning, as ranked rows are added and "
            "withdrawn one by one anyway; leave it out"
        )
    entries = results.schema[RANKED]
    fields = [field.name for field in entries.inner.fields]  # type: ignore[attr-defined] # a list of structs
    for name in fields:
        if name in results.schema:
            raise DefinitionError(
                f"top(explode=True): the result would have {name!r} twice; rename one first, or name the "
                "columns to show: top(3, 'line', by=...)"
            )
    apply = _explode_entries
    schema = graph.derive_schema(apply, results.schema, "explode the ranking")
    identity = {"kind": "ranked_rows", "fields": fields}
    return graph.PaneRows((results,), schema, apply, "explode the ranking", internal_identity=identity)


def _explode_entries(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.explode(RANKED, empty_as_null=False, keep_nulls=False).unnest(RANKED)
