"""Random aggregates and rankings, and what DuckDB calls them."""

import random

import polars as pl

from millrace import aggregates
from millrace.aggregates import Reduction
from millrace.stream import Stream
from peers.streams import ORDER

BOUNDS = ("window_start", "window_end")


def an_aggregate(chance: random.Random) -> tuple[Reduction, str]:
    """An aggregate, and what DuckDB calls it."""
    c = chance.choice("kgvxb")
    there = f"FILTER ({c} IS NOT NULL)"
    options: list[tuple[Reduction, str]] = [
        (aggregates.count(), "count(*)"),
        (aggregates.count(c), f"count({c})"),
        (aggregates.distinct(c), f"count(DISTINCT {c})"),
        (aggregates.latest(c), f"last({c} ORDER BY {ORDER}) {there}"),
        (aggregates.earliest(c), f"first({c} ORDER BY {ORDER}) {there}"),
        (aggregates.collect(c), f"coalesce(list({c} ORDER BY {ORDER}) {there}, [])"),
        (aggregates.min(c), "coalesce(min(x) FILTER (NOT isnan(x)), min(x))" if c == "x" else f"min({c})"),
        (aggregates.max(c), "coalesce(max(x) FILTER (NOT isnan(x)), max(x))" if c == "x" else f"max({c})"),
    ]
    n = chance.choice("gvxb")
    total = SUM_OF_FLOATS if n == "x" else f"sum({n}::BIGINT)"
    options += [(aggregates.sum(n), total), (aggregates.mean(n), f"({total}) / count({n})")]
    whole, ranks = chance.choice("gv"), chance.choice([[0.5], [0.0, 0.07, 0.9, 1.0]])
    options += [
        (aggregates.stddev(whole), f"stddev_samp({whole})"),
        (aggregates.quantiles(whole, ranks), f"quantile_disc({whole}, {ranks})"),
    ]
    return chance.choice(options)


SUM_OF_FLOATS = """CASE
    WHEN bool_or(isnan(x)) OR (bool_or(x = 'inf') AND bool_or(x = '-inf')) THEN 'nan'::DOUBLE
    WHEN bool_or(x = 'inf') THEN 'inf' WHEN bool_or(x = '-inf') THEN '-inf'
    ELSE sum(TRY_CAST(x AS DECIMAL(38, 4)))::DOUBLE END"""


def a_part(chance: random.Random) -> tuple[Reduction, str]:
    """An aggregate of an expression, perhaps of some rows alone or of distinct values."""
    condition, holds = chance.choice(
        [(None, "true"), (pl.col("v") > 1, "v > 1"), (pl.col("b"), "b"), (pl.col("k") != "a", "k <> 'a'")]
    )
    value, sql = chance.choice(
        [
            (pl.col("v"), "v"),
            (pl.col("v") * pl.col("g"), "v * g"),
            (pl.when(pl.col("b")).then(pl.col("g")), "CASE WHEN b THEN g END"),
        ]
    )
    only, there = f"FILTER ({holds})", f"FILTER (({holds}) AND ({sql}) IS NOT NULL)"
    distinct = chance.random() < 0.5
    of = f"DISTINCT {sql}" if distinct else sql
    ranks = chance.choice([[0.5], [0.0, 0.07, 0.9, 1.0]])
    return chance.choice(
        [
            (aggregates.count(where=condition), f"count(*) {only}"),
            (aggregates.count(value, where=condition, distinct=distinct), f"count({of}) {only}"),
            (aggregates.sum(value, where=condition, distinct=distinct), f"sum({of}) {only}"),
            (
                aggregates.mean(value, where=condition, distinct=distinct),
                f"sum({of}) {only} / count({of}) {only}",
            ),
            (aggregates.stddev(value, where=condition, distinct=distinct), f"stddev_samp({of}) {only}"),
            (
                aggregates.quantiles(value, ranks, where=condition, distinct=distinct),
                f"quantile_disc({of}, {ranks}) {only}",
            ),
            (aggregates.max(value, where=condition), f"max({sql}) {only}"),
            (aggregates.latest(value, where=condition), f"last({sql} ORDER BY {ORDER}) {there}"),
            (
                aggregates.collect(value, where=condition),
                f"coalesce(list({sql} ORDER BY {ORDER}) {there}, [])",
            ),
        ]
    )


def a_ranking(
    chance: random.Random, stream: Stream, table: str, keys: tuple[str, ...]
) -> tuple[Stream, str, tuple[str, ...]]:
    """The first rows of each window by two columns in either direction; the query, and the columns."""
    k, columns = chance.randint(1, 3), (*keys, *BOUNDS)
    by, then, other = chance.sample([c for c in "kgvb" if c not in keys] + ["t"], 3)
    named = {c: pl.col("event_time") if c == "t" else pl.col(c) for c in (by, then, other)}
    directions = [chance.random() < 0.5 for _ in range(2)]
    made = stream.group_by(*keys).top(
        k,
        named[other].alias(f"{other}_"),
        by=[named[by].alias(f"{by}_"), named[then].alias(f"{then}_")],
        descending=directions,
        explode=True,
    )
    first, second = ("DESC" if descending else "ASC" for descending in directions)
    order = f"{by} {first}, {then} {second} NULLS LAST, {other} DESC NULLS LAST"
    ranked = (
        f"SELECT {', '.join(columns)}, {by}, {then}, {other}, "
        f"row_number() OVER (PARTITION BY {', '.join((*columns, 'session'))} ORDER BY {order}) AS rank "
        f"FROM {table} WHERE {by} IS NOT NULL"
    )
    query = f"SELECT * FROM ({ranked}) WHERE rank <= {k}"
    return made, query, (*columns, f"{by}_", f"{then}_", f"{other}_", "rank")
