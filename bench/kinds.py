"""The kinds that `millrace bench engine` measures besides the use cases: each window, trigger and aggregate,
patterns, long windows, large state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from bench import keyed_readings
from millrace import aggregates, frames, patterns, triggers, watermarks, windows
from millrace.patterns import pattern
from millrace.stream import Job, read
from millrace.triggers import Trigger
from millrace.windows import Window, WindowFn

KEYS = 2_000
ROWS = 50_000
BATCHES = 10


@dataclass(frozen=True)
class Kind:
    """A job to measure, and the readings for it."""

    group: str
    name: str
    make_job: Callable[[str, str], Job]
    """Makes the job from its name and its topic."""
    keys: int = KEYS
    warm_up_seconds: int = 0
    """Seconds of readings of all keys that are processed before the measurement,
    so that windows are full, or state is large.
    """
    rows: int = ROWS
    """Readings per measured batch."""
    is_sparse: bool = False
    """Whether readings are of random keys; otherwise there is one per key and second."""

    @property
    def label(self) -> str:
        """The name in `--only` and in the table."""
        return f"{self.group}/{self.name}"

    def job(self, topic: str) -> Job:
        """The job over this topic."""
        return self.make_job(self.label.replace("/", "-").replace(" ", "-"), topic)


def make_totals(name: str, topic: str, *, window: Any, **options: Any) -> Job:
    """Count and sum per key."""
    rows = read(keyed_readings.topic(topic), watermark=watermarks.bounded("1s", idle="10s")).window(
        window, **options
    )
    panes = rows.group_by("key").aggregate(n=aggregates.count(), total=aggregates.sum("value"))
    return Job(name, keyed_readings.write_to_topic(panes, f"analytics.{name}"))


def make_aggregated(name: str, topic: str, *, aggregate: Callable[[], Any], window: WindowFn) -> Job:
    """One aggregate per key."""
    rows = read(keyed_readings.topic(topic), watermark=watermarks.bounded("1s", idle="10s")).window(window)
    return Job(
        name,
        keyed_readings.write_to_topic(
            rows.group_by("key").aggregate(answer=aggregate()), f"analytics.{name}"
        ),
    )


def make_hops(name: str, topic: str, *, hops: int, key: str = "key") -> Job:
    """Rows that pass a deduplication and so many more, each of which takes them from the one before."""
    rows = read(keyed_readings.topic(topic), watermark=watermarks.bounded("1s", idle="10s"))
    once = rows.group_by("key").deduplicate("value", "place", within="1s")
    for _ in range(hops):
        once = once.group_by(key).deduplicate("key", "value", "place", within="1s")
    return Job(name, keyed_readings.write_to_topic(once, f"analytics.{name}"))


def make_row_frames(name: str, topic: str, *, lateness: str | None) -> Job:
    """The reading before each."""
    rows = read(keyed_readings.topic(topic), watermark=watermarks.bounded("1s", idle="10s"))
    framed = rows.group_by("key").over(before=frames.lag("value"), lateness=lateness)
    framed = framed.with_columns(before=pl.col("before").fill_null(0))
    return Job(name, keyed_readings.write_to_topic(framed, f"analytics.{name}"))


@dataclass(frozen=True)
class Calendar(WindowFn):
    """A user's window in Python: 10 s, except for two shorter ones at the end of each minute."""

    def assign(self, at: int) -> list[Window]:
        """The window that contains `at`."""
        start = at - at % 10_000
        return (
            [(start, start + (9_000 if start % 60_000 == 50_000 else 10_000))]
            if at % 60_000 < 59_000
            else [(at - at % 1_000, at - at % 1_000 + 1_000)]
        )


def make_relaxed_pattern(name: str, topic: str) -> Job:
    """A pattern of three steps.
    One reading in ten begins a match, and every later condition refers to earlier events.
    """
    value = pl.col("value")
    rising = (
        pattern("low", value < 100)
        .followed_by("high", (value > 800) & (value > 9 * patterns.last("low", "value")))
        .followed_by(
            "back",
            (value < 300)
            & (value < patterns.last("high", "value") - 700)
            & (value > patterns.last("low", "value")),
        )
        .within("10s")
    )
    rows = read(keyed_readings.topic(topic), watermark=watermarks.bounded("1s", idle="10s"))
    found = rows.group_by("key").match(
        rising, select={"low": patterns.last("low", "value"), "back": patterns.last("back", "value")}
    )
    return Job(name, keyed_readings.write_to_topic(found, f"analytics.{name}"))


def make_started_matches(name: str, topic: str) -> Job:
    """A pattern that nearly every reading begins and one in a hundred completes,
    so that nearly every key has partial matches.
    """
    ending = (pl.col("value") >= 990) & (pl.col("value") > patterns.last("low", "value"))
    waiting = pattern("low", pl.col("value") < 990).followed_by("high", ending).within("1h").skip_past_last()
    rows = read(keyed_readings.topic(topic), watermark=watermarks.bounded("1s", idle="10s"))
    found = rows.group_by("key").match(waiting, select={"high": patterns.last("high", "value")})
    return Job(name, keyed_readings.write_to_topic(found, f"analytics.{name}"))


def all_kinds() -> Iterator[Kind]:
    """All kinds, by group."""
    for name, window in _windows().items():
        options: dict[str, Any] = (
            {"trigger": triggers.every("2s", time="event")} if name == "global window" else {}
        )
        yield Kind("windows", name, partial(make_totals, window=window, **options))
    for name, trigger in _triggers().items():
        yield Kind(
            "triggers",
            name,
            partial(make_totals, window=windows.fixed("10s"), trigger=trigger, lateness="20s"),
        )
    for name, aggregate in _aggregates().items():
        yield Kind(
            "aggregates", name, partial(make_aggregated, aggregate=aggregate, window=windows.fixed("10s"))
        )
    for name, window in {
        "30s every 5s": windows.sliding("30s", every="5s"),
        "1h every 1s": windows.sliding("1h", every="1s"),
    }.items():
        yield Kind("sliding", name, partial(make_totals, window=window), warm_up_seconds=3_600)
    for name in ("latest", "min", "distinct"):
        make_job = partial(
            make_aggregated, aggregate=_aggregates()[name], window=windows.sliding("1h", every="1s")
        )
        yield Kind("sliding", f"1h every 1s {name}", make_job, warm_up_seconds=3_600)
    for keys, label in {1_000: "1k", 100_000: "100k", 1_000_000: "1M"}.items():
        hour = partial(make_totals, window=windows.fixed("1h"))
        yield Kind(
            "state", f"{label} keys sparsely", hour, keys=keys, warm_up_seconds=1, rows=1_000, is_sparse=True
        )
        yield Kind("state", f"{label} keys uniformly", hour, keys=keys, warm_up_seconds=1, is_sparse=True)
    yield Kind("patterns", "relaxed", make_relaxed_pattern)
    for hops in (0, 1, 2):
        yield Kind("chains", f"{hops} hops", partial(make_hops, hops=hops))
        yield Kind("chains", f"{hops} hops sparsely", partial(make_hops, hops=hops), rows=200)
    yield Kind("chains", "1 hop to another key", partial(make_hops, hops=1, key="place"))
    for lateness in (None, "20s"):
        corrected = "" if lateness is None else " corrected"
        yield Kind("frames", f"lag{corrected}", partial(make_row_frames, lateness=lateness))
    for rows, label in {1_000: "sparsely", ROWS: "uniformly"}.items():
        yield Kind(
            "patterns",
            f"1M keys {label}",
            make_started_matches,
            keys=1_000_000,
            warm_up_seconds=1,
            rows=rows,
            is_sparse=True,
        )


def _windows() -> dict[str, Any]:
    return {
        "fixed": windows.fixed("10s"),
        "sliding": windows.sliding("30s", every="5s"),
        "unaligned": windows.fixed("10s", offset=pl.col("place") * 100),
        "sessions": windows.sessions("1500ms"),
        "global window": windows.global_window(),
        "counted": windows.counted(10),
        "delta": windows.delta("value", 500),
        "punctuated": windows.punctuated(pl.col("place") == 0),
        "fixed by clock": windows.processing_time(windows.fixed("10s")),
        "own": Calendar(),
    }


def _triggers() -> dict[str, Trigger]:
    return {
        "at_watermark": triggers.at_watermark(),
        "once": triggers.at_watermark(late=triggers.never()),
        "early": triggers.at_watermark(early=triggers.after_count(5), late=triggers.after_count(1)),
        "every": triggers.every("1s"),
        "every event time": triggers.every("2s", time="event"),
        "after_delay": triggers.repeatedly(triggers.after_delay("1s")),
        "after_count": triggers.repeatedly(triggers.after_count(5)),
        "any_of": triggers.repeatedly(triggers.any_of(triggers.after_count(5), triggers.after_delay("1s"))),
        "all_of": triggers.repeatedly(triggers.all_of(triggers.after_count(5), triggers.after_delay("1s"))),
        "in_order": triggers.in_order(triggers.after_count(5), triggers.at_watermark()),
        "until": triggers.repeatedly(triggers.after_count(5)).until(
            triggers.at_watermark(late=triggers.never())
        ),
        "at_end": triggers.at_end(),
    }


def _aggregates() -> dict[str, Callable[[], Any]]:
    return {
        "count": aggregates.count,
        "sum": lambda: aggregates.sum("value"),
        "mean": lambda: aggregates.mean("value"),
        "min": lambda: aggregates.min("value"),
        "max": lambda: aggregates.max("value"),
        "latest": lambda: aggregates.latest("value"),
        "earliest": lambda: aggregates.earliest("value"),
        "stddev": lambda: aggregates.stddev("value"),
        "collect": lambda: aggregates.collect("value"),
        "distinct": lambda: aggregates.distinct("place"),
        "distinct approx": lambda: aggregates.distinct("place", approx=True),
        "quantiles": lambda: aggregates.quantiles("value", [0.5, 0.9, 0.99]),
        "quantiles approx": lambda: aggregates.quantiles("value", [0.5, 0.9, 0.99], approx=True),
        "top": lambda: aggregates.top(3, "place"),
        "top approx": lambda: aggregates.top(3, "place", approx=True),
        "top by": lambda: aggregates.top(3, "place", by="value"),
    }
