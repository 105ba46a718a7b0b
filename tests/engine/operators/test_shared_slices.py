"""What windows share is totalled once: it gives each window what its slices one by one would."""

import math
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millrace as mr
from millrace import aggregates, testing, windows
from millrace.engine.operators import shared_slices
from millrace.engine.operators.partials import Partials
from millrace.engine.operators.shared_slices import SharedSlices
from millrace.engine.operators.sliced_windows import SlicedWindowsOperator
from millrace.engine.operators.slices import Grid
from millrace.engine.plan import Plan
from millrace.engine.state import Layout, SlotState, StateTable
from millrace.windows import Sliding


@dataclass
class Reading:
    key: str
    value: int | None


@dataclass
class Answer:
    key: str
    least: int | None
    last: int | None


READINGS = mr.Topic("input.readings", Reading)
ANSWERS = mr.Topic("analytics.answers", Answer)


def job(size: int, lateness: int = 0) -> mr.Job:
    rows = mr.read(READINGS).window(windows.sliding(size, every=1), lateness=lateness).group_by("key")
    made = rows.aggregate(least=aggregates.min("value"), last=aggregates.latest("value"))
    return mr.Job("answers", made.write(ANSWERS))


def machine(size: int) -> SlicedWindowsOperator:
    (operator,) = Plan.of([job(size)], slots=1).operators
    return SlicedWindowsOperator(operator)


PARTIALS: Partials = machine(64).shape.partials
SLICES = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 200), st.integers(0, 9), st.sampled_from([0, 0, 0, 3])),
    min_size=1,
    max_size=60,
)


def table_of(slices: pl.DataFrame, grid: Grid) -> StateTable:
    start = pl.col("_slice")
    layout = Layout(grid.first_end(start), grid.last_end(start), PARTIALS.merge)
    return SlotState().append("op", "slices", slices, layout).table("op", "slices")


def slices_of(rows: list[tuple[str, int, int, int]], window: Sliding) -> pl.DataFrame:
    """A slice per row: key, start, value, and how many windows are gone for it."""
    frame = pl.DataFrame(
        {
            "key": [key for key, *_ in rows],
            "value": [value for *_, value, _ in rows],
            "_t": [at for _, at, *_ in rows],
            "_slice": [at // window.slice_size * window.slice_size for _, at, *_ in rows],
            "_from": [window.first_end(at) + gone * window.every for _, at, _, gone in rows],
        },
        schema_overrides={"value": pl.Int64},
    ).with_columns(pl.lit(0, pl.Int64).alias("_src"), pl.int_range(pl.len(), dtype=pl.Int64).alias("_off"))
    return PARTIALS.from_rows(frame)


@given(SLICES, st.integers(1, 3), st.integers(1, 70), st.integers(0, 250), st.integers(1, 60))
def test_windows_are_the_same_of_totals_as_of_slices(
    rows: list[tuple[str, int, int, int]], every: int, times: int, low: int, length: int
) -> None:
    window = Sliding(every * times, every, 0)
    shared = SharedSlices(Grid(window), PARTIALS)
    slices, high = slices_of(rows, window), low + length
    table = table_of(slices, shared.grid)
    with patch.object(shared_slices, "BLOCK", 2), patch.object(shared_slices, "MIN_BATCHES_PER_WINDOW", 0):
        shared_slices.clear_cache()
        read = shared.read(table, low, high)
        shared_slices.clear_cache()

    def values(some: pl.DataFrame) -> list[tuple[object, ...]]:
        return sorted(PARTIALS.merge_to_results(shared.grid.expand(some, low, high)).rows())

    assert values(pl.concat([slices.clear(), *read])) == values(slices)
    needed = shared.forget_superseded(slices, shared.grid.end_above(low))
    assert values(needed) == values(slices)


def test_of_a_long_window_no_more_than_a_few_totals_are_read() -> None:
    window = Sliding(4_096, 1, 0)
    shared = SharedSlices(Grid(window), PARTIALS)
    slices = slices_of([("a", at, 1, 0) for at in range(4_096)], window)
    table = table_of(slices, shared.grid)
    for high in (4_100, 5_000, 8_000):
        assert sum(part.height for part in shared.read(table, high - 2, high)) <= 3 * shared_slices.BLOCK + 2


TYPES: list[tuple[pl.DataType, list[Any]]] = [
    (pl.Boolean(), [False, True]),
    (pl.String(), ["", "ä"]),
    (pl.Date(), [date(1969, 1, 1), date(2026, 1, 1)]),
    (pl.Duration("ms"), [timedelta(-1), timedelta(2)]),
    (pl.Decimal(9, 2), [Decimal("-1.25"), Decimal(3)]),
    (pl.Enum(["b", "a"]), ["b", "a"]),
    (pl.Categorical(), ["b", "a"]),
    (pl.UInt8(), [0, 255]),
    (pl.Float64(), [-0.5, math.inf, math.nan]),
    (pl.Binary(), [b"", b"\xff"]),
]


@pytest.mark.parametrize(("dtype", "values"), TYPES, ids=str)
@given(data=st.data())
@settings(max_examples=20)
def test_of_any_type_the_slices_after_each_give_the_same_without_those_they_replace(
    dtype: pl.DataType, values: list[Any], data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(st.sampled_from([None, *values]), min_size=1, max_size=8))
    rows = pl.DataFrame({"_slice": range(len(drawn)), "v": pl.Series(drawn, dtype=dtype)})
    for aggregate in (aggregates.min("v"), aggregates.max("v")):
        partials = rows.group_by("_slice", maintain_order=True).agg(*aggregate.partials("a", dtype))
        superseded = aggregate.superseded("a", dtype)
        assert superseded is not None
        needed = partials.filter(~superseded)
        for first in range(len(drawn)):
            merged = [
                some.filter(pl.col("_slice") >= first).select(*aggregate.merge("a", dtype))["a.v"].to_list()
                for some in (partials, needed)
            ]
            assert repr(merged[0]) == repr(merged[1])


@pytest.mark.parametrize("kind", [aggregates.min, aggregates.max])
def test_slices_of_values_that_polars_cannot_accumulate_are_all_kept(kind: Any) -> None:
    assert kind("v").superseded("a", pl.List(pl.Int64)) is None
    assert kind("v").superseded("a", pl.Struct({"x": pl.Int64})) is None


def test_windows_that_overlap_little_are_read_as_they_are() -> None:
    assert machine(15).shared is None
    assert machine(16).shared is not None


@pytest.mark.parametrize(("step", "kept"), [(1, range(300, 301)), (-1, range(120))], ids=["rise", "fall"])
def test_only_slices_that_later_ones_do_not_replace_are_stored(step: int, kept: range) -> None:
    """Each of values that rise is the least some day; of values that fall, the last one alone."""
    script = testing.Script(job(600))
    for at in range(0, 300, 10):
        script.events(*({"key": "a", "value": step * (at + n), "event_time": at + n} for n in range(10)))
        script.watermark(at + 10)
    engine = script._backend.engine  # type: ignore[attr-defined]  # how much is kept shows in the state alone
    tables = [state.table("answers/aggregation-1", "slices") for state in engine.states.values()]
    assert sum(table.rows for table in tables) in kept


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_late_row_counts_in_windows_that_slices_before_it_are_forgotten_in(on: testing.On) -> None:
    script = testing.Script(job(20, lateness=5), on=on)
    script.watermark(12)
    rows = [(3, 4), (8, 3), (9, 8), (10, 2)]
    script.events(*({"key": "a", "value": value, "event_time": at} for at, value in rows))
    script.panes()
    script.restart()
    script.events({"key": "a", "value": 7, "event_time": 8}, {"key": "a", "value": None, "event_time": 11})
    shown = {(pane["window_end"], pane["timing"]): (pane["least"], pane["last"]) for pane in script.panes()}
    assert shown == {(9, "late"): (3, 7), (10, "late"): (3, 8), (11, "late"): (2, 2), (12, "late"): (2, 2)}
    script.watermark(40)
    later = {pane["window_end"]: (pane["least"], pane["last"]) for pane in script.panes()}
    assert later == {**dict.fromkeys(range(13, 31), (2, 2)), 31: (None, None)}, (
        "the row without a value is last"
    )
