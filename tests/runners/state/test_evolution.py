"""Jobs join and leave a state folder, change or are refused, and go on from savepoints in other slots."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import config, watermarks, windows
from millrace.cli.main import main
from millrace.errors import StateMismatch, StateUnwritable
from millrace.log import Log, open_log
from millrace.log.codecs.codec import decode, encode
from millrace.runners import run
from runners.local_child import READINGS, TOTALS, Reading, Total

pytestmark = pytest.mark.slow
OTHERS = mr.Topic("analytics.others", Total, key="sensor", partitions=2)
LATER = mr.Topic("input.later", Reading, key="sensor", partitions=1)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    opened = open_log(f"embedded:{tmp_path / 'log'}")
    for topic in (READINGS, LATER):
        opened.ensure(topic)
    return opened


def append(log: Log, start: int, count: int = 300) -> None:
    number = pl.int_range(start, start + count, eager=True)
    frame = pl.DataFrame({"value": number, "event_time": number * 100, "ingestion_time": number * 100})
    log.append(
        READINGS.name, encode(READINGS, frame.with_columns(sensor=pl.format("s{}", pl.col("value") % 13)))
    )


def job(
    name: str = "totals", topic: mr.Topic = TOTALS, size: str = "10s", source: mr.Topic = READINGS
) -> mr.Job:
    rows = mr.read(source, watermark=watermarks.bounded("1s"))
    return mr.Job(
        name, rows.window(windows.fixed(size), lateness="5s").group_by("sensor").sum("value").write(topic)
    )


def run_to_end(
    log: Log, tmp_path: Path, *jobs: mr.Job, state: str = "state", slots: int = 2, **more: Any
) -> None:
    settings = config.Settings().with_options(
        log_url=log.url, state_dir=tmp_path / state, run_max_events_per_batch=100, run_slots=slots
    )
    run(*jobs, on="local", settings=settings, until_caught_up=True, **more)


def panes(log: Log, topic: mr.Topic = TOTALS) -> list[tuple[Any, ...]]:
    frames = [
        decode(topic, p, log.read(topic.name, p, 0, end), panes=True).rows
        for p, end in log.end_offsets(topic.name).items()
    ]
    return sorted(pl.concat(frames).select("sensor", "window_end", "index", "value").rows())


def alone(tmp_path: Path, *counts: int) -> list[tuple[Any, ...]]:
    """What one run in one piece writes."""
    other = open_log(f"embedded:{tmp_path / 'alone'}")
    other.ensure(READINGS)
    append(other, 0, sum(counts))
    run_to_end(other, tmp_path, job(), state="alone-state")
    return panes(other)


def test_slots_may_change_between_runs(log: Log, tmp_path: Path) -> None:
    for start, slots in ((0, 2), (300, 5), (600, 1)):
        append(log, start)
        run_to_end(log, tmp_path, job(), slots=slots)
    assert panes(log) == alone(tmp_path, 900)


def test_a_job_that_joins_starts_at_the_present_and_leaves_the_others_alone(log: Log, tmp_path: Path) -> None:
    append(log, 0)
    run_to_end(log, tmp_path, job())
    append(log, 300)
    run_to_end(log, tmp_path, job(), job("others", OTHERS))
    append(log, 600)
    run_to_end(log, tmp_path, job(), job("others", OTHERS))
    assert panes(log) == alone(tmp_path, 900)
    joined, before = panes(log, OTHERS), [pane for pane in panes(log) if pane[1] > 40_000]
    assert [pane for pane in joined if pane[1] > 40_000] == before
    assert sum(pane[3] for pane in joined if pane[1] == 30_000) == 0, (
        "the window in which it was born holds what came since"
    )
    append(log, 900)
    run_to_end(log, tmp_path, job("others", OTHERS))
    assert max(pane[1] for pane in panes(log, OTHERS)) > max(pane[1] for pane in panes(log))


def test_a_job_may_bring_a_topic_of_its_own(log: Log, tmp_path: Path) -> None:
    append(log, 0)
    run_to_end(log, tmp_path, job())
    append(log, 300)
    run_to_end(log, tmp_path, job(), job("others", OTHERS, source=LATER))
    assert panes(log) == alone(tmp_path, 600)


def test_a_changed_operator_is_refused_with_the_choices(log: Log, tmp_path: Path) -> None:
    append(log, 0)
    run_to_end(log, tmp_path, job(), job("others", OTHERS))
    append(log, 300)
    with pytest.raises(
        StateMismatch,
        match=r"others/aggregation-1 has another window.* --reset others; .* another name.* migrate=",
    ):
        run_to_end(log, tmp_path, job(), job("others", OTHERS, size="5s"))
    run_to_end(log, tmp_path, job(), job("others", OTHERS, size="5s"), reset=["others"])
    assert panes(log) == alone(tmp_path, 600)
    anew = [pane for pane in panes(log, OTHERS) if pane[1] % 10_000]
    assert anew, "it went on with other windows"
    assert min(pane[1] for pane in anew) > 29_900


def test_state_may_be_migrated_by_a_function(log: Log, tmp_path: Path) -> None:
    append(log, 0, 295)
    run_to_end(log, tmp_path, job())
    wider = mr.Job(
        "totals",
        mr.read(READINGS, watermark=watermarks.bounded("1s"))
        .window(windows.fixed("10s"), lateness="5s")
        .group_by("sensor")
        .aggregate(value=mr.aggregates.max("value"))
        .write(TOTALS),
    )
    seen = []

    def as_greatest(operator: str, table: str, rows: pl.DataFrame) -> pl.DataFrame:
        seen.append((operator, table))
        own = [name for name in rows.columns if name.startswith("value")]
        return (
            rows.select(
                *[c for c in rows.columns if c not in own], pl.lit(1_000_000, pl.Int64).alias("value.v")
            )
            if own
            else rows
        )

    append(log, 295, 305)
    run_to_end(log, tmp_path, wider, migrate={"totals": as_greatest})
    assert ("totals/aggregation-1", "slices") in seen
    assert {pane[3] for pane in panes(log) if pane[1] == 30_000 and pane[2] == 0} == {1_000_000}


def test_a_savepoint_is_restored_in_other_slots_with_the_same_results(
    log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    append(log, 0)
    run_to_end(log, tmp_path, job())
    saved = tmp_path / "first.savepoint"
    words = ["savepoint", str(saved), "--state", str(tmp_path / "state"), "--json"]
    assert main(words) == 0
    assert '"jobs": ["totals"]' in capsys.readouterr().out
    assert main(words) == 1
    assert "is there already" in capsys.readouterr().err
    append(log, 300)
    run_to_end(log, tmp_path, job(), state="other", slots=7, restore=saved)
    assert panes(log) == alone(tmp_path, 600)
    with pytest.raises(StateMismatch, match="holds state already"):
        run_to_end(log, tmp_path, job(), state="other", slots=7, restore=saved)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [("nothing", StateMismatch, "is not a savepoint"), ("folder", StateUnwritable, "name a file")],
)
def test_what_is_no_savepoint_is_named(
    log: Log, tmp_path: Path, make: str, error: type[Exception], message: str
) -> None:
    append(log, 0)
    run_to_end(log, tmp_path, job())
    if make == "nothing":
        with pytest.raises(error, match=message):
            run_to_end(log, tmp_path, job(), state="new", restore=tmp_path / "nothing")
        return
    assert main(["savepoint", str(tmp_path / "no" / "folder"), "--state", str(tmp_path / "state")]) == 1
