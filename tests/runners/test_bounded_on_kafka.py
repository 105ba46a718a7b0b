"""Runs to the end over a log on Kafka: killed at every step, chained jobs end completely and once."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.devtools.brokers import Cluster
from millrace.log import Log, fault_points, open_log
from millrace.runners.local import run_local
from runners import ending_jobs
from runners.ending_jobs import PEAKS, TOTALS, chained, fill, settings
from runners.test_bounded import check_chain

pytestmark = pytest.mark.kafka


@pytest.fixture
def log(brokers: Cluster) -> Iterator[Log]:
    opened = open_log(f"{brokers.url}/ending-{uuid.uuid4().hex[:8]}")
    fill(opened, 600)
    yield opened
    opened.close()


def test_killed_at_every_step_the_chain_ends_once(log: Log, tmp_path: Path) -> None:
    """Each run does a batch, or ends one more topic, before it is killed."""
    codes = [
        subprocess.run(
            [sys.executable, ending_jobs.__file__, log.url, tmp_path / "state", "local"],
            env={**os.environ, fault_points.VARIABLE: f"{point}:2"},
            stderr=subprocess.DEVNULL,
            check=False,
        ).returncode
        for point in ("stored", *fault_points.POINTS)
    ]
    assert codes.count(-signal.SIGKILL) >= 6
    run_local(chained(), settings=settings(log.url, tmp_path / "state"), until_end=True)
    check_chain(log)


def test_a_commit_that_is_not_visible_yet_is_waited_for(log: Log, tmp_path: Path) -> None:
    """The run reads all that it has written itself before it has caught up."""
    chosen = settings(log.url, tmp_path / "state", run_max_events_per_batch=200)
    run_local(chained(), settings=chosen, until_caught_up=True)
    log.await_commits(PEAKS.name)
    read = {topic: sum(log.end_offsets(topic).values()) for topic in (TOTALS.name, PEAKS.name)}
    run_local(chained(), settings=chosen, until_caught_up=True)
    assert read == {topic: sum(log.end_offsets(topic).values()) for topic in (TOTALS.name, PEAKS.name)}
