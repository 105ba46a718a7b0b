"""Distinct values by where they come and go: as many as in the slices of each window."""

import math
from dataclasses import dataclass
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from millrace import aggregates, testing, windows
from millrace.aggregates import Reduction
from millrace.engine.operators.distinct_windows import DistinctWindows, uses_spans
from millrace.engine.operators.partials import Partials, partials_of
from millrace.engine.operators.slices import Grid
from millrace.graph import Aggregation
from millrace.windows import Sliding


@dataclass
class Reading:
    key: str | None
    n: int | None
    x: float | None


READINGS = mr.Topic("input.readings", Reading)
COUNTED = {
    "values": aggregates.count("n", distinct=True),
    "floats": aggregates.distinct("x"),
    "sum": aggregates.sum("n", distinct=True),
    "mean": aggregates.mean("n", distinct=True),
    "spread": aggregates.stddev("n", distinct=True),
    "rows": aggregates.count(),
    "total": aggregates.sum("n"),
}


def partials(**computed: Reduction) -> Partials:
    rows = mr.read(READINGS).window(windows.sliding(40, every=1)).group_by("key")
    stream = rows.aggregate(**computed)
    assert isinstance(stream.node, Aggregation)
    return partials_of(stream.node)


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.integers(0, 60),
        st.sampled_from([None, 1, 2, 3, -4]),
        st.sampled_from([None, 0.5, math.nan, 0.0, -0.0]),
        st.sampled_from([0, 0, 0, 2]),
    ),
    max_size=40,
)


@given(ROWS, st.integers(1, 3), st.integers(1, 30), st.integers(-5, 90), st.integers(1, 40))
def test_windows_have_the_values_of_their_slices(
    rows: list[tuple[str, int, int, float, int]], every: int, times: int, low: int, length: int
) -> None:
    window = Sliding(every * times, every, 0)
    grid, kept = Grid(window), partials(**COUNTED)
    columns = ["key", "at", "n", "x", "gone"]
    types = [pl.String, pl.Int64, pl.Int64, pl.Float64, pl.Int64]
    frame = pl.DataFrame(rows, dict(zip(columns, types, strict=True)), orient="row")
    at = pl.col("at")
    slices = kept.from_rows(
        frame.select(
            *columns,
            grid.slice_of(at).alias("_slice"),
            (grid.first_end(at) + pl.col("gone") * every).alias("_from"),
            at.alias("_t"),
            pl.lit(0, pl.Int64).alias("_src"),
            at.alias("_off"),
        )
    )
    for high in (low + length, 10**15):
        expected = kept.merge_to_results(grid.expand(slices, low, high))
        found = DistinctWindows(grid, kept).windows(slices, low, high).collect()
        assert found.columns == expected.columns
        assert found.schema == expected.schema
        assert sorted(map(str, found.rows())) == sorted(map(str, expected.rows()))


@pytest.mark.parametrize(
    ("computed", "spans"),
    [
        ({"a": aggregates.distinct("n")}, True),
        ({"a": aggregates.distinct("n"), "b": aggregates.count(), "c": aggregates.mean("n")}, True),
        ({"a": aggregates.sum("x", distinct=True)}, False),
        ({"a": aggregates.distinct("n"), "b": aggregates.sum("x")}, False),
        ({"a": aggregates.distinct("n"), "b": aggregates.min("n")}, False),
        ({"a": aggregates.quantiles("n", [0.5], distinct=True)}, False),
        ({"a": aggregates.count("n")}, False),
    ],
    ids=str,
)
def test_spans_are_used_where_all_are_sums_of_whole_numbers(
    computed: dict[str, Reduction], spans: bool
) -> None:
    assert uses_spans(Grid(Sliding(200, 1, 0)), partials(**computed)) is spans
    assert not uses_spans(Grid(Sliding(100, 1, 0)), partials(**computed))


@dataclass
class Answer:
    key: str | None
    values: int
    sum: int | None


@pytest.mark.parametrize("lateness", [0, 8])
def test_the_engine_shows_what_the_model_shows_also_of_late_rows_and_behind_restarts(lateness: int) -> None:
    def play(on: testing.On) -> list[list[str]]:
        rows = mr.read(READINGS).window(windows.sliding(20, every=1), lateness=lateness).group_by("key")
        made = rows.aggregate(values=COUNTED["values"], sum=COUNTED["sum"])
        script = testing.Script(mr.Job("answers", made.write(mr.Topic("analytics.answers", Answer))), on=on)
        seen = []
        for turn in range(12):
            at = turn * 5
            script.events(
                *(
                    {"key": key, "n": (turn * 7 + n * 3) % 5 or None, "x": None, "event_time": at + n - back}
                    for key, back in (("a", 0), (None, 0), ("b", 9))
                    for n in range(4)
                    if turn % 4 or key != "a"
                )
            )
            script.watermark(at + 2)
            if turn % 3 == 0:
                script.restart()
            seen.append(sorted(repr(sorted(pane.items())) for pane in script.panes()))
        script.end()
        return [*seen, sorted(repr(sorted(pane.items())) for pane in script.panes())]

    with (
        patch("millrace.engine.state.MERGE_FACTOR", 2),
        patch("millrace.engine.operators.distinct_windows.MIN_WINDOWS_PER_SLICE", 16),
    ):
        assert play("engine") == play("model")
