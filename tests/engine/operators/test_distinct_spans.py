"""Distinct values by the spans of windows in which they are, against every window by itself."""

from collections import defaultdict
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from meter_readings import READINGS
from millrace import aggregates, windows
from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.engine.operators.distinct_spans import DistinctSpans, counts_distinct_only
from millrace.engine.operators.partials import Partials
from millrace.engine.operators.slices import Grid
from millrace.graph import Aggregation
from millrace.values.columns import END, SLICE
from strategies import examples

KEYS, VALUES = st.sampled_from([None, "a", "b"]), st.sampled_from([None, 1.0, 2.0, 3.0])
WINDOWS = [windows.sliding(8, every=1), windows.sliding(9, every=6), windows.sliding(5, every=5, offset=2)]


def spans_of(window: windows.Sliding) -> DistinctSpans:
    return DistinctSpans(Grid(window), partials_of(window, n=aggregates.count("value", distinct=True)))


def partials_of(window: windows.Sliding, **found: Any) -> Partials:
    node = mr.read(READINGS).window(window).group_by("meter").aggregate(**found).node
    assert isinstance(node, Aggregation)
    return Partials(node)


@given(
    rows=st.lists(st.tuples(KEYS, VALUES, st.integers(-20, 40)), max_size=30),
    window=st.sampled_from(WINDOWS),
    bounds=st.tuples(
        st.sampled_from([BEFORE_ALL, -15, 0, 11]), st.sampled_from([12, 30, 100, END_OF_STREAM])
    ),
)
@examples(300)
def test_each_window_counts_each_value_once(
    rows: list[tuple[str | None, float | None, int]], window: windows.Sliding, bounds: tuple[int, int]
) -> None:
    low, high = bounds
    expected: dict[tuple[str | None, int], set[float | None]] = defaultdict(set)
    for key, value, at in rows:
        for _, end in window.assign(at):
            if low < end <= high:
                expected[key, end].add(value)
    spans = spans_of(window)
    columns = {"meter": pl.String, "value": pl.Float64, "at": pl.Int64}
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    found = spans.results(frame.with_columns(spans.grid.slice_of(pl.col("at")).alias(SLICE)), low, high)
    counts = {(meter, end): count for meter, end, count in found.select("meter", END, "n").rows()}
    assert counts == {group: len(values - {None}) for group, values in expected.items()}
    assert found.height == len(expected)


@pytest.mark.parametrize(
    ("found", "is_distinct"),
    [
        ({"n": aggregates.count("value", distinct=True)}, True),
        ({"n": aggregates.count("value")}, False),
        ({"n": aggregates.count("value", distinct=True), "m": aggregates.max("value")}, False),
        ({"n": aggregates.sum("value", distinct=True)}, False),
    ],
)
def test_other_aggregates_are_not_counted_so(
    found: dict[str, aggregates.Reduction], is_distinct: bool
) -> None:
    assert counts_distinct_only(partials_of(windows.fixed(10), **found)) is is_distinct
