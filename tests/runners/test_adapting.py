"""Changes that stored state survives, with the results that follow: another watermark,
a longer lateness, an added aggregate.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, triggers, watermarks, windows
from millrace.runners.state.evolution import StateChanges, evolve
from millrace.runners.state.folder import Identity
from millrace.stream import Stream
from millrace.testing.model.source import SourceEvent
from millrace.testing.model.values import Row
from millrace.testing.script import OnEngine
from millrace.windows import Sliding


@dataclass
class Ride:
    who: str
    n: int


RIDES = mr.Topic("rides", Ride, key="who", partitions=1)
Rides: TypeAlias = Sequence[tuple[str, int, int]]
"""Who, when in seconds, and the number."""
WINDOWS = {
    "fixed": windows.fixed("10s"),
    "sliding": windows.sliding("10s", every="5s"),
    "sums that run along": windows.sliding("32s", every="1s"),
}
TRIGGERS: dict[str, dict[str, Any]] = {
    "slices": {},
    "cells": {"trigger": triggers.at_watermark(early=triggers.after_count(2))},
}


class ChangedRun:
    """A job that changes while its state lives on."""

    def __init__(self, stream: Stream, slots: int = 2) -> None:
        self.slots, self.offset, self.panes, self.late = slots, 0, list[Row](), list[Row]()
        self.on = self._on(stream)

    def _on(self, stream: Stream) -> OnEngine:
        kinds = {"String": str | None, "Int64": int | None, "Float64": float | None}
        names = {
            name: dtype for name, dtype in stream.node.schema.items() if name not in mr.topics.SYSTEM_COLUMNS
        }
        made = type(
            "Result", (), {"__annotations__": {name: kinds[str(dtype)] for name, dtype in names.items()}}
        )
        return OnEngine(
            [mr.Job("job", stream.write(mr.Topic("out", dataclass(made))))], {"rides": 1}, slots=self.slots
        )

    def feed(self, *batches: Rides) -> None:
        for batch in batches:
            events = []
            for who, second, n in batch:
                events.append(
                    SourceEvent("rides", 0, self.offset, second * 1000, second * 1000, {"who": who, "n": n})
                )
                self.offset += 1
            fed = self.on.feed(events, self.offset)
            self.panes += [row for rows in fed.written.values() for row in rows]
            self.late += [row for rows in fed.late.values() for row in rows]

    def end(self) -> None:
        fed = self.on.feed([], self.offset, end=True)
        self.panes += [row for rows in fed.written.values() for row in rows]

    def change(self, stream: Stream) -> None:
        before, self.on = self.on, self._on(stream)
        plan, was = self.on.engine.plan, before.engine.plan
        identity = Identity("id", ("job",), was.fingerprint, self.slots, 1, operators=was.fingerprints)
        after = evolve(identity, plan, before.engine.states, StateChanges(), "here")
        self.on.engine.states = dict(before.engine.states if after.states is None else after.states)
        self.on.end_offsets = before.end_offsets
        self.on.restart()

    def newest(self, *columns: str) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """What holds at the end of each key and window (start and end in seconds)."""
        found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for row in self.panes:
            group = (row["who"], row["window_start"] // 1000, row["window_end"] // 1000)
            found.pop(group, None)
            if row["op"] == "+":
                found[group] = tuple(row[column] for column in columns)
        return found


def read(delay: str = "5s") -> Stream:
    return mr.read(RIDES, watermark=watermarks.bounded(delay))


def some(chance: random.Random, start: int, batches: int) -> list[Rides]:
    """Rides around a time that moves on, many of them late."""
    return [
        [
            (chance.choice("ab"), max(0, start + 12 * i + chance.randint(-45, 12)), chance.randint(0, 9))
            for _ in range(chance.randint(1, 8))
        ]
        for i in range(batches)
    ]


class Judge:
    """Which rows which windows take, a row at a time, by a lateness and delay that change."""

    def __init__(self, window: Sliding, lateness: int, delay: int) -> None:
        self.window, self.lateness, self.delay = window, lateness, delay
        self.mark, self.gone, self.taken = -(10**9), -(10**9), dict[tuple[str, int, int], list[int]]()

    def feed(self, *batches: Rides) -> None:
        for batch in batches:
            for who, second, n in batch:
                for start, end in self.window.assign(second * 1000):
                    if end > self.gone and self.mark < end + self.lateness:
                        self.taken.setdefault((who, start // 1000, end // 1000), []).append(n)
                self.mark = max(self.mark, second * 1000 - self.delay)

    def change(self, lateness: int, delay: int) -> None:
        if lateness > self.lateness:
            self.gone = max(self.gone, self.mark - self.lateness)
        self.lateness, self.delay = lateness, delay


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("seed", range(2))
def test_after_a_longer_lateness_windows_that_were_dropped_stay_so_and_all_others_take_late_rows(
    window: str, trigger: str, seed: int
) -> None:
    def job(lateness: int) -> Stream:
        windowed = read().window(WINDOWS[window], lateness=f"{lateness}s", **TRIGGERS[trigger])
        return windowed.group_by("who").aggregate(total=aggregates.sum("n"), n=aggregates.count())

    chance = random.Random(seed)
    changed_run, judge, at = ChangedRun(job(3)), Judge(WINDOWS[window], 3_000, 5_000), 0
    for lateness in (3, 20, 60):
        if lateness > 3:
            changed_run.change(job(lateness))
            judge.change(lateness * 1000, 5_000)
        batches = some(chance, at, 4)
        changed_run.feed(*batches)
        judge.feed(*batches)
        at += 48
    changed_run.end()
    assert changed_run.newest("total", "n") == {
        group: (sum(taken), len(taken)) for group, taken in judge.taken.items()
    }


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("window", WINDOWS)
def test_after_a_longer_delay_no_window_that_was_dropped_begins_anew(window: str, trigger: str) -> None:
    def job(delay: str) -> Stream:
        return (
            read(delay)
            .window(WINDOWS[window], **TRIGGERS[trigger])
            .group_by("who")
            .aggregate(total=aggregates.sum("n"))
        )

    changed_run = ChangedRun(job("5s"))
    changed_run.feed([("a", 1, 1), ("a", 2, 2)], [("a", 100, 4)])
    changed_run.change(job("10m"))
    before = changed_run.newest("total")
    changed_run.feed([("a", 3, 8)], [("a", 101, 16)])
    changed_run.end()
    after = changed_run.newest("total")
    assert {group: after[group] for group in before if group[2] <= 95} == {
        group: row for group, row in before.items() if group[2] <= 95
    }
    assert [row["_rows"] for row in changed_run.late] == [1]


def test_after_a_longer_lateness_a_session_that_was_dropped_does_not_begin_anew() -> None:
    def job(lateness: str) -> Stream:
        return (
            read()
            .window(windows.sessions("5s"), lateness=lateness)
            .group_by("who")
            .aggregate(total=aggregates.sum("n"))
        )

    changed_run = ChangedRun(job("10s"))
    changed_run.feed([("a", 1, 1), ("a", 4, 2)], [("a", 40, 4)], [("a", 50, 8)])
    changed_run.change(job("1h"))
    changed_run.feed([("a", 3, 16), ("a", 43, 32)])
    changed_run.end()
    assert changed_run.newest("total") == {("a", 1, 9): (3,), ("a", 40, 48): (36,), ("a", 50, 55): (8,)}


MORE: dict[str, Callable[[], Any]] = {
    "count": lambda: aggregates.count("n"),
    "sum": lambda: aggregates.sum("n"),
    "mean": lambda: aggregates.mean("n"),
    "stddev": lambda: aggregates.stddev("n"),
    "max": lambda: aggregates.max("n"),
    "latest": lambda: aggregates.latest("n"),
    "earliest": lambda: aggregates.earliest("n"),
    "distinct": lambda: aggregates.distinct("n"),
    "of an expression": lambda: aggregates.sum(pl.col("n") * 2, where=pl.col("n") > 3),
    "of distinct values": lambda: aggregates.sum("n", distinct=True),
}


WAYS = [(window, how) for window in WINDOWS for how in (*TRIGGERS, "discarding")]
ADDED = [
    *(("sum", *aggregate_change) for aggregate_change in WAYS),
    *((more, "sums that run along", how) for more in MORE if more != "sum" for how in TRIGGERS),
]
"""Every way with a sum; every other aggregate, which may end the sums that ran along,
with slices and with cells.
"""


@pytest.mark.parametrize(("more", "window", "how"), ADDED)
def test_an_added_aggregate_is_null_in_windows_that_had_begun_and_whole_in_all_others(
    more: str, window: str, how: str
) -> None:
    settings: dict[str, Any] = {"accumulation": "discarding"} if how == "discarding" else TRIGGERS[how]

    def job(added: dict[str, Any]) -> Stream:
        windowed = read().window(WINDOWS[window], lateness="1h", **settings)
        return windowed.group_by("who").aggregate(**added, total=aggregates.sum("n"))

    chance = random.Random(more)
    first, second = some(chance, 0, 4), some(chance, 60, 4)
    changed_run, same = ChangedRun(job({})), ChangedRun(job({"added": MORE[more]()}))
    changed_run.feed(*first)
    changed_run.change(job({"added": MORE[more]()}))
    same.feed(*first)
    for one in (changed_run, same):
        one.panes.clear()
        one.feed(*second)
        one.end()
    last = max(second for batch in first for _, second, _ in batch)
    found, whole = changed_run.newest("total", "added"), same.newest("total", "added")
    begun = {
        group
        for group in whole
        if group[1] <= max(start // 1000 for start, _ in WINDOWS[window].assign(last * 1000))
    }
    assert found == {
        group: (total, None if group in begun else added) for group, (total, added) in whole.items()
    }
    assert begun
    assert {*whole} - begun


def test_an_aggregate_added_to_what_many_windows_share_leaves_their_numbers_of_panes_alone() -> None:
    def job(**added: Any) -> Stream:
        return (
            read()
            .window(WINDOWS["fixed"], lateness="1h")
            .group_by("who")
            .aggregate(total=aggregates.sum("n"), **added)
        )

    changed_run = ChangedRun(job())
    changed_run.feed([("a", 1, 1)], [("a", 30, 2)], [("a", 2, 4)])
    changed_run.change(job(most=aggregates.max("n")))
    changed_run.feed([("a", 3, 8)])
    assert [
        (row["index"], row["total"], row.get("most"), row["op"])
        for row in changed_run.panes
        if row["window_end"] == 10_000
    ] == [
        (0, 1, None, "+"),
        (1, 5, None, "+"),
        (2, 13, None, "+"),
    ]
