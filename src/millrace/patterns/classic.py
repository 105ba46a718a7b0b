"""The classic kinds of event patterns, each in a line: combinations, comparisons, sequences, trends, nearness
and direction.

`all_of`, `any_of`, `compare` and `near` look at what lies in a window together, so they follow `.window(…)`;
`sequence`, `trend` and `towards` are patterns for `Keyed.match`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from millrace import aggregates
from millrace.aggregates import Reduction
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.geo import geocell, with_neighbours
from millrace.patterns.builder import Pattern, pattern
from millrace.patterns.conditions import first, last, previous
from millrace.patterns.nearby import kilometres, resolution_for
from millrace.values.columns import (
    ALL_THINGS,
    FLAG_PREFIX,
    HOME_CELL,
    LATITUDE,
    LONGITUDE,
    NEAR_CELL,
    ONE_THING,
)

if TYPE_CHECKING:
    from millrace.keyed import Keyed
    from millrace.stream import Stream

Direction = Literal["increasing", "decreasing", "mixed"]


def all_of(keyed: Keyed, **conditions: pl.Expr) -> Stream:
    """The keys for which each condition held at least once in a window, in whatever order;
    a column for each says how often.
    """
    counted = _count_conditions(keyed, conditions)
    return counted.filter(reduce(and_, (pl.col(name) > 0 for name in conditions)))


def any_of(keyed: Keyed, **conditions: pl.Expr) -> Stream:
    """The keys for which at least one condition held in a window; a column for each says how often."""
    counted = _count_conditions(keyed, conditions)
    return counted.filter(reduce(or_, (pl.col(name) > 0 for name in conditions)))


def compare(keyed: Keyed, condition: pl.Expr, **values: Reduction) -> Stream:
    """The keys whose aggregates in a window fulfil a condition:
    `compare(keyed, pl.col("mean") > 2 * pl.col("low"), mean=…, low=…)`.
    """
    return keyed.aggregate(**values).filter(condition)


def sequence(*, within: Duration, **conditions: pl.Expr) -> Pattern:
    """Events in this order, others between them: `sequence(probe=…, purchase=…,
    within="10m")`. The names are the steps.
    """
    if not conditions:
        raise DefinitionError(
            "sequence() needs at least one step, such as sequence(probe=pl.col('amount') < 1, within='10m')"
        )
    (name, where), *rest = conditions.items()
    result = pattern(name, where)
    for name, where in rest:
        result = result.followed_by(name, where)
    return result.within(within)


def trend(column: str, direction: Direction, *, length: int = 3, within: Duration) -> Pattern:
    """So many events one after the other, each with a greater `column` than the one before (`increasing`), or
    a lesser (`decreasing`).

    `mixed`: the value goes one way and then the other, whatever the length. The steps are `start` and `on`;
    of `mixed` also `back`.
    """
    if direction not in ("increasing", "decreasing", "mixed"):
        raise DefinitionError(f"trend({column!r}, {direction!r}): use 'increasing', 'decreasing' or 'mixed'")
    if length < 2:
        raise DefinitionError(f"trend({column!r}, length={length}): a trend has at least two events")
    value, before = pl.col(column), previous(column)
    if direction == "mixed":
        first_change = last("on", column) - first("start", column)
        return (
            pattern("start").next("on", value != before)
            .next("back", (value - last("on", column)) * first_change < 0)
            .within(within).skip_past_last()
        )  # fmt: skip
    on = value > before if direction == "increasing" else value < before
    return pattern("start").next("on", on).times(length - 1).consecutive().within(within).skip_past_last()


def towards(
    latitude: float | str,
    longitude: float | str,
    *,
    length: int = 3,
    within: Duration,
    at: tuple[str, str] = ("latitude", "longitude"),
) -> Pattern:
    """So many events one after the other, each nearer to a place than the one before: A moving towards B.

    The place is fixed, or in columns of the row, where B is then; `at` are the columns in which A is. The
    steps are `start` and `on`.
    """
    if length < 2:
        raise DefinitionError(f"towards(…, length={length}): a direction has at least two events")
    target = tuple(
        pl.col(one) if isinstance(one, str) else pl.lit(float(one)) for one in (latitude, longitude)
    )
    previous_target = tuple(
        previous(one) if isinstance(one, str) else pl.lit(float(one)) for one in (latitude, longitude)
    )
    nearer = kilometres(pl.col(at[0]), pl.col(at[1]), *target) < kilometres(
        previous(at[0]), previous(at[1]), *previous_target
    )
    return pattern("start").next("on", nearer).times(length - 1).consecutive().within(within).skip_past_last()


def near(stream: Stream, key: str, *, km: float, at: tuple[str, str] = ("latitude", "longitude")) -> Stream:
    """Pairs of keys that were less than so many kilometres apart at the end of a window, by their newest
    positions in it.

    Columns: `who` and `other` (the lesser name first), `km`. Only pairs in the same or in neighbouring H3
    cells are compared, and the distance is then computed exactly; what is kept is bounded by the windows.
    Needs the extra `transit`.
    """
    if not km > 0:
        raise DefinitionError(f"near(km={km}): give a distance greater than 0")
    if "window_start" in stream.columns or stream.windowing is None:
        raise DefinitionError(
            "near() follows .window(…) over rows: positions are compared at the end of each window"
        )
    resolution = resolution_for(km)
    dtype = stream.node.schema[key]
    place = {LATITUDE: aggregates.latest(at[0]), LONGITUDE: aggregates.latest(at[1])}
    newest = stream.group_by(key).aggregate(**place)
    homes = newest.with_columns(geocell(LATITUDE, LONGITUDE, resolution=resolution).alias(HOME_CELL)).filter(
        pl.col(HOME_CELL).is_not_null()
    )
    in_cells = (
        homes.with_columns(with_neighbours(HOME_CELL).alias(NEAR_CELL))
        .explode(NEAR_CELL)
        .with_columns(pl.struct(key, LATITUDE, LONGITUDE, HOME_CELL).alias(ONE_THING))
    )
    by_cell = in_cells.group_by(NEAR_CELL).collect(ONE_THING, name=ALL_THINGS)

    def pairs(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        present = sorted(row[ALL_THINGS], key=lambda one: str(one[key]))
        for one, other in itertools.combinations(present, 2):
            if one[HOME_CELL] == row[NEAR_CELL] and one[key] != other[key]:
                distance = kilometres(
                    *(one[c] for c in (LATITUDE, LONGITUDE)),
                    *(other[c] for c in (LATITUDE, LONGITUDE)),
                )
                if distance < km:
                    yield {key: one[key], "other": other[key], "km": distance}

    return by_cell.flat_map(pairs, schema={key: dtype, "other": dtype, "km": pl.Float64()})


def _count_conditions(keyed: Keyed, conditions: dict[str, pl.Expr]) -> Stream:
    if not conditions:
        raise DefinitionError("give at least one condition by name, such as fast=pl.col('speed') > 20")
    flags = {f"{FLAG_PREFIX}{name}": expr.cast(pl.Int64).fill_null(0) for name, expr in conditions.items()}
    rows = keyed.stream.with_columns(**flags)
    return rows.group_by(*keyed.keys).aggregate(
        **{name: aggregates.sum(f"{FLAG_PREFIX}{name}") for name in conditions}
    )
