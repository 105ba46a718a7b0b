"""When panes fire: which triggers are accepted, and which refused."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import testing, triggers, watermarks, windows
from millrace.errors import DefinitionError
from millrace.panes import latest_panes
from millrace.testing.model.source import SourceEvent
from millrace.triggers import Trigger


@dataclass
class Row:
    key: str
    value: int


@dataclass
class Sum:
    key: str
    sum: int


ROWS, SUMS = mr.Topic("input.rows", Row), mr.Topic("sums", Sum)

COUNT, DELAY = triggers.after_count(3), triggers.after_delay("5s")
WRITTEN: list[tuple[Trigger, str]] = [
    (triggers.at_watermark(), "at_watermark()"),
    (triggers.at_watermark(late=triggers.never()), "at_watermark(late=never())"),
    (
        triggers.at_watermark(early=COUNT, late=DELAY),
        "at_watermark(early=after_count(3), late=after_delay('5s'))",
    ),
    (triggers.every("1s"), "every('1s')"),
    (triggers.every("1m", time="event"), "every('1m', time='event')"),
    (
        triggers.repeatedly(triggers.any_of(COUNT, DELAY)),
        "repeatedly(any_of(after_count(3), after_delay('5s')))",
    ),
    (triggers.all_of(COUNT, triggers.at_end()), "all_of(after_count(3), at_end())"),
    (triggers.in_order(COUNT, triggers.at_window_end()), "in_order(after_count(3), at_window_end())"),
    (triggers.every("1s").until(COUNT), "every('1s').until(after_count(3))"),
]


def test_only_a_trigger_without_late_panes_fires_once() -> None:
    assert triggers.at_watermark(late=triggers.never()).has_single_pane
    assert not triggers.at_watermark().has_single_pane
    assert not triggers.at_watermark(early=triggers.never()).has_single_pane


def test_triggers_compare_by_value() -> None:
    assert triggers.at_watermark(late=triggers.never()) == triggers.at_watermark(late=triggers.never())
    assert triggers.at_watermark(late=triggers.never()) != triggers.at_watermark()
    assert triggers.at_watermark(early=triggers.never()) == triggers.at_watermark()
    assert triggers.any_of(COUNT, DELAY) != triggers.any_of(DELAY, COUNT)


@pytest.mark.parametrize(("trigger", "text"), WRITTEN, ids=[text for _, text in WRITTEN])
def test_triggers_read_as_they_are_written(trigger: Trigger, text: str) -> None:
    assert str(trigger) == text


@pytest.mark.parametrize(
    ("trigger", "finishes"),
    [
        (COUNT, True),
        (triggers.every("1s"), False),
        (triggers.repeatedly(COUNT), False),
        (triggers.any_of(COUNT, triggers.every("1s")), True),
        (triggers.all_of(COUNT, triggers.every("1s")), False),
        (triggers.in_order(COUNT, triggers.repeatedly(COUNT)), False),
        (triggers.every("1s").until(COUNT), True),
        (triggers.at_watermark(early=COUNT), False),
    ],
    ids=str,
)
def test_it_is_known_whether_a_trigger_can_finish(trigger: Trigger, finishes: bool) -> None:
    assert trigger.finishes is finishes


def test_a_trigger_waits_for_the_clock_if_anything_in_it_does() -> None:
    assert triggers.at_watermark(early=triggers.repeatedly(triggers.any_of(COUNT, DELAY))).waits_for_clock
    assert not triggers.at_watermark(early=triggers.every("1s", time="event")).waits_for_clock


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: triggers.after_count(0), "n=0"),
        (lambda: triggers.after_count(1.5), "n=1.5"),  # type: ignore[arg-type]  # a user's mistake
        (lambda: triggers.every("0s"), "period='0s'"),
        (lambda: triggers.after_delay("-1s"), "delay='-1s'"),
        (lambda: triggers.any_of(), "any_of"),
        (lambda: triggers.at_watermark(early=3), "early=3"),  # type: ignore[arg-type]  # a user's mistake
        (lambda: triggers.repeatedly("often"), "trigger='often'"),  # type: ignore[arg-type]  # a user's mistake
        (lambda: COUNT.until(7), "until=7"),  # type: ignore[arg-type]  # a user's mistake
    ],
)
def test_what_is_impossible_is_named(make: Callable[[], Any], named: str) -> None:
    with pytest.raises(DefinitionError, match=named):
        make()


class Own(triggers.Trigger):
    """A trigger of a user's own."""


@pytest.mark.parametrize(
    "make",
    [
        lambda: mr.read(ROWS).window(windows.fixed(10), trigger=Own()),
        lambda: mr.read(ROWS).window(windows.fixed(10), trigger=triggers.Repeatedly(Own())),
        lambda: triggers.repeatedly(Own()),
        lambda: triggers.any_of(triggers.after_count(1), Own()),
        lambda: triggers.at_watermark(early=Own()),
        lambda: triggers.after_count(1).until(Own()),
    ],
)
def test_a_trigger_of_ones_own_is_refused(make: Any) -> None:
    with pytest.raises(DefinitionError, match="Own is a trigger of your own, which would never fire"):
        make()


@pytest.mark.parametrize("on", ["model", "engine"])
@pytest.mark.parametrize("cut", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "trigger", [triggers.every(7, time="event"), triggers.repeatedly(triggers.after_count(2))], ids=str
)
def test_the_last_value_of_a_window_does_not_depend_on_how_batches_are_cut(
    trigger: triggers.Trigger, cut: int, on: testing.On
) -> None:
    rows = mr.read(ROWS, watermark=watermarks.bounded(3)).window(windows.fixed(10), trigger=trigger)
    backend: Any = testing.backend(
        [mr.Job("sums", rows.group_by("key").sum("value", name="sum").write(SUMS))], {"input.rows": 1}, on
    )
    events = [
        SourceEvent("input.rows", 0, n, at, at, {"key": "k", "value": at})
        for n, at in enumerate([7, 8, 9, 10, 13])
    ]
    last: dict[int, int] = {}
    for start in range(0, len(events), cut):
        batch = events[start : start + cut]
        fed = backend.feed(batch, batch[-1].event_time, end=start + cut >= len(events))
        last |= {row["window_end"]: row["sum"] for row in fed.written.get("sums", [])}
    assert last == {10: 24, 20: 23}


def sessions(accumulation: Any, trigger: triggers.Trigger) -> mr.Job:
    rows = mr.read(ROWS).window(
        windows.sessions(10), trigger=trigger, lateness=100, accumulation=accumulation
    )
    return mr.Job("sums", rows.group_by("key").sum("value", name="sum").write(SUMS))


@pytest.mark.parametrize("on", ["model", "engine"])
@pytest.mark.parametrize("accumulation", ["accumulating", "retracting"])
def test_the_newest_pane_of_each_window_leaves_out_sessions_that_were_merged(
    accumulation: Any, on: testing.On
) -> None:
    script = testing.Script(sessions(accumulation, triggers.repeatedly(triggers.after_count(1))), on=on)
    shown = []
    for at in (0, 15, 1, 8, 30, 22, 60):
        script.events({"key": "k", "value": at, "event_time": at})
        script.restart()
        shown += script.panes()
    table = latest_panes(pl.DataFrame(shown), ["key"])
    assert table.select("window_start", "window_end", "sum").rows() == [(0, 40, 76), (60, 70, 60)]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_session_that_grows_is_withdrawn_at_once_and_counts_its_panes_anew(on: testing.On) -> None:
    script = testing.Script(sessions("accumulating", triggers.at_watermark()), on=on)
    script.events({"key": "k", "value": 1, "event_time": 0})
    script.watermark(10)
    script.events({"key": "k", "value": 2, "event_time": 8})
    script.watermark(18)
    names = ("window_start", "window_end", "sum", "index", "timing", "op")
    assert [tuple(row[name] for name in names) for row in script.panes()] == [
        (0, 10, 1, 0, "on_time", "+"),
        (0, 10, 1, 1, "late", "-"),
        (0, 18, 3, 0, "on_time", "+"),
    ]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_without_a_watermark_multiples_are_counted_from_the_first_row_that_is_new(on: testing.On) -> None:
    trigger = triggers.in_order(triggers.after_count(1), triggers.every(10, time="event"))
    rows = mr.read(ROWS).window(windows.global_window(), trigger=trigger)
    script = testing.Script(mr.Job("sums", rows.group_by("key").sum("value", name="sum").write(SUMS)), on=on)
    for at in (1, 13):
        script.events({"key": "k", "value": at, "event_time": at})
    assert [row["sum"] for row in script.panes()] == [1]
    script.watermark(19)
    assert script.panes() == []
    script.watermark(20)
    assert [row["sum"] for row in script.panes()] == [14]
