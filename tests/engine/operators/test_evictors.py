"""Rows are kept in place of partials, and merged as partials are: in any order and grouping."""

import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, evictors, windows
from millrace.engine.operators.evictors import EvictedPartials
from millrace.engine.operators.partials import Partials, partials_of
from millrace.evictors import Evictor
from millrace.graph import Aggregation
from millrace.values.columns import OFFSET, ROW_TIME, SOURCE
from strategies import A


def partials(evict: Evictor | None) -> Partials:
    windowed = mr.read(A).window(windows.sessions(10), evict=evict).group_by("k")
    node = windowed.aggregate(sum=aggregates.sum("v"), vs=aggregates.collect("v")).node
    assert isinstance(node, Aggregation)
    return partials_of(node)


def rows(*times: int) -> pl.DataFrame:
    """Of one key and window, each with its time as value."""
    own = {"k": "a", "g": 1, "x": 0.5, "b": True, "_start": 0, "_end": 99}
    frame = pl.DataFrame({ROW_TIME: times}, schema={ROW_TIME: pl.Int64}).with_row_index(OFFSET)
    return frame.with_columns(
        *[pl.lit(value).alias(name) for name, value in own.items()],
        *[pl.col(ROW_TIME).alias(name) for name in ("v", "event_time", "ingestion_time")],
        pl.lit(0, pl.Int64).alias(SOURCE),
        pl.col(OFFSET).cast(pl.Int64),
    )


def test_only_windows_with_an_evictor_keep_rows() -> None:
    assert type(partials(None)) is Partials
    assert type(partials(evictors.last(2))) is EvictedPartials


@pytest.mark.parametrize(
    ("evict", "shown"),
    [(evictors.last(2), [8, 9]), (evictors.within(3), [7, 8, 9]), (evictors.delta("v", 4), [5, 7, 8, 9])],
    ids=str,
)
def test_rows_are_merged_in_any_order(evict: Evictor, shown: list[int]) -> None:
    evicted, group = partials(evict), ("_start", "_end")
    parts = [evicted.from_rows(rows(*times), group=group) for times in ((9, 1, 5), (8, 2), (7,))]
    for one, other, last in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        first = evicted.merge(pl.concat([parts[one], parts[other]]), group=group)
        merged = evicted.merge(pl.concat([first, parts[last]]), group=group)
        result = evicted.add_results(merged)
        assert result.select("sum", "vs", "_n").row(0) == (sum(shown), shown, 6)


def test_what_nothing_is_kept_of_has_the_results_of_no_rows() -> None:
    evicted = partials(evictors.custom(lambda frame: frame.clear()))
    result = evicted.add_results(evicted.from_rows(rows(1, 2), group=("_start", "_end")))
    assert result.select("sum", "vs").row(0) == (None, [])


def test_no_windows_have_no_results() -> None:
    for evict in (evictors.last(1), evictors.custom(lambda frame: frame)):
        evicted = partials(evict)
        empty = evicted.from_rows(rows(), group=("_start", "_end"))
        assert evicted.add_results(empty).height == 0
