"""Brokers are restarted, killed and new: runs go on, and a first start that went wrong is noticed."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bench.broker_faults import FirstStart, kill_all, longest_gap, restart_broker
from bench.chaos import inject_faults
from bench.local_chaos import FaultPlan
from log.conftest import within
from millrace.devtools import brokers
from millrace.errors import RunFailed, TopicMissing
from millrace.log import Log, OutgoingRecords, open_log
from millrace.topics import Topic
from millrace.transit.topics import CELL_COUNTS


@pytest.fixture
def start(tmp_path: Path) -> FirstStart:
    return FirstStart(f"embedded:{tmp_path / 'log'}", tmp_path / "home", seed=1, report=print)


def results(log: Log) -> int:
    try:
        return sum(log.end_offsets(CELL_COUNTS.name).values())
    except TopicMissing:
        return 0


def repeat_a_result(log: Log) -> None:
    """Appends the first result once more, as soon as there is one."""
    with within(120) as waiting:
        while waiting(results(log) == 0):
            pass
    part = next(part for part, end in log.end_offsets(CELL_COUNTS.name).items() if end)
    record = log.read(CELL_COUNTS.name, part, 0, 1)
    log.append(CELL_COUNTS.name, OutgoingRecords(record.values, record.keys))


@pytest.mark.slow
def test_a_first_start_ends_with_right_results_and_says_how_long_the_first_took(start: FirstStart) -> None:
    with start.verify():
        pass
    assert start.tally.faults == {"first start": 1}
    assert 0 < start.tally.recovery_times["first start"][0] < 120


@pytest.mark.slow
def test_a_first_start_whose_run_refuses_is_noticed(start: FirstStart, tmp_path: Path) -> None:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(Topic(CELL_COUNTS.name, CELL_COUNTS.type, key="geocell", partitions=3))
    with pytest.raises(RunFailed, match="exists with partitions 3"), start.verify():
        pass
    assert not start.tally.faults


@pytest.mark.slow
def test_a_result_that_is_there_twice_after_a_first_start_is_noticed(
    start: FirstStart, tmp_path: Path
) -> None:
    with pytest.raises(RunFailed, match=r"doubled [1-9]"), start.verify():
        repeat_a_result(open_log(f"embedded:{tmp_path / 'log'}"))
    assert not start.tally.faults


def test_the_longest_gap_begins_with_the_restart() -> None:
    assert longest_gap(10, [12, 13, 20, 21]) == 7
    assert longest_gap(10, [19, 20]) == 9


@pytest.fixture
def three(tmp_path: Path) -> Iterator[brokers.Cluster]:
    cluster = brokers.start(tmp_path / "kafka", brokers=3, port=0)
    yield cluster
    brokers.stop(brokers.load_cluster(tmp_path / "kafka") or cluster, timeout=5)


@pytest.mark.kafka
@pytest.mark.long
def test_brokers_that_were_restarted_or_all_killed_answer_with_what_they_held(three: brokers.Cluster) -> None:
    log = open_log(three.url)
    log.ensure_raw("t")
    for number, node in enumerate(three.nodes):
        before = {each.pid for each in three.nodes}
        three = restart_broker(three, node)
        assert len(before & {each.pid for each in three.nodes}) == 2
        assert len(three.live_nodes()) == 3
        log.append("t", OutgoingRecords(pa.array([b"%d" % number], pa.binary())))
    kill_all(three)
    assert three.live_nodes() == []
    three = brokers.restart(three, *(node.id for node in three.nodes))
    assert log.read("t", 0, 0, log.end_offsets("t")[0]).values.to_pylist() == [b"0", b"1", b"2"]


@pytest.mark.kafka
@pytest.mark.long
def test_after_each_fault_of_three_brokers_nothing_is_missing_doubled_or_wrong(
    three: brokers.Cluster, tmp_path: Path
) -> None:
    lines: list[str] = []
    script = FaultPlan(hits=0, rounds=1, only=("broker", "rolling", "down", "silence", "first"))
    verdict = inject_faults(tmp_path, three.url, three, plan=script, report=lines.append)
    assert verdict.is_right, verdict
    for fault in ("broker killed", "rolling restart", "all brokers down", "brokers silent"):
        assert any(f"1 × {fault}; next result after" in line for line in lines), fault
    assert any("3 × first start; next result after" in line for line in lines)
