"""A job that its own code stops is stopped alone: what is left of it,
what the others do, and how it starts again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import watermarks
from millrace.engine.isolation import find_culprits
from millrace.errors import DefinitionError, JobQuarantined
from millrace.log import Log, open_log
from millrace.log.status import parse_statuses, status_topic
from millrace.runners.local import Hooks, run_local
from runners.stopping_jobs import (
    BAD,
    EVENTS,
    GOOD,
    alone,
    bad,
    events,
    fill,
    good,
    letters,
    panicky,
    picky,
    settings,
    written,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(EVENTS)
    yield log
    log.close()


def run(log: Log, state: Path, *jobs: mr.Job, retry: tuple[str, ...] = (), limit: int = 400_000) -> list[Any]:
    """Until caught up; the results of each batch."""
    reports: list[Any] = []
    chosen = settings(log, state, state.name, run_max_events_per_batch=limit)
    run_local(
        list(jobs), settings=chosen, until_caught_up=True, hooks=Hooks(report=reports.append), retry=retry
    )
    return reports


def test_the_millionth_event_stops_one_job_and_not_the_other(log: Log, tmp_path: Path) -> None:
    fill(log, 0, 1_200_000)
    with pytest.raises(
        JobQuarantined,
        match=(
            "job bad was stopped by its own code in batch 2: ZeroDivisionError: number "
            r"999999 \(stopping_jobs.py:52 in check; in map_batches"
        ),
    ):
        run(log, tmp_path / "both", good(), bad(999_999))
    assert written(log, GOOD) == alone(log, tmp_path)
    [(topic, partition, offset, reason)] = letters(log)
    assert (topic, partition, offset) == ("input.events", "1", "499999")
    assert reason.startswith("ZeroDivisionError: number 999999")
    last_end = max(end for end, *_ in written(log, BAD))
    assert last_end <= 800_000, "what it had last_end after the last good batch, and no more"
    assert last_end >= 790_000


def test_it_stays_out_until_it_is_to_be_tried_again(log: Log, tmp_path: Path) -> None:
    fill(log, 0, 30_000)
    with pytest.raises(JobQuarantined):
        run(log, tmp_path / "both", good(), bad(25_000), limit=10_000)
    before = written(log, BAD)
    fill(log, 30_000, 20_000)
    with pytest.raises(JobQuarantined, match="--retry bad"):
        run(log, tmp_path / "both", good(), bad(None), limit=10_000)
    assert written(log, BAD) == before
    assert written(log, GOOD) == alone(log, tmp_path)
    fill(log, 50_000, 20_000)
    run(log, tmp_path / "both", good(), bad(None), retry=("bad",), limit=10_000)
    after = written(log, BAD)
    assert {end for end, *_ in before} == {10_000}

    def of(end: int, panes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return [row for row in panes if row[0] == end]

    assert of(20_000, after) == of(20_000, written(log, GOOD)), "from the state after its last good batch"
    assert of(60_000, after) == of(60_000, written(log, GOOD)), "and with what came since"
    assert {end for end, *_ in after} == {10_000, 20_000, 60_000}, "but without what came between"
    assert len(letters(log)) == 1


@pytest.mark.parametrize(
    ("job", "reason", "known"),
    [
        (picky(12_345, "add"), "KeyError", True),
        (picky(12_345, "result"), "KeyError", False),
        (panicky(12_345), "RuntimeError: behind the last aggregation", False),
    ],
    ids=[
        "an aggregate that cannot add",
        "an aggregate without an answer",
        "a step behind the last aggregation",
    ],
)
def test_wherever_its_code_raises(log: Log, tmp_path: Path, job: mr.Job, reason: str, known: bool) -> None:
    fill(log, 0, 12_346)
    fill(log, 20_000, 20_000)
    with pytest.raises(JobQuarantined, match=reason):
        run(log, tmp_path / "both", job, good(), limit=5_000)
    assert written(log, GOOD) == alone(log, tmp_path)
    found = letters(log)
    assert 0 < len(found) <= 20
    assert all(letter[3].startswith(reason) for letter in found)
    if known:
        assert [letter[:3] for letter in found] == [("input.events", "1", "6172")]


def test_an_error_that_quotes_half_a_surrogate_stops_its_job_alone(log: Log, tmp_path: Path) -> None:
    def quoting(frame: pl.DataFrame) -> pl.DataFrame:
        if frame["number"].is_in([7_000]).any():
            raise ValueError("no such word: 'a\ud800'")
        return frame

    job = mr.Job("bad", events().map_batches(quoting).group_by("key").sum("number", name="total").write(BAD))
    fill(log, 0, 30_000)
    for _ in range(2):
        with pytest.raises(JobQuarantined, match="no such word: 'a"):
            run(log, tmp_path / "both", job, good(), limit=10_000)
    assert written(log, GOOD) == alone(log, tmp_path)
    [letter] = letters(log)
    assert letter[:3] == ("input.events", "0", "3500")
    assert letter[3].startswith("ValueError: no such word: 'a?'")


def test_a_watermark_that_raises_stops_its_job_alone(log: Log, tmp_path: Path) -> None:
    def watch(numbers: pl.Series) -> pl.Series:
        if (numbers == 7_000).any():
            raise ValueError("what time is it?")
        return numbers

    rows = mr.read(
        EVENTS,
        watermark=watermarks.punctuation(
            pl.col("number").map_batches(watch, return_dtype=pl.Int64, is_elementwise=True)
        ),
    )
    job = mr.Job(
        "bad",
        rows.window(events().windowing.window).group_by("key").sum("number", name="total").write(BAD),  # type: ignore[union-attr] # it has one
    )
    fill(log, 0, 30_000)
    with pytest.raises(JobQuarantined, match="what time is it"):
        run(log, tmp_path / "both", job, good(), limit=10_000)
    assert written(log, GOOD) == alone(log, tmp_path)
    assert [letter[:3] for letter in letters(log)] == [("input.events", "0", "3500")]


def test_a_run_of_which_no_job_is_left_ends_at_once(log: Log, tmp_path: Path) -> None:
    fill(log, 0, 30_000)
    for _ in range(2):
        with pytest.raises(JobQuarantined, match="job bad was stopped"):
            run(log, tmp_path / "one", bad(5_000), limit=10_000)
    assert run(log, tmp_path / "one", bad(None), retry=("bad",), limit=10_000)
    with pytest.raises(DefinitionError, match="there is no such job"):
        run(log, tmp_path / "one", bad(None), retry=("worse",))


def test_the_letters_of_a_job_that_runs_alone_are_committed_once_and_say_where_its_code_raised(
    log: Log, tmp_path: Path
) -> None:
    fill(log, 0, 30_000)
    for _ in range(2):
        with pytest.raises(JobQuarantined, match=r"traceback is in .*bad.*\.txt") as raised:
            run(log, tmp_path / "one", bad(5_000), limit=10_000)
    assert [letter[:3] for letter in letters(log)] == [("input.events", "0", "2500")]
    [trace] = (tmp_path / "one").rglob("quarantine-*.txt")
    assert str(trace) in str(raised.value)
    assert "stopping_jobs.py" in trace.read_text()
    assert "ZeroDivisionError: number 5000" in trace.read_text()
    statuses = parse_statuses(log.read(status_topic("one"), 0, 0, log.end_offsets(status_topic("one"))[0]))
    assert [sorted(status.quarantined) for status in statuses] == [["bad"]]
    run(log, tmp_path / "one", bad(None), good(), retry=("bad",), limit=10_000)
    assert len(letters(log)) == 1
    assert written(log, BAD) == written(log, GOOD) == alone(log, tmp_path), (
        "the batch in which it failed alone is not lost to it"
    )


def test_letters_that_a_crash_kept_from_the_log_are_committed_by_the_next_run(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 0, 30_000)

    def crash(name: str) -> None:
        if name == "quarantined":
            raise MemoryError

    monkeypatch.setattr("millrace.log.fault_points.at", crash)
    with pytest.raises(MemoryError):
        run(log, tmp_path / "one", bad(5_000), limit=10_000)
    assert letters(log) == []
    monkeypatch.undo()
    with pytest.raises(JobQuarantined, match="job bad was stopped"):
        run(log, tmp_path / "one", bad(5_000), limit=10_000)
    assert len(letters(log)) == 1


def test_batches_and_status_records_say_who_is_under_quarantine(log: Log, tmp_path: Path) -> None:
    fill(log, 0, 30_000)
    reports: list[Any] = []
    chosen = settings(log, tmp_path, "statuses", run_max_events_per_batch=10_000)
    with pytest.raises(JobQuarantined):
        run_local(
            [good(), bad(15_000)], settings=chosen, until_caught_up=True, hooks=Hooks(report=reports.append)
        )
    assert [sorted(results.quarantined) for results in reports] == [[], ["bad"], ["bad"]]
    topic = status_topic("statuses")
    statuses = parse_statuses(log.read(topic, 0, 0, log.end_offsets(topic)[0]))
    assert [sorted(status.quarantined) for status in statuses] == [[], ["bad"], ["bad"]]


def test_offending_rows_are_found_by_halving() -> None:
    def picky_about(*wrong: int) -> Any:
        def check(frames: Any) -> None:
            if {*wrong} & {number for frame in frames for number in frame["n"]}:
                raise ValueError

        return check

    frames = [pl.DataFrame({"n": range(1_000)}), pl.DataFrame({"n": range(1_000, 1_700)})]
    assert [frame["n"].to_list() for frame in find_culprits(picky_about(3, 1_234), frames)] == [[3], [1_234]]
    many = find_culprits(picky_about(*range(1_700)), frames)
    assert sum(frame.height for frame in many) == 20

    def together(frames: Any) -> None:
        if sum(frame.height for frame in frames) > 1_000:
            raise ValueError

    assert [frame.height for frame in find_culprits(together, frames)] == [20, 20], (
        "no part is to blame: the first rows stand for them"
    )
