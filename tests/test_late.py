"""Whatever follows rows that an operator refused is held to the model: they come at the watermark that
refused them, and are not late again.
"""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from chain_links import (
    Link,
    Ringing,
    V,
    a_then_b,
    first_of_each,
    in_sessions,
    near_others,
    plain,
    processed,
    recognized,
    source,
    without_copies,
)
from millrace import aggregates, frames, patterns, testing, triggers, watermarks, windows
from millrace.errors import DefinitionError
from millrace.patterns import Rule
from millrace.stream import Stream
from millrace.topics import Topic
from strategies import A, B, Reading, examples, write
from test_chains import hold_chains

TABLE, RULES = Topic("input.table", Reading, key="k"), Topic("input.rules", Rule)
TWO_EARLY = triggers.at_watermark(early=triggers.repeatedly(triggers.after_count(2)))


def from_slices(rows: Stream, unit: int) -> Stream:
    return rows.window(windows.sliding(6 * unit, every=2 * unit)).group_by("k").sum("v").late()


def from_learned_delay(rows: Stream, unit: int) -> Stream:
    learned = mr.read(A, watermark=watermarks.percentile(0.6, start=2 * unit)).select("k", "v")
    return learned.window(windows.fixed(4 * unit)).group_by("k").count().late()


def from_cells(rows: Stream, unit: int) -> Stream:
    window = rows.window(windows.fixed(4 * unit), trigger=TWO_EARLY, lateness=unit)
    return window.group_by("k").count().late()


def from_windows_that_finish(rows: Stream, unit: int) -> Stream:
    trigger = triggers.after_count(2)
    return rows.window(windows.fixed(40 * unit), trigger=trigger).group_by("k").count().late()


def from_sessions(rows: Stream, unit: int) -> Stream:
    return rows.window(windows.sessions(2 * unit)).group_by("k").count().late()


def from_processing_time(rows: Stream, unit: int) -> Stream:
    window = windows.processing_time(windows.fixed(4 * unit))
    return rows.window(window).group_by("k").count().late()


def from_counted(rows: Stream, unit: int) -> Stream:
    return rows.window(windows.counted(2)).group_by("k").count().late()


def from_all_rows(rows: Stream, unit: int) -> Stream:
    return rows.window(windows.fixed(4 * unit)).count().late()


def from_expressions(rows: Stream, unit: int) -> Stream:
    windowed = rows.window(windows.fixed(4 * unit)).group_by("k")
    return windowed.aggregate(n=aggregates.sum(V * 2), m=aggregates.count(where=V > 0)).late()


def from_window_join(rows: Stream, unit: int) -> Stream:
    left = rows.window(windows.fixed(4 * unit))
    right = source(unit, B).window(windows.fixed(4 * unit))
    return left.group_by("k").join(right.group_by("k")).late()


def from_interval_join(rows: Stream, unit: int) -> Stream:
    others = source(unit, B).group_by("k")
    return rows.group_by("k").join(others, within=(-unit, 2 * unit)).late()


def from_regular_join(rows: Stream, unit: int) -> Stream:
    return rows.group_by("k").join(source(unit, B).group_by("k"), ttl=2 * unit, how="semi").late()


def from_table_join(rows: Stream, unit: int) -> Stream:
    table = mr.table(TABLE, watermark=watermarks.bounded(unit))
    return rows.group_by("k").join(table).late()


def from_copies(rows: Stream, unit: int) -> Stream:
    return without_copies(rows, unit).late()


def from_ordered_copies(rows: Stream, unit: int) -> Stream:
    return first_of_each(rows, unit).late()


def from_pattern(rows: Stream, unit: int) -> Stream:
    return rows.group_by("k").match(a_then_b(unit), select={"a": patterns.first("a", "v")}).late()


def from_row_pattern(rows: Stream, unit: int) -> Stream:
    clause = mr.match_recognize(
        measures={"n": "COUNT(a.v)"}, pattern="a+ b", define={"a": "a.v > 0"}, within=5 * unit
    )
    return rows.group_by("k").match_recognize(clause).late()


def from_rules(rows: Stream, unit: int) -> Stream:
    rules = mr.read(RULES, watermark=watermarks.bounded(0, idle=3 * unit))
    return rows.group_by("k").match_rules(rules).late()


def from_processor(rows: Stream, unit: int) -> Stream:
    return rows.group_by("k").process(Ringing(3 * unit)).late()


def from_processor_with_broadcast(rows: Stream, unit: int) -> Stream:
    broadcast = mr.read(B, watermark=watermarks.bounded(unit, idle=3 * unit)).select(w="v")
    return rows.group_by("k").process(Listening(3 * unit), broadcast=broadcast).late()


def from_frames(rows: Stream, unit: int) -> Stream:
    return rows.group_by("k").over(before=frames.lag("v")).late()


def from_corrected_frames(rows: Stream, unit: int) -> Stream:
    return rows.group_by("k").over(before=frames.lag("v"), lateness=2 * unit).late()


class Listening(Ringing):
    """Rows that are broadcast change nothing."""

    def process_broadcast(self, row: dict[str, Any], ctx: Any) -> None:
        pass


REFUSING: Mapping[str, Link] = {name: made for name, made in globals().items() if name.startswith("from_")}


def counted(stream: Stream, unit: int) -> Stream:
    windowed = stream.window(windows.fixed(2 * unit)).group_by("k")
    return windowed.aggregate(n=aggregates.count(), v=aggregates.latest("v")).select("k", v="n")


def in_order(stream: Stream, unit: int) -> Stream:
    made = plain(stream).group_by("k").over(before=frames.lag("v"), n=frames.row_number())
    return made.select("k", v=pl.sum_horizontal("before", "n"))


def at_own_time(stream: Stream, unit: int) -> Stream:
    kept = stream.with_columns(own="event_time", kept=pl.col("missed") > 0).filter("kept")
    return kept.group_by("k").deduplicate("v", "own", within=8 * unit).select("k", v="own")


FOLLOWING: Mapping[str, Link] = {
    made.__name__: made
    for made in (counted, in_order, at_own_time, in_sessions, near_others, processed, recognized)
}


def with_columns_of_rows(stream: Stream) -> Stream:
    """A join shows the columns of both sides; here it does not matter which was late."""
    if "v_right" in stream.columns:
        return stream.with_columns(v=pl.coalesce("v", "v_right"))
    return stream


def follow(first: Link, then: Link) -> Callable[[int], Stream]:
    return lambda unit: plain(then(with_columns_of_rows(first(source(unit), unit)), unit))


@pytest.mark.parametrize("first", list(REFUSING))
@given(data=st.data())
@examples(2)
def test_whatever_was_refused_may_be_followed_by_anything(first: str, data: st.DataObject) -> None:
    hold_chains(
        data,
        lambda unit: {
            f"{first}-{name}": follow(REFUSING[first], then)(unit) for name, then in FOLLOWING.items()
        },
        most=20,
    )


def counted_late(how: str = "count") -> mr.Job:
    rows = mr.read(A, watermark=watermarks.bounded(2))
    late = rows.window(windows.fixed(10)).group_by("k").count().late()
    if how == "count":
        late_counts = late.window(windows.fixed(10)).group_by("k").count(name="n")
        return mr.Job("late", write(late_counts, "analytics.late"))
    own = late.with_columns(own="event_time").group_by("k").over(n=frames.row_number())
    return mr.Job("late", write(own.select("k", "v", "own", "n"), "analytics.late"))


def at(time: int, **values: Any) -> dict[str, Any]:
    return {"k": "a", "event_time": time, **values}


ON = pytest.mark.parametrize("on", ["model", "engine"])


@ON
def test_late_rows_are_where_time_was_when_they_were_refused(on: testing.On) -> None:
    script = testing.Script(counted_late(), on=on)
    script.watermark(112)
    script.events(at(103), at(101))
    assert not script.panes()
    script.watermark(120)
    [pane] = script.panes()
    assert (pane["window_start"], pane["n"]) == (110, 2)


@ON
def test_late_rows_of_one_place_keep_the_order_of_their_topic_and_their_own_time(on: testing.On) -> None:
    script = testing.Script(counted_late("over"), on=on)
    script.watermark(112)
    script.events(at(103, v=5), at(104, v=1))
    script.events(at(102, v=3))
    script.watermark(113)
    shown = [(row["event_time"], row["own"], row["v"], row["n"]) for row in script.panes()]
    assert shown == [(112, 103, 5, 1), (112, 104, 1, 2), (112, 102, 3, 3)]


@ON
def test_a_row_too_far_in_the_future_is_where_it_was_ingested(on: testing.On) -> None:
    script = testing.Script(counted_late("over"), on=on)
    script.watermark(112)
    script.events(at(10**9, v=1, ingestion_time=120))
    assert not script.panes()
    script.watermark(121)
    assert [(row["event_time"], row["own"]) for row in script.panes()] == [(120, 10**9)]


@ON
def test_what_is_written_without_an_operation_has_its_own_time(on: testing.On) -> None:
    rows = mr.read(A, watermark=watermarks.bounded(2))
    late = rows.window(windows.fixed(10)).group_by("k").count().late().select("v", "reason", "missed")
    script = testing.Script(mr.Job("late", write(late, "analytics.late")), on=on)
    script.watermark(112)
    script.events(at(103, v=5))
    [row] = script.panes()
    assert (row["event_time"], row["v"], row["reason"], row["missed"]) == (103, 5, "late", 1)


JOINS: Mapping[str, Callable[[Any, Any], Stream]] = {
    "interval": lambda left, right: left.group_by("k").join(right.group_by("k"), within=(-5, 5)),
    "regular": lambda left, right: left.group_by("k").join(right.group_by("k"), ttl=1),
    "semi": lambda left, right: left.group_by("k").join(right.group_by("k"), ttl=1, how="semi"),
    "window": lambda left, right: (
        left.window(windows.fixed(10)).group_by("k").join(right.window(windows.fixed(10)).group_by("k"))
    ),
}


@ON
@pytest.mark.parametrize("kind", list(JOINS))
def test_late_rows_of_a_join_have_the_columns_of_both_sides(kind: str, on: testing.On) -> None:
    left, right = (mr.read(topic, watermark=watermarks.bounded(2)).select("k", "v") for topic in (A, B))
    late = JOINS[kind](left, right).late()
    assert late.columns == [
        *("k", "v", "v_right", "side", "event_time", "ingestion_time", "reason", "missed"),
    ]
    script = testing.Script(mr.Job("late", write(late.drop("reason", "missed"), "analytics.late")), on=on)
    script.watermark(112)
    script.events(at(103, v=5), topic=A)
    script.events(at(102, v=7), topic=B)
    shown = [(row["side"], row["v"], row["v_right"]) for row in script.panes()]
    assert shown == [("left", 5, None), ("right", None, 7)]


def test_a_join_of_rows_with_a_column_named_side_says_so() -> None:
    rows = mr.read(A).select("k", side="v")
    joined = rows.group_by("k").join(mr.read(B).select("k", "v").group_by("k"), ttl=5)
    with pytest.raises(DefinitionError, match="rename it before the join"):
        joined.late()
