"""When input is believed complete: ascending, ingestion time, and delays that are learned."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millrace as mr
from millrace import testing, triggers, watermarks, windows
from millrace.engine.lag_estimate import _last_changes, _sizes_of
from millrace.errors import DefinitionError
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine, OnModel
from millrace.watermarks import Watermark, lag_bucket, largest_lag, last_update_offset


@dataclass
class Ride:
    line: str


@dataclass
class Count:
    line: str
    count: int


RIDES, COUNTS = mr.Topic("input.rides", Ride), mr.Topic("analytics.counts", Count)


def counting(watermark: Watermark, *, lateness: int = 0) -> mr.Job:
    rides = mr.read(RIDES, watermark=watermark).window(windows.fixed(1_000), lateness=lateness)
    return mr.Job("job", rides.group_by("line").count().write(COUNTS))


def test_jobs_that_set_aside_different_rows_learn_their_delays_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of 14 is 6 ms ahead: one job sets it aside, so it does not count among the lags of that job."""
    monkeypatch.setattr(watermarks, "FIRST", 2)
    monkeypatch.setattr(watermarks, "EVERY", 4)
    learned = {
        name: watermarks.percentile(0.5, start=0, ahead=ahead) for name, ahead in (("x", 4), ("y", 60))
    }
    jobs = [
        mr.Job(
            name,
            mr.read(RIDES, watermark=watermark)
            .window(windows.fixed(10))
            .group_by("line")
            .count()
            .write(COUNTS),
        )
        for name, watermark in learned.items()
    ]
    engine, model = (on(jobs, {RIDES.name: 1}) for on in (OnEngine, OnModel))
    times = [
        (1, 1),
        (-11, 4),
        (0, 8),
        (-2, 8),
        (14, 8),
        (10, 10),
        (8, 11),
        (8, 11),
        (12, 15),
        (4, 16),
        (15, 18),
    ]
    for offset, (at, ingested) in enumerate(times):
        for backend in (engine, model):
            backend.feed([ride(offset, at, ingested)], ingested)
        assert dict(engine.watermarks) == dict(model.watermarks)
    assert len(set(model.watermarks.values())) == 2


def ride(offset: int, at: int, ingested: int | None = None, partition: int = 0) -> SourceEvent:
    return SourceEvent(
        "input.rides", partition, offset, at, at if ingested is None else ingested, {"line": "6"}
    )


@pytest.mark.parametrize("on", ["model", "engine"])
def test_ascending_rows_need_no_delay(on: testing.On) -> None:
    backend: Any = testing.backend([counting(watermarks.ascending())], {"input.rides": 1}, on)
    backend.feed([ride(0, 500), ride(1, 1_000)], 0)
    assert backend.watermarks["job/aggregation-1"] == 1_000
    fed = backend.feed([ride(2, 999)], 0)
    assert [row["reason"] for row in fed.late["job"]] == ["late"]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_by_ingestion_time_nothing_is_late_and_nothing_too_early(on: testing.On) -> None:
    backend: Any = testing.backend([counting(watermarks.ingestion_time())], {"input.rides": 1}, on)
    fed = backend.feed([ride(0, 5, 100), ride(1, 10**13, 200), ride(2, -7, 999), ride(3, 0, 1_500)], 0)
    assert backend.watermarks["job/aggregation-1"] == 1_500
    assert [(pane["count"], pane["window_end"]) for pane in fed.written["analytics.counts"]] == [(3, 1_000)]
    assert not fed.late.get("job")


KINDS: dict[str, Callable[[], watermarks.Watermark]] = {
    "bounded": lambda: watermarks.bounded(0),
    "ascending": watermarks.ascending,
    "percentile": lambda: watermarks.percentile(0.9, start=0),
    "punctuation": lambda: watermarks.punctuation(pl.col("event_time")),
}
YEAR_3000 = 32_503_680_000_000


@pytest.mark.parametrize("on", ["model", "engine"])
@pytest.mark.parametrize("trigger", [triggers.at_watermark(), triggers.repeatedly(triggers.after_count(1))])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_set_aside_as_future_does_not_move_the_watermark(
    kind: str, trigger: triggers.Trigger, on: testing.On
) -> None:
    rides = mr.read(RIDES, watermark=KINDS[kind]()).window(windows.fixed(1_000), trigger=trigger)
    job = mr.Job("job", rides.group_by("line").count().write(COUNTS))
    backend: Any = testing.backend([job], {"input.rides": 1}, on)
    fed = backend.feed([ride(0, YEAR_3000, 90_000), ride(1, 500, 90_000), ride(2, YEAR_3000, 90_000)], 90_000)
    assert [(row["reason"], row["offset"]) for row in fed.late["job"]] == [("future", 0), ("future", 2)]
    assert backend.watermarks["job/aggregation-1"] == 500
    assert not backend.feed([ride(3, 600, 90_000)], 90_000).late.get("job")


steps = st.tuples(
    st.integers(0, 3_000), st.sampled_from([0, 0, 1, 700, 2_500]), st.booleans(), st.integers(0, 1)
)
"""Of each row: how much later it is ingested than the one before, how old it is then, whether the year 3000
stands in it, and its partition.
"""


@dataclass
class Outcome:
    panes: list[tuple[Any, ...]]
    late: list[tuple[Any, ...]]
    watermark: int | None


def run_job(job: mr.Job, rows: list[SourceEvent], on: testing.On) -> Outcome:
    """What comes of rows in batches that hold the same offsets, whichever rows are left out;
    and the watermark after them.
    """
    backend: Any = testing.backend([job], {"input.rides": 2}, on)
    panes, late = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for start in range(0, 12, 4):
        fed = backend.feed([row for row in rows if start <= row.offset < start + 4], 0)
        panes += sorted(
            (row["window_start"], row["window_end"], row["index"], row["count"])
            for row in fed.written.get("analytics.counts", [])
        )
        late += sorted((row["reason"], row["offset"]) for row in fed.late.get("job", []))
    return Outcome(panes, late, backend.watermarks["job/aggregation-1"])


@pytest.mark.parametrize("on", ["model", "engine"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(
    trigger=st.sampled_from([triggers.at_watermark(), triggers.repeatedly(triggers.after_count(1))]),
    made=st.lists(steps, min_size=8, max_size=12),
)
def test_without_the_rows_of_the_year_3000_everything_else_is_the_same(
    kind: str, on: testing.On, trigger: triggers.Trigger, made: list[tuple[int, int, bool, int]]
) -> None:
    now, rows = 100_000, []
    for offset, (later, age, is_wrong, partition) in enumerate(made):
        now += later
        rows.append(ride(offset, YEAR_3000 + age if is_wrong else now - age, now, partition))
    rides = mr.read(RIDES, watermark=KINDS[kind]()).window(
        windows.fixed(1_000), lateness=500, trigger=trigger
    )
    job = mr.Job("job", rides.group_by("line").count().write(COUNTS))
    with_them, without = (
        run_job(job, rows, on),
        run_job(job, [row for row in rows if row.event_time < YEAR_3000], on),
    )
    wrong = [row.offset for row in rows if row.event_time >= YEAR_3000]
    assert sorted(offset for reason, offset in with_them.late if reason == "future") == wrong
    assert [pane for pane in with_them.panes if pane[1] < YEAR_3000] == without.panes
    assert [row for row in with_them.late if row[0] != "future"] == without.late
    assert with_them.watermark == without.watermark


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_punctuation_from_the_year_3000_is_ignored(on: testing.On) -> None:
    says = pl.when(pl.col("event_time") == 700).then(YEAR_3000).otherwise(pl.col("event_time"))
    backend: Any = testing.backend([counting(watermarks.punctuation(says))], {"input.rides": 1}, on)
    backend.feed([ride(0, 500), ride(1, 700)], 0)
    assert backend.watermarks["job/aggregation-1"] == 500


@given(st.integers(0, 2**45))
def test_a_lag_is_known_to_a_32nd(lag: int) -> None:
    greatest = largest_lag(lag_bucket(lag))
    assert lag <= greatest <= lag * 33 / 32
    assert lag_bucket(greatest) == lag_bucket(lag) < lag_bucket(greatest + 1)
    assert _sizes_of(np.array([lag])).tolist() == [lag_bucket(lag)]


@given(st.integers(0, 2**40))
def test_the_delay_changes_at_offsets_that_do_not_depend_on_batches(offset: int) -> None:
    assert last_update_offset(offset) <= offset < max(64, 2 * last_update_offset(offset) + 1024)
    assert _last_changes(np.array([offset])).tolist() == [last_update_offset(offset)]
    assert [last_update_offset(n) for n in (0, 63, 64, 127, 128, 1_023, 1_024, 2_047, 2_048)] == [
        0,
        0,
        64,
        64,
        128,
        512,
        1_024,
        1_024,
        2_048,
    ]


def test_a_delay_is_the_lag_that_a_share_of_the_rows_does_not_exceed() -> None:
    watermark = watermarks.percentile(0.9, start=777)
    assert watermark.delay_for({}) == watermark.delay_for({0: 63}) == 777
    assert watermark.delay_for({0: 90, lag_bucket(5_000): 10}) == 0
    assert watermark.delay_for({0: 89, lag_bucket(5_000): 11}) == largest_lag(lag_bucket(5_000))


def out_of_order(count: int) -> list[SourceEvent]:
    """Every tenth row is up to three seconds behind, as it also was in the year before."""
    dice, rows, ends = random.Random(4), [], [0, 0]
    for n in range(count):
        at, partition = n * 10, dice.randrange(2)
        rows.append(ride(ends[partition], at - (dice.randrange(3_000) if n % 10 == 0 else 0), at, partition))
        ends[partition] += 1
    return rows


@pytest.mark.parametrize("on", ["model", "engine"])
def test_the_watermark_stays_behind_by_what_was_learned(on: testing.On) -> None:
    backend: Any = testing.backend(
        [counting(watermarks.percentile(0.95, start=9_000))], {"input.rides": 2}, on
    )
    rows = out_of_order(400)
    backend.feed(rows[:60], 0)
    assert backend.watermarks["job/aggregation-1"] == 580 - 9_000
    backend.feed(rows[60:], 0)
    behind = 3_990 - backend.watermarks["job/aggregation-1"]
    assert 1_000 < behind < 2_500, "half of those that were behind at all were further behind than 1.5 s"


@pytest.mark.slow
@pytest.mark.parametrize("cut", [1, 37, 900])
def test_what_is_learned_and_what_is_late_does_not_depend_on_batches(cut: int) -> None:
    rows = out_of_order(1_800 if cut > 1 else 300)
    job = counting(watermarks.percentile(0.99, start=500))
    model = OnModel([job], {"input.rides": 2})
    expected = model.feed(rows, 0)
    engine, late = OnEngine([job], {"input.rides": 2}, slots=2), 0
    for start in range(0, len(rows), cut):
        fed = engine.feed(rows[start : start + cut], 0)
        late += sum(row["_rows"] for row in fed.late.get("job", []))
        engine.restart()
    assert engine.watermarks["job/aggregation-1"] == model.watermarks["job/aggregation-1"]
    assert late == len(expected.late["job"]) > 0


def test_the_watermark_stands_still_while_the_delay_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watermarks, "FIRST", 2)
    job = counting(watermarks.percentile(1.0, start=0))
    for on in ("model", "engine"):
        backend: Any = testing.backend([job], {"input.rides": 1}, on)
        reports = []
        for offset, at in enumerate([1_000, 2_000, 500, 2_100, 2_200, 9_000]):
            backend.feed([ride(offset, at, 9_000)], 0)
            reports.append(backend.watermarks["job/aggregation-1"])
        assert reports == [1_000, 2_000, 2_000, 2_100, 2_100, 9_000 - largest_lag(lag_bucket(1_500))]


def test_watermarks_read_as_they_are_written() -> None:
    assert str(watermarks.ascending()) == "ascending()"
    assert str(watermarks.ingestion_time(idle="5s")) == "ingestion_time(idle='5s')"
    assert str(watermarks.percentile(0.99, idle="1m")) == "percentile(0.99, start='10s', idle='1m')"
    assert str(watermarks.bounded("1s", idle="5s")) == "bounded('1s', idle='5s')"
    with pytest.raises(DefinitionError, match="between 0 and 1"):
        watermarks.percentile(99)
