"""The classic kinds of patterns, each against a plain computation."""

import itertools
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, windows
from millrace.errors import DefinitionError
from millrace.patterns import Pattern, classic, first, last
from millrace.patterns.nearby import kilometres


@dataclass
class Sighting:
    """The position of a vehicle."""

    who: str
    kind: str
    value: float
    latitude: float
    longitude: float


@dataclass
class Pair:
    """Two vehicles near each other."""

    who: str
    other: str
    km: float


@dataclass
class Counts:
    """How often each condition held."""

    who: str
    high: int
    low: int


@dataclass
class Compared:
    """An aggregate."""

    who: str
    mean: float


@dataclass
class Span:
    """A match."""

    who: str
    begun: int
    ended: int


SIGHTINGS = mr.Topic("input.sightings", Sighting, key="who")


def some(seed: int, number: int, people: int = 4, spread: float = 1.0) -> pl.DataFrame:
    chance = random.Random(seed)
    rows = [
        (
            chance.choice("abcdefgh"[:people]),
            chance.choice("xyz"),
            float(chance.randint(0, 5)),
            60 + chance.random() * spread,
            24 + chance.random() * spread,
            1000 * i,
        )
        for i in range(number)
    ]
    return pl.DataFrame(
        rows, schema=["who", "kind", "value", "latitude", "longitude", "event_time"], orient="row"
    )


def in_windows() -> mr.Stream:
    return mr.read(SIGHTINGS).window(windows.fixed("10s"))


def run_job(stream: mr.Stream, kind: type, events: pl.DataFrame) -> pl.DataFrame:
    return mr.replay(mr.Job("classic", stream.write(mr.Topic("analytics.classic", kind, key="who"))), events)


HIGH, LOW = pl.col("value") >= 4, pl.col("value") <= 1


@pytest.mark.parametrize("every", [True, False])
def test_logical_combinations_are_those_of_a_group_by(every: bool) -> None:
    events = some(1, 120)
    made = (classic.all_of if every else classic.any_of)(in_windows().group_by("who"), high=HIGH, low=LOW)
    shown = (
        run_job(made, Counts, events).select("who", "window_start", "high", "low").sort("window_start", "who")
    )
    grouped = events.group_by("who", window_start=pl.col("event_time") // 10_000 * 10_000).agg(
        high=HIGH.sum(), low=LOW.sum()
    )
    both = (pl.col("high") > 0) & (pl.col("low") > 0) if every else (pl.col("high") > 0) | (pl.col("low") > 0)
    assert (
        shown.rows()
        == grouped.filter(both)
        .select("who", "window_start", "high", "low")
        .sort("window_start", "who")
        .rows()
    )
    assert 0 < shown.height < grouped.height


def test_comparisons_are_those_of_a_group_by() -> None:
    events = some(2, 120)
    made = classic.compare(in_windows().group_by("who"), pl.col("mean") > 3, mean=aggregates.mean("value"))
    shown = run_job(made, Compared, events).select("who", "window_start", "mean").sort("window_start", "who")
    grouped = events.group_by("who", window_start=pl.col("event_time") // 10_000 * 10_000).agg(
        mean=pl.col("value").mean()
    )
    assert (
        shown.rows()
        == grouped.filter(pl.col("mean") > 3)
        .select("who", "window_start", "mean")
        .sort("window_start", "who")
        .rows()
    )
    assert 0 < shown.height < grouped.height


def spans(pattern: Pattern, events: pl.DataFrame, begin: str, end: str) -> list[tuple[str, int, int]]:
    matched = (
        mr.read(SIGHTINGS)
        .group_by("who")
        .match(pattern, select={"begun": first(begin, "event_time"), "ended": last(end, "event_time")})
    )
    return sorted(run_job(matched, Span, events).select("who", "begun", "ended").rows())


def lanes(events: pl.DataFrame) -> dict[str, list[dict[str, Any]]]:
    return {who: events.filter(pl.col("who") == who).to_dicts() for who in events["who"].unique().to_list()}


def test_a_sequence_takes_the_next_event_of_each_step() -> None:
    events = some(3, 60)
    found = spans(
        classic.sequence(
            x=pl.col("kind") == "x", y=pl.col("kind") == "y", z=pl.col("kind") == "z", within="20s"
        ),
        events,
        "x",
        "z",
    )
    wanted = []
    for who, rows in lanes(events).items():
        for place, row in enumerate(rows):
            end, steps = place, ["y", "z"]
            while row["kind"] == "x" and steps and end + 1 < len(rows):
                end += 1
                steps = steps[1:] if rows[end]["kind"] == steps[0] else steps
            if row["kind"] == "x" and not steps and rows[end]["event_time"] < row["event_time"] + 20_000:
                wanted.append((who, row["event_time"], rows[end]["event_time"]))
    assert found == sorted(wanted)
    assert found


@pytest.mark.parametrize("direction", ["increasing", "decreasing", "mixed"])
def test_trends_are_those_of_a_loop(direction: classic.Direction) -> None:
    events = some(4, 150)
    found = spans(
        classic.trend("value", direction, within="1m"),
        events,
        "start",
        "back" if direction == "mixed" else "on",
    )
    wanted = []
    for who, rows in lanes(events).items():
        place = 0
        while place + 2 < len(rows):
            a, b, c = (rows[place + i]["value"] for i in range(3))
            fits = {"increasing": a < b < c, "decreasing": a > b > c, "mixed": a < b > c or a > b < c}[
                direction
            ]
            if fits and rows[place + 2]["event_time"] - rows[place]["event_time"] < 60_000:
                wanted.append((who, rows[place]["event_time"], rows[place + 2]["event_time"]))
            place += 3 if fits and wanted[-1][1] == rows[place]["event_time"] else 1
    assert found == sorted(wanted)
    assert found


def test_each_event_of_moving_towards_a_place_is_nearer() -> None:
    events = some(5, 100)
    found = spans(classic.towards(60.2, 24.9, within="1m"), events, "start", "on")
    wanted = []
    for who, rows in lanes(events).items():
        far = [kilometres(row["latitude"], row["longitude"], 60.2, 24.9) for row in rows]
        place = 0
        while place + 2 < len(rows):
            fits = (
                far[place] > far[place + 1] > far[place + 2]
                and rows[place + 2]["event_time"] - rows[place]["event_time"] < 60_000
            )
            if fits:
                wanted.append((who, rows[place]["event_time"], rows[place + 2]["event_time"]))
            place += 3 if fits else 1
    assert found == sorted(wanted)
    assert found


@pytest.mark.parametrize(("km", "spread"), [(5.0, 0.2), (40.0, 1.0), (0.3, 0.01)])
def test_keys_near_each_other_are_those_of_all_pairs(km: float, spread: float) -> None:
    events = some(6, 60, people=8, spread=spread)
    shown = run_job(classic.near(in_windows(), "who", km=km), Pair, events).select(
        "window_start", "who", "other"
    )
    wanted: Counter[tuple[int, str, str]] = Counter()
    for start in range(0, 60_000, 10_000):
        newest = {
            row["who"]: row
            for row in events.sort("event_time").to_dicts()
            if start <= row["event_time"] < start + 10_000
        }
        for one, other in itertools.combinations(sorted(newest), 2):
            a, b = newest[one], newest[other]
            wanted[start, one, other] += (
                kilometres(a["latitude"], a["longitude"], b["latitude"], b["longitude"]) < km
            )
    assert Counter(shown.rows()) == +wanted
    assert shown.height > 0


def test_classic_patterns_without_content_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"near\(\) follows .window"):
        classic.near(mr.read(SIGHTINGS), "who", km=5)
    with pytest.raises(DefinitionError, match="a trend has at least two events"):
        classic.trend("value", "increasing", length=1, within="1m")
    with pytest.raises(DefinitionError, match="farther than the edge of any H3 cell"):
        classic.near(in_windows(), "who", km=5000)
