"""Rows are dealt by key, evenly, or all to one place."""

from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, graph, panes, windows
from millrace.errors import DefinitionError
from millrace.graph.explain import explain
from millrace.testing.script import On, Script
from millrace.values import key_hash


@dataclass
class Row:
    value: int


@dataclass
class Sum:
    value: int


ROWS, SUMS = mr.Topic("input.rows", Row), mr.Topic("sums", Sum)


@dataclass
class Count:
    count: int


COUNTS = mr.Topic("counts", Count)


@pytest.mark.parametrize("on", ["model", "engine"])
def test_an_aggregate_of_a_stream_is_over_all_rows_and_has_no_key(on: On) -> None:
    sums = mr.read(ROWS).window(windows.fixed(10)).sum("value")
    assert sums.columns == ["value", "event_time", *panes.COLUMNS]
    script = Script(mr.Job("sums", sums.write(SUMS)), on=on, partitions=3)
    script.events(*({"value": n, "event_time": n} for n in range(10)), partition=[n % 3 for n in range(10)])
    script.watermark(10)
    assert [pane["value"] for pane in script.panes()] == [45]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_late_row_corrects_the_aggregate_of_groups_that_are_taken_together(on: On) -> None:
    rows = mr.read(ROWS).window(windows.fixed(10), lateness=100, accumulation="retracting")
    script = Script(mr.Job("counts", rows.group_by("value").count(name="n").count().write(COUNTS)), on=on)
    script.events({"value": 1, "event_time": 1}, {"value": 2, "event_time": 2})
    script.watermark(10)
    script.events({"value": 3, "event_time": 3})
    script.watermark(11)
    assert [(pane["op"], pane["count"]) for pane in script.panes()] == [("+", 2), ("-", 2), ("+", 3)]


def test_every_shorthand_works_without_a_key() -> None:
    rows = mr.read(ROWS).window(windows.fixed(10))
    found = {
        name: getattr(rows, name)("value").columns[0]
        for name in ("sum", "mean", "min", "max", "latest", "earliest", "stddev", "collect", "distinct")
    }
    assert set(found.values()) == {"value"}
    assert rows.quantiles("value", [0.5]).columns[0] == "value"
    assert rows.top(2, by="value").columns[0] == rows.top(2, "value").columns[0] == "top"
    assert rows.aggregate(n=aggregates.count(), total=aggregates.sum("value")).columns[:2] == ["n", "total"]


def test_a_name_is_that_of_the_operator_and_late_rows_are_those_that_it_refused() -> None:
    counts = mr.read(ROWS).window(windows.fixed(10)).count().named("all")
    assert [*mr.Job("counts", counts.write(COUNTS)).operator_ids.values()] == ["counts/all"]
    assert counts.late().columns == ["value", *graph.TIME_COLUMNS, "reason", "missed"]
    assert "of all rows" in explain([mr.Job("counts", counts.write(COUNTS))])


def test_an_empty_group_by_is_refused_with_the_remedy() -> None:
    with pytest.raises(DefinitionError, match=r"group_by\(\) names no column, .* on the stream itself"):
        mr.read(ROWS).group_by()


@pytest.mark.parametrize("on", ["model", "engine"])
def test_spread_rows_are_in_buckets_and_none_is_lost(on: On) -> None:
    rows = mr.read(ROWS).window(windows.fixed(100)).spread(8).sum("value")
    script = Script(mr.Job("sums", rows.select("value").write(SUMS)), on=on)
    script.events(*({"value": 1, "event_time": n} for n in range(100)))
    script.watermark(100)
    shown = [pane["value"] for pane in script.panes()]
    assert sum(shown) == 100
    assert len(shown) == 8


def test_buckets_are_even_and_spread_over_the_slots() -> None:
    times = pl.DataFrame(
        {"value": 0, "event_time": pl.int_range(1_700_000_000_000, 1_700_000_100_000, 7, eager=True)}
    )
    times = times.with_columns(ingestion_time=pl.col("event_time") + 120)
    node = mr.read(ROWS).spread(64).stream.node
    dealt = next(iter(graph.edges(graph.Union((node,), node.schema)))).apply(times)
    sizes: list[int] = dealt["bucket"].value_counts()["count"].to_list()
    assert len(sizes) == 64
    assert max(sizes) < 2 * sum(sizes) / 64
    assert len(set(key_hash.key_groups(dealt.select("bucket").unique(), ["bucket"]).tolist())) > 40


@pytest.mark.parametrize("unit", [1, 1_000, 60_000, 3_600_000])
def test_times_in_whole_seconds_minutes_or_hours_are_spread_over_all_buckets(unit: int) -> None:
    node = mr.read(ROWS).spread(64).stream.node
    times = pl.Series(
        range(1_700_000_000_000 // unit * unit, 1_700_000_000_000 // unit * unit + 6_400 * unit, unit)
    )
    frame = pl.DataFrame({"key": "k", "value": 1, "event_time": times, "ingestion_time": times})
    dealt = next(iter(graph.edges(graph.Union((node,), node.schema)))).apply(frame)
    counts = dealt["bucket"].value_counts()
    assert counts.height == 64
    assert counts["count"].min() > 50, "about 100 in each"  # type: ignore[operator]  # a whole number


@pytest.mark.parametrize("buckets", [0, 1.5, True, "8"])
def test_rows_are_spread_over_a_number_of_buckets(buckets: Any) -> None:
    with pytest.raises(DefinitionError, match="between 1 and"):
        mr.read(ROWS).spread(buckets)
