"""Triggers of a user's own: written like each of the package's they show the same panes, whatever comes and
however it is cut; and the engine calls them as the model does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from engine.test_rescale import in_slots
from millrace import state, testing, triggers, windows
from millrace.engine import fingerprints
from millrace.engine import state as engine_state
from millrace.engine.operators import windows as cells
from millrace.engine.plan import Plan
from millrace.engine.source import PartitionBatch
from millrace.errors import DefinitionError
from millrace.graph.identity import identify_trigger
from millrace.runners.local import Engine
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine, OnModel, decode_events
from millrace.triggers import CONTINUE, FINISH, FIRE, Trigger, TriggerContext, TriggerFn, TriggerResult
from own_triggers import OwnAtWatermark, OwnCount, OwnDelay, OwnEvery, Row, to_own
from strategies import A, Given, batches, examples, watermark_of, write
from test_engine_against_model import differences, hold_batch, refused, shown
from windowings import any_trigger, any_window


def job_of(stream: mr.Stream, settings: dict[str, Any], trigger: Trigger, unit: int) -> Given:
    """What each window of each key has collected, and what it refused."""
    windowed = stream.window(trigger=trigger, **settings)
    collected = windowed.group_by("k").aggregate(vs=mr.aggregates.collect("v"), n=mr.aggregates.count())
    outputs = write(collected, "analytics.one"), write(collected.late(), "analytics.late")
    return Given((mr.Job("one", *outputs),), unit, {A.name: 2})


@given(data=st.data())
@examples(200)
def test_a_trigger_written_by_a_user_shows_what_the_one_of_the_package_shows(data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from([1, 1_000]))
    stream = mr.read(A, watermark=data.draw(watermark_of(unit, steady=False)))
    settings = {
        "window": data.draw(any_window(unit)),
        "lateness": data.draw(st.sampled_from([20, 6, 1, 0])) * unit,
        "accumulation": data.draw(st.sampled_from(["accumulating", "discarding", "retracting"])),
        "on_time": data.draw(st.sampled_from(["always", "if_new"])),
        "closing": data.draw(st.sampled_from(["none", "if_new", "always"])),
        "time": data.draw(st.sampled_from(["end", "earliest", "latest"])),
    }
    trigger = data.draw(any_trigger(unit))
    given, own = (job_of(stream, settings, one, unit) for one in (trigger, to_own(trigger)))
    slots = data.draw(st.sampled_from([1, 2, 5]))
    of_package, of_user = (OnEngine(one.jobs, one.partitions, slots=slots) for one in (given, own))
    model = OnModel(own.jobs, own.partitions)
    tight = data.draw(st.booleans())
    with (
        patch.object(engine_state, "MERGE_FACTOR", 2 if tight else engine_state.MERGE_FACTOR),
        patch.object(cells, "FULL_SCAN_ROWS", 2 if tight else cells.FULL_SCAN_ROWS),
    ):
        for batch in data.draw(batches(given, most=20)):
            if not data.draw(st.integers(0, 6)):  # a savepoint, and on in other slots
                slots = data.draw(st.sampled_from([1, 3, 4]))
                of_user = in_slots(of_user, OnEngine(own.jobs, own.partitions, slots=slots))
            ours = hold_batch(of_user, model, batch)
            theirs = of_package.feed(batch.events, batch.now, end=batch.end)
            assert not differences(shown(ours), shown(theirs))
            assert not differences(refused(ours), refused(theirs))


@dataclass
class Reading:
    key: str
    value: int | None


@dataclass
class Sums:
    key: str
    sum: int | None


ROWS, SUMS = mr.Topic("input.rows", Reading), mr.Topic("sums", Sums)
ON = pytest.mark.parametrize("on", ["model", "engine"])


def summed(trigger: Trigger, window: windows.WindowFn | None = None, **how: Any) -> mr.Job:
    rows = mr.read(ROWS).window(window or windows.fixed(100), trigger=trigger, **how)
    return mr.Job("sums", rows.group_by("key").sum("value", name="sum").write(SUMS))


def feed(script: testing.Script, *values: int | None, at: int = 0) -> list[Any]:
    script.events(*({"key": "k", "value": value, "event_time": at + n} for n, value in enumerate(values)))
    return [row["sum"] for row in script.panes()]


class AtRise(TriggerFn):
    """A pane for each new highest value."""

    highest: state.ValueState[int | None] = state.value(None)

    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        if row["value"] is None or (self.highest is not None and row["value"] <= self.highest):
            return CONTINUE
        self.highest = row["value"]
        return FIRE


@ON
def test_it_sees_the_rows_in_order_also_those_with_null(on: testing.On) -> None:
    script = testing.Script(summed(AtRise()), on=on)
    assert feed(script, None) == []
    assert feed(script, 3, 1) == [4]
    assert feed(script, 2, None) == []
    script.restart()
    assert feed(script, 3, 3) == []
    assert feed(script, 4) == [16]


class Everything(TriggerFn):
    """Keeps some of every kind of state, and asks for a pane when it finds all of it again."""

    flag = state.value(False)
    raw = state.value(b"")
    parts: state.ValueState[list[Any]] = state.value([])
    names: state.ListState[str] = state.list()
    counts: state.MapState[int, float] = state.map()

    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        is_whole = (
            self.flag
            and self.raw == b"\x00\xff"
            and self.parts == [1, {"two": [None, 2.5]}]
            and list(self.names) == ["", "é"]
            and dict(self.counts) == {2: float("inf")}
        )
        if not self.flag:
            self.flag, self.raw = True, b"\x00\xff"
            self.parts += [1, {"two": [None, 2.5]}]
            self.names.append("")
            self.names.append("é")
            self.counts[2] = float("inf")
        return FIRE if is_whole else CONTINUE


@ON
def test_what_it_keeps_comes_back_from_storage_as_it_was(on: testing.On) -> None:
    script = testing.Script(summed(Everything()), on=on)
    assert feed(script, 1) == []
    script.restart()
    assert feed(script, 2) == [3]


class Moments(TriggerFn):
    """When each call is made, kept beside the state, as tests may."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def settings(self) -> Mapping[str, Any]:
        return {}

    def note(self, name: str, ctx: TriggerContext) -> None:
        self.seen.append((name, ctx.window, ctx.watermark, ctx.now))

    def on_start(self, ctx: TriggerContext) -> None:
        self.note("start", ctx)
        ctx.set_timer(50)

    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        self.note(f"element {row['value']} at {row['event_time']}", ctx)
        return CONTINUE

    def on_event_time(self, time: int, ctx: TriggerContext) -> TriggerResult:
        self.note(f"timer {time}", ctx)
        ctx.set_timer(3)  # too late: the next millisecond
        return FIRE

    def on_fire(self, ctx: TriggerContext) -> None:
        self.note("fire", ctx)


@ON
def test_calls_know_where_time_stands(on: testing.On) -> None:
    trigger = Moments()
    script = testing.Script(summed(trigger), on=on)
    script.clock(7)
    feed(script, 1, 2)
    script.watermark(40)
    feed(script, 3, at=41)
    script.watermark(60)
    script.watermark(61)
    window = (0, 100)
    assert trigger.seen == [
        ("start", window, None, 7),
        ("element 1 at 0", window, None, 7),
        ("element 2 at 1", window, None, 7),
        ("element 3 at 41", window, 40, 7),
        ("timer 50", window, 60, 7),
        ("fire", window, 60, 7),
        ("timer 61", window, 61, 7),
        ("fire", window, 61, 7),
    ]


@ON
def test_rows_that_come_together_are_seen_in_order_of_event_time(on: testing.On) -> None:
    trigger = Moments()
    script = testing.Script(summed(trigger), on=on)
    script.events(*({"key": "k", "value": at, "event_time": at} for at in (30, 10, 20)))
    assert [name for name, *_ in trigger.seen] == [
        "start",
        "element 10 at 10",
        "element 20 at 20",
        "element 30 at 30",
    ]


class Merging(TriggerFn):
    """Keeps what it was given when windows merged."""

    number = state.value(5)
    names: state.ListState[str] = state.list()
    ages: state.MapState[str, int] = state.map()

    def __init__(self) -> None:
        self.seen: list[list[dict[str, Any]]] = []

    def settings(self) -> Mapping[str, Any]:
        return {}

    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        if row["value"] == 1:
            self.number = 6
            self.names.append("n")
            self.ages["a"] = 1
        return CONTINUE

    def on_merge(self, parts: Sequence[Mapping[str, Any]], ctx: TriggerContext) -> TriggerResult:
        self.seen.append(sorted((dict(part) for part in parts), key=lambda part: int(part["number"])))
        assert (self.number, list(self.names), dict(self.ages)) == (5, [], {})
        return CONTINUE


@ON
def test_windows_that_merge_have_what_each_kept_or_its_defaults(on: testing.On) -> None:
    trigger = Merging()
    script = testing.Script(summed(trigger, windows.sessions(10)), on=on)
    for at, value in ((0, 0), (15, 1), (8, 2)):
        script.events({"key": "k", "value": value, "event_time": at})
        script.restart()
    assert trigger.seen == [
        [{"number": 5, "names": [], "ages": {}}, {"number": 6, "names": ["n"], "ages": {"a": 1}}]
    ]


class After(TriggerFn):
    """A pane a while after the on-time one, without any row."""

    def on_start(self, ctx: TriggerContext) -> None:
        ctx.set_timer((ctx.watermark or 0) + 10)

    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_event_time(self, time: int, ctx: TriggerContext) -> TriggerResult:
        return FIRE


@ON
def test_a_trigger_for_late_panes_begins_with_the_pane_on_time(on: testing.On) -> None:
    script = testing.Script(summed(triggers.at_watermark(late=After()), lateness=100), on=on)
    feed(script, 1)
    script.watermark(105)
    assert [row["timing"] for row in script.panes()] == ["on_time"]
    script.events({"key": "k", "value": 2, "event_time": 1})
    script.watermark(114)
    assert script.panes() == []
    script.restart()
    script.watermark(115)
    assert [(row["timing"], row["sum"]) for row in script.panes()] == [("late", 3)]


def test_it_waits_for_the_clock_if_it_has_a_method_for_its_timers() -> None:
    assert not triggers.repeatedly(OwnCount(3)).waits_for_clock
    assert triggers.at_watermark(early=OwnEvery(10)).waits_for_clock
    assert Plan.of([summed(OwnDelay(10))], slots=1).needs_ticks
    assert not Plan.of([summed(OwnCount(3))], slots=1).needs_ticks


def test_it_compares_by_class_and_settings_and_reads_as_it_is_written() -> None:
    assert OwnCount(3) == OwnCount(3)
    assert OwnCount(3) != OwnCount(4)
    assert OwnDelay(3) != OwnEvery(3)
    assert hash(OwnCount(3)) == hash(OwnCount(3))
    assert str(triggers.repeatedly(OwnCount(3))) == "repeatedly(OwnCount(rows=3))"


def test_state_knows_it_by_class_settings_and_declared_state() -> None:
    assert identify_trigger(triggers.repeatedly(OwnCount(3))) == {
        "kind": "repeatedly",
        "trigger": {
            "kind": "own",
            "name": "OwnCount",
            "settings": {"rows": 3},
            "state": {"count": {"kind": "value", "shared": False}},
        },
    }
    assert "context" not in identify_trigger(OwnAtWatermark(once=True))["settings"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (OwnCount(2), OwnCount(3)),
        (triggers.after_count(2), OwnCount(2)),
        (OwnCount(2), triggers.any_of(OwnCount(2))),
    ],
    ids=str,
)
def test_state_of_another_trigger_does_not_fit_it_as_it_has_not_seen_the_rows(
    before: Trigger, after: Trigger
) -> None:
    old, new = (Plan.of([summed(one)], slots=1) for one in (before, after))
    [operator] = new.operators
    stored = old.fingerprints[operator.id]
    assert not fingerprints.find_adaptation(stored, operator)
    assert fingerprints.find_difference(stored, operator) == (
        "has another window, trigger, lateness or output than its state was made with"
    )


def test_a_trigger_of_the_package_may_follow_it() -> None:
    old, new = (Plan.of([summed(one)], slots=1) for one in (OwnCount(2), triggers.after_count(2)))
    [operator] = new.operators
    assert fingerprints.find_adaptation(old.fingerprints[operator.id], operator).trigger is not None


class Shared(OwnCount):
    total = state.value(0, shared=True)


class Forgetful(OwnCount):
    recent = state.value(0, ttl="1s")


class Untimely(TriggerFn):
    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        ctx.set_timer(5, time="processing")
        return CONTINUE


class Unclear(TriggerFn):
    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        return True  # type: ignore[return-value]  # a user's mistake


class Endless(TriggerFn):
    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        ctx.set_timer(10**15)
        return CONTINUE

    def on_event_time(self, time: int, ctx: TriggerContext) -> TriggerResult:
        return FINISH


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: summed(Shared(1)), "Shared.total: state of a trigger belongs to one window"),
        (
            lambda: triggers.repeatedly(Forgetful(1)),
            "Forgetful.recent: .* declare it without shared= and ttl=",
        ),
        (lambda: summed(AtRise(), windows.sessions(10)), "AtRise has no on_merge.* add that method"),
        (
            lambda: summed(triggers.repeatedly(AtRise()), windows.processing_time(windows.sessions(10))),
            "AtRise has no on_merge",
        ),
        (lambda: summed(OwnCount), "trigger=OwnCount is a class"),  # type: ignore[arg-type]  # a user's mistake
        (lambda: summed(OwnCount(1), windows.counted(3)), "leave out trigger"),
        (lambda: OwnCount(3).count, "state belongs to a key"),
    ],
)
def test_what_is_impossible_is_named_at_once(make: Callable[[], Any], error: str) -> None:
    with pytest.raises(DefinitionError, match=error):
        make()


@ON
@pytest.mark.parametrize(
    ("trigger", "error"),
    [
        (Untimely(), "sets a timer in processing time, but has no on_processing_time"),
        (Unclear(), "Unclear answered True; return triggers.CONTINUE, triggers.FIRE or triggers.FINISH"),
        (Endless(), "outside the years 1 to 9999"),
    ],
    ids=["no method", "no answer", "no time"],
)
def test_wrong_calls_and_answers_are_named(trigger: TriggerFn, error: str, on: testing.On) -> None:
    with pytest.raises(DefinitionError, match=error):
        feed(testing.Script(summed(trigger), on=on), 1)


class Picky(OwnCount):
    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        if row["value"] == 13:
            raise ValueError("thirteen")
        return super().on_element(row, ctx)


def test_what_its_code_raises_stops_its_job_alone_with_the_row_that_did_it() -> None:
    other = mr.Job(
        "rows", mr.read(ROWS).window(windows.fixed(100)).group_by("key").count(name="sum").write(SUMS)
    )
    engine = Engine([summed(Picky(1)), other])
    engine.plan = replace(engine.plan, isolates_jobs=True)
    rows = [{"key": "k", "value": value} for value in (1, 13, 2)]
    events = [SourceEvent("input.rows", 0, n, n, n, row) for n, row in enumerate(rows)]
    failures = engine.step([PartitionBatch("input.rows", 0, decode_events(ROWS, events))], 5).failures
    assert [failure.job for failure in failures] == ["sums"]
    assert re.match(
        r'ValueError: thirteen \(test_own_triggers\.py:\d+ in on_element; row \{"key": "k", "value": 13',
        failures[0].reason,
    )
    assert failures[0].rows["offset"].to_list() == [1]
