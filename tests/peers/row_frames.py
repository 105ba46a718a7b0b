"""Random row frames, and DuckDB's `OVER (...)` of the same."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millrace import aggregates, frames
from millrace.stream import Stream
from peers.streams import ORDER, Flow
from strategies import KINDS


def a_frame(chance: random.Random, unit: int) -> tuple[dict[str, Any], str]:
    """Bounds as the API has them, and as SQL has them."""
    if chance.random() < 0.35:
        kind, upper = chance.choice(["rows", "range"]), chance.choice([0, 0, -1])
        last = "CURRENT ROW" if upper == 0 else "1 PRECEDING"
        bounds: dict[str, Any] = {} if kind == "rows" and not upper else {kind: (None, upper)}
        return bounds, f"{kind.upper()} BETWEEN UNBOUNDED PRECEDING AND {last}"
    upper = chance.choice([0, 0, 0, 1, 2])
    lower = upper + chance.randint(0, 5)
    if chance.random() < 0.5:
        bounds = {"rows": lower + 1} if not upper else {"rows": (-lower, -upper)}
        return bounds, f"ROWS BETWEEN {lower} PRECEDING AND {upper} PRECEDING"
    lower, upper = lower * unit, upper * unit
    bounds = {"range": lower} if lower and not upper else {"range": (-lower, -upper)}
    return bounds, f"RANGE BETWEEN {lower} PRECEDING AND {upper} PRECEDING"


def a_function(chance: random.Random, unit: int, by: str) -> tuple[Any, str]:
    """A function that counts rows, and what SQL calls it."""
    c, n, within = chance.choice("kgvxb"), chance.randint(1, 3), chance.choice([1, 4, 20]) * unit
    over = f"OVER (PARTITION BY {by} ORDER BY {ORDER})"
    return {
        "lag": (frames.lag(c, n), f"lag({c}, {n}) {over}"),
        "lead": (
            frames.lead(c, n, within=within),
            f"CASE WHEN lead(t, {n}) {over} - t < {within} THEN lead({c}, {n}) {over} END",
        ),
        "row_number": (frames.row_number(), f"row_number() {over}"),
    }[chance.choice(["lag", "lead", "row_number"])]


def an_aggregate(chance: random.Random, over: str, is_bounded: bool, has_peers: bool) -> tuple[Any, str]:
    """A function of a frame, and what SQL calls it."""
    c, n, whole = chance.choice("kgvb"), chance.choice("gvb"), chance.choice("gv")
    there = f"FILTER ({c} IS NOT NULL)"
    options: list[tuple[Any, str]] = [
        (aggregates.count(), f"count(*) {over}"),
        (aggregates.count(c), f"count({c}) {over}"),
        (aggregates.sum(n), f"sum({n}::BIGINT) {over}"),
        (aggregates.mean(n), f"avg({n}::BIGINT) {over}"),
        (aggregates.min(c), f"min({c}) {over}"),
        (aggregates.max(c), f"max({c}) {over}"),
        (aggregates.max("x"), f"coalesce(max(x) FILTER (NOT isnan(x)) {over}, max(x) {over})"),
        (aggregates.min("x"), f"coalesce(min(x) FILTER (NOT isnan(x)) {over}, min(x) {over})"),
        (aggregates.stddev(whole), f"stddev_samp({whole}) {over}"),
    ]
    if is_bounded:
        options += [
            (aggregates.distinct(c), f"count(DISTINCT {c}) {over}"),
            (aggregates.quantiles(whole, [0.0, 0.5]), f"quantile_disc({whole}, [0.0, 0.5]) {over}"),
        ]
    if not has_peers:  # the order of rows of the same time is not known to a frame by range
        options += [
            (frames.first(c), f"first_value({c}) {over}"),
            (frames.last(c), f"last_value({c}) {over}"),
            (aggregates.latest(c), f"last_value({c} IGNORE NULLS) {over}"),
            (aggregates.earliest(c), f"first_value({c} IGNORE NULLS) {over}"),
        ]
        if is_bounded:
            options.append((aggregates.collect(c), f"coalesce(list({c}) {there} {over}, [])"))
    return chance.choice(options)


def row_frames(
    chance: random.Random, flow: Flow, rows_of: Callable[[random.Random, Flow], tuple[Stream, str]]
) -> tuple[Stream, str, tuple[str, ...]]:
    """Rows beside columns of those around them: a stream, the query of a table, and their columns.

    Rows that are not in order wait for each other, or those that come late correct the others.
    """
    lateness = flow.disorder if flow.disorder and chance.random() < 0.4 else None
    stream, table = rows_of(chance, flow if lateness is None else replace(flow, disorder=0))
    keys = chance.choice([("k",), ("g",), ("b",), ("k", "g"), ("v", "b")])
    by, ttl = ", ".join(keys), chance.choice([None, None, 3, 9])
    if ttl is not None:
        quiet = f"t - lag(t) OVER (PARTITION BY {by} ORDER BY {ORDER}) >= {ttl * flow.unit}"
        numbered = f"count(*) FILTER (begins) OVER (PARTITION BY {by} ORDER BY {ORDER})"
        table = f"(SELECT *, {numbered} AS part_of FROM (SELECT *, {quiet} AS begins FROM {table}))"
        by += ", part_of"
    frame, bounds = a_frame(chance, flow.unit)
    has_peers, is_bounded = bounds.startswith("RANGE"), "UNBOUNDED" not in bounds
    over = f"OVER (PARTITION BY {by} ORDER BY {'t' if has_peers else ORDER} {bounds})"
    chosen = [
        a_function(chance, flow.unit, by)
        if chance.random() < 0.4
        else an_aggregate(chance, over, is_bounded, has_peers)
        for _ in range(chance.randint(1, 4))
    ]
    columns = {f"o{place}": function for place, (function, _) in enumerate(chosen)}
    limit: dict[str, Any] = {} if ttl is None else {"ttl": ttl * flow.unit}
    made = stream.group_by(*keys).over(**columns, **frame, **limit, lateness=lateness)
    query = f"SELECT {', '.join([*KINDS, *(sql for _, sql in chosen)])}, t FROM {table}"
    return made, query, (*KINDS, *columns, "event_time")
