"""What a job that fails has to say may be larger than a record can be; the run goes on all the same."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import millrace as mr
from millrace.devtools.brokers import Cluster
from millrace.errors import JobQuarantined
from millrace.log import Log, open_log
from millrace.log.codecs.codec import encode
from millrace.log.dead_letters import MAX_REASON_CHARS, parse_letters
from millrace.log.status import parse_statuses
from millrace.runners.local import run_local
from runners.stopping_jobs import BAD, EVENTS, GOOD, events, fill, good, settings, written

pytestmark = pytest.mark.kafka


@pytest.fixture
def log(brokers: Cluster) -> Iterator[Log]:
    opened = open_log(f"{brokers.url}/large-{uuid.uuid4().hex[:8]}")
    yield opened
    opened.close()


def at_length(frame: pl.DataFrame) -> pl.DataFrame:
    if frame.height:
        raise ValueError("x" * 3_000_000)
    return frame


def wordy() -> mr.Job:
    return mr.Job(
        "bad", events().map_batches(at_length).group_by("key").sum("number", name="total").write(BAD)
    )


@pytest.mark.parametrize("beside", [[], [good()]], ids=["alone", "beside another"])
def test_an_error_of_three_megabytes_stops_its_job_alone(
    log: Log, tmp_path: Path, beside: list[mr.Job]
) -> None:
    fill(log, 0, 30_000)
    chosen = settings(log, tmp_path, "run")
    for _ in range(2):
        with pytest.raises(JobQuarantined) as raised:
            run_local([wordy(), *beside], settings=chosen, until_caught_up=True)
        assert len(str(raised.value)) < 2 * MAX_REASON_CHARS
    assert not beside or written(log, GOOD)
    status = parse_statuses(log.read("status.run", 0, 0, log.end_offsets("status.run")[0]))[-1]
    assert len(status.quarantined["bad"]) <= MAX_REASON_CHARS + 200
    letters = parse_letters(log.read("dead.bad", 0, 0, log.end_offsets("dead.bad")[0]))
    assert 0 < len(letters) <= 20


def test_offending_rows_as_large_as_kafka_takes_do_not_stop_the_command(log: Log, tmp_path: Path) -> None:
    log.ensure(EVENTS)
    rows = pl.DataFrame({"key": ["k" * 500_000] * 3, "number": [1, 2, 3], "event_time": [1, 2, 3]})
    log.append(EVENTS.name, encode(EVENTS, rows))
    for _ in range(2):
        with pytest.raises(JobQuarantined):
            run_local([wordy()], settings=settings(log, tmp_path, "run"), until_caught_up=True)
    letters = parse_letters(log.read("dead.bad", 0, 0, log.end_offsets("dead.bad")[0]))
    assert len(letters) == 3
