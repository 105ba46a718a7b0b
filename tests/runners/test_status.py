"""With every batch a run says how it is, in the log, together with the batch's results."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.log import Log, OutgoingRecords, open_log
from millrace.log.codecs.codec import encode
from millrace.log.status import Status, parse_statuses, run_of_topic, status_topic
from millrace.runners.commit import Committer
from millrace.runners.local import Hooks, run_local
from runners.local_child import READINGS, TOTALS, settings, totals
from runners.test_local import readings

TOPIC = status_topic("millrace")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(READINGS)
    yield log
    log.close()


def statuses(log: Log) -> list[Status]:
    return parse_statuses(log.read(TOPIC, 0, log.start_offsets(TOPIC)[0], log.end_offsets(TOPIC)[0]))


def test_each_batch_leaves_one_record_that_adds_up(log: Log, tmp_path: Path) -> None:
    log.append(READINGS.name, encode(READINGS, readings(0, 300)))
    before = time.time_ns() // 1_000_000
    run_local([totals()], settings=settings(log.url, str(tmp_path / "state")), until_caught_up=True)
    found = statuses(log)
    assert [status.batch for status in found] == list(range(len(found)))
    assert len(found) >= 5, "60 events a batch"
    assert sum(status.read for status in found) == 300
    assert (
        sum(status.results[TOTALS.name] for status in found) == sum(log.end_offsets(TOTALS.name).values()) > 0
    )
    behind = [status.lag[READINGS.name] for status in found]
    assert behind == [300 - sum(status.read for status in found[: n + 1]) for n in range(len(found))]
    last = found[-1]
    assert (last.jobs, last.reads, last.writes) == (
        ["totals"],
        {"totals": [READINGS.name]},
        {"totals": [TOTALS.name]},
    )
    assert last.watermark_of("totals") == 1_000_000 + 299 * 100 - 1_000 - 100, (
        "the partition that is least far decides"
    )
    assert before <= last.at <= time.time_ns() // 1_000_000
    assert all(status.took_ms is not None and 0 <= status.took_ms < 60_000 for status in found)
    fired = [status for status in found if status.latency]
    assert fired
    assert all(
        status.at - status.latency[TOTALS.name] in range(1_000_000, 1_031_000, 5_000) for status in fired
    )


def test_it_is_json_and_kept_for_an_hour(log: Log, tmp_path: Path) -> None:
    log.append(READINGS.name, encode(READINGS, readings(0, 10)))
    run_local(
        [totals()],
        settings=settings(log.url, str(tmp_path / "state"), run_name="night"),
        until_caught_up=True,
    )
    assert log.describe("status.night").retention == 3_600_000
    (value,) = log.read("status.night", 0, 0, 1).values.to_pylist()
    record = json.loads(value)
    assert (record["batch"], record["jobs"], record["read"], record["lag"]) == (
        0,
        ["totals"],
        10,
        {READINGS.name: 0},
    )
    assert record["watermarks"] == {"totals/aggregation-1": 999_800}


def test_a_batch_that_is_repeated_says_nothing_twice(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill between the log's commit and that of the state."""
    real, calls = Committer.commit, 0

    def faulty(self: Committer, *args: object, **options: object) -> bool:
        nonlocal calls
        calls += 1
        done = real(self, *args, **options)  # type: ignore[arg-type]
        if calls == 3:
            raise MemoryError("injected")
        return done

    log.append(READINGS.name, encode(READINGS, readings(0, 300)))
    monkeypatch.setattr(Committer, "commit", faulty)
    for _ in range(2):
        try:
            run_local([totals()], settings=settings(log.url, str(tmp_path / "state")), until_caught_up=True)
        except MemoryError:
            assert [status.batch for status in statuses(log)] == [0, 1, 2]
    batches = [status.batch for status in statuses(log)]
    assert batches == list(range(len(batches)))
    assert sum(status.read for status in statuses(log)) == 300


def test_how_long_a_batch_took_is_unknown_when_another_process_had_begun_it(log: Log, tmp_path: Path) -> None:
    log.append(READINGS.name, encode(READINGS, readings(0, 10)))
    long_ago = Hooks(clock=lambda: 1_000_000_000)
    run_local(
        [totals()], settings=settings(log.url, str(tmp_path / "state")), until_caught_up=True, hooks=long_ago
    )
    assert [status.took_ms for status in statuses(log)] == [None]


def test_a_watermark_is_unknown_while_one_operator_has_none() -> None:
    status = Status(
        at=0, batch=0, jobs=["a", "b"], read=0, results={}, lag={}, took_ms=None, latency={}, reads={},
        writes={},
        watermarks={"a/one": 5, "a/two": 3, "b/one": None, "ab/one": 1},
    )  # fmt: skip
    assert [status.watermark_of(job) for job in ("a", "b", "ab", "c")] == [3, None, 1, None]


def test_records_that_hold_no_status_are_passed_over(log: Log) -> None:
    log.ensure_raw("status.odd")
    log.append("status.odd", OutgoingRecords(pa.array([b"", b"{}", b"\xff", None], pa.binary())))
    assert parse_statuses(log.read("status.odd", 0, 0, 4)) == []


def test_the_run_is_told_from_the_topic() -> None:
    assert run_of_topic(status_topic("a.b")) == "a.b"
    assert run_of_topic("late.status.a") is None
