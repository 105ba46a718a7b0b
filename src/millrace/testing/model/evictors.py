"""Evictors in the model: of all rows of a window in order, those that a pane is computed from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from millrace import evictors, graph, panes
from millrace.testing.model.outcome import Change


def keep_rows(node: graph.Aggregation, rows: Sequence[Change]) -> list[Change]:
    """The rows that count, in order."""
    evictor, schema = node.evict, node.row_schema
    ordered = sorted(rows, key=lambda change: (change.row["event_time"], change.row_order))
    if not ordered:
        return []
    match evictor:
        case None:
            return ordered
        case evictors.LastEvictor(rows=count):
            return ordered[-count:]
        case evictors.Within(span=span):
            newest = ordered[-1].row["event_time"]
            return [change for change in ordered if change.row["event_time"] > newest - span]
        case evictors.DeltaEvictor(column=column, threshold=threshold):
            values = [change.row[column] for change in ordered]
            known = [value for value in values if has_value(value)]
            return [
                change
                for change, value in zip(ordered, values, strict=True)
                if not has_value(value) or value == known[-1] or abs(value - known[-1]) <= threshold
            ]
        case evictors.Custom():
            values = [[change.row[name] for name in schema] for change in ordered]
            frame = pl.DataFrame(values, schema=schema, orient="row")
            kept = node.add_arguments(evictor.keep(frame)).to_dicts()
            return [Change(panes.ADD, row, ("", 0, 0, place)) for place, row in enumerate(kept)]
        case _:
            raise TypeError(f"{evictor} is not known to the model")


def has_value(value: Any) -> bool:
    """Whether there is a number from which others can differ."""
    return value is not None and not (isinstance(value, float) and math.isnan(value))
