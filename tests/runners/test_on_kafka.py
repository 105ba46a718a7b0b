"""Jobs over a log on Kafka, by the code that runs them over any log."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from log.conftest import within
from millrace.cli import main
from millrace.config import KafkaSettings
from millrace.devtools import brokers as kafka
from millrace.devtools.brokers import Cluster
from millrace.errors import LogUnreachable, OffsetGone, StateMismatch
from millrace.log import Log, OutgoingRecords, open_log
from millrace.log.codecs.codec import encode
from millrace.log.dead_letters import dead_topic, parse_letters
from millrace.log.fault_points import POINTS
from millrace.log.kafka.log import KafkaLog
from millrace.runners.local import run_local
from runners.local_child import READINGS, TOTALS, settings, totals
from runners.test_local import CHILD, assert_exactly_once, last_words, readings, shown

pytestmark = pytest.mark.kafka


@pytest.fixture
def log(brokers: Cluster) -> Iterator[KafkaLog]:
    opened = open_log(f"{brokers.url}/jobs-{uuid.uuid4().hex[:8]}")
    assert isinstance(opened, KafkaLog)
    opened.ensure(READINGS)
    yield opened
    opened.close()


def feed(log: Log, start: int, count: int) -> None:
    log.append(READINGS.name, encode(READINGS, readings(start, count)))


def run(log: Log, state: Path, **more: object) -> None:
    run_local([totals()], settings=settings(log.url, str(state), **more), until_caught_up=True)


def test_results_are_those_of_the_embedded_log(log: KafkaLog, tmp_path: Path) -> None:
    embedded = open_log(f"embedded:{tmp_path / 'log'}")
    embedded.ensure(READINGS)
    for start in (0, 200):
        for each in (embedded, log):
            feed(each, start, 200)
            run(each, tmp_path / f"state-{each.url.partition(':')[0]}")
    assert_exactly_once(log)
    assert last_words(shown(log)) == last_words(shown(embedded))
    embedded.close()


@pytest.mark.parametrize("partitions", ["by key", "at random"])
def test_how_events_are_spread_over_partitions_makes_no_difference(
    log: KafkaLog, tmp_path: Path, partitions: str
) -> None:
    batch = encode(READINGS, readings(0, 200))
    log.append(READINGS.name, batch if partitions == "by key" else OutgoingRecords(batch.values))
    run(log, tmp_path / "state")
    assert_exactly_once(log)


def test_killed_at_every_step_of_a_batch_nothing_is_missing_or_doubled(log: KafkaLog, tmp_path: Path) -> None:
    feed(log, 0, 1500)
    for number, place in enumerate(POINTS):
        died = subprocess.run(
            [sys.executable, CHILD, log.url, tmp_path / "state", "end"],
            env={
                **os.environ,
                "MILLRACE_FAULT": f"{place}:{2 + number % 2}",
                "PYTHONPATH": str(CHILD.parents[1]),
            },
            capture_output=True,
            text=True,
        )
        assert died.returncode == -signal.SIGKILL, f"{place}: {died.stderr}"
    run(log, tmp_path / "state")
    assert_exactly_once(log)


def test_the_topics_say_how_much_they_hold_and_how_far_the_run_has_come(
    log: KafkaLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(log, 0, 300)
    run(log, tmp_path / "state")
    feed(log, 300, 40)

    def printed_by(*words: str) -> list[dict[str, Any]]:
        assert main.main(["topics", *words, "--log", log.url, "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert {each["topic"] for each in printed_by("list")} >= {READINGS.name, TOTALS.name, "status.millrace"}
    [about] = printed_by("describe", READINGS.name)
    assert (about["type"], sum(part["end"] for part in about["partitions"])) == ("millrace.type.Reading", 340)
    [counted] = printed_by("count", TOTALS.name)
    assert counted["records"] == len(shown(log)) < sum(log.end_offsets(TOTALS.name).values()), (
        "ends of transactions are no records"
    )
    assert 1 <= counted["skew"] <= 2
    assert [(lag["run"], lag["topic"], lag["behind"]) for lag in printed_by("lag")] == [
        ("millrace", READINGS.name, 40)
    ]
    tail = printed_by(
        "tail", READINGS.name, "--from-start", "--no-wait", "--max", "3", "--topic", f"{CHILD}:READINGS"
    )
    assert len(tail) == 3
    for partition in {
        event["partition"] for event in tail
    }:  # whichever partition answers first is shown first
        offsets = [event["offset"] for event in tail if event["partition"] == partition]
        assert offsets == list(range(len(offsets)))


def test_what_cannot_be_decoded_is_set_aside_with_its_place(log: KafkaLog, tmp_path: Path) -> None:
    feed(log, 0, 50)
    log.append(
        READINGS.name,
        OutgoingRecords(pa.array([b"\xff nothing", None], pa.binary()), pa.array([b"a", b"a"], pa.binary())),
    )
    feed(log, 50, 50)
    run(log, tmp_path / "state")
    letters = dead_topic(READINGS.name)
    dead_letters = parse_letters(log.read(letters, 0, 0, log.end_offsets(letters)[0]))
    assert len(dead_letters) == 2
    assert set(dead_letters["topic"]) == {READINGS.name}
    assert_exactly_once(log)


@pytest.mark.parametrize("how", ["removed", "made anew"])
def test_where_the_log_no_longer_has_what_comes_next_the_choice_is_the_users(
    log: KafkaLog, tmp_path: Path, how: str
) -> None:
    feed(log, 0, 300)
    run(log, tmp_path / "state")
    before = len(shown(log))
    if how == "removed":
        feed(log, 300, 100)
        ends = log.end_offsets(READINGS.name)
        log._topics.remove_before(READINGS.name, ends)
        feed(log, 400, 200)
    else:
        name = log.kafka_name(READINGS.name)
        log._admin.delete_topics([name])[name].result(30)
        with within() as waiting:
            while waiting(log._topics.exists(READINGS.name)):
                pass
        log.ensure(READINGS)
        feed(log, 300, 100)
    with pytest.raises(OffsetGone, match=r"run\.on_data_loss = \"earliest\" .* or \"latest\""):
        run(log, tmp_path / "state")
    assert len(shown(log)) == before
    run(log, tmp_path / "state", run_on_data_loss="earliest")
    assert len(shown(log)) > before


def test_a_log_that_does_not_know_what_the_state_has_done_is_refused(
    log: KafkaLog, brokers: Cluster, tmp_path: Path
) -> None:
    feed(log, 0, 100)
    run(log, tmp_path / "state")
    other = open_log(f"{brokers.url}/other-{uuid.uuid4().hex[:8]}")
    other.ensure(READINGS)
    feed(other, 0, 100)
    with pytest.raises(StateMismatch, match="the log knows only of -1"):
        run(other, tmp_path / "state")
    other.close()


def test_brokers_that_go_away_and_come_back_are_waited_for(tmp_path: Path) -> None:
    cluster = kafka.start(tmp_path / "k", port=0)
    try:
        log = open_log(cluster.url, kafka=KafkaSettings(wait="90s"))
        log.ensure(READINGS)
        feed(log, 0, 200)
        run(log, tmp_path / "state")
        kafka.stop(cluster)
        with pytest.raises(LogUnreachable, match="has not answered for 2s"):
            open_log(cluster.url, kafka=KafkaSettings(wait="2s"))
        command = [sys.executable, str(CHILD), log.url, str(tmp_path / "state"), "end"]
        waiting = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(CHILD.parents[1])})
        cluster = kafka.start(tmp_path / "k", port=cluster.nodes[0].port)
        feed(log, 200, 200)
        assert waiting.wait(120) == 0
        run(log, tmp_path / "state")
        assert_exactly_once(log)
        log.close()
    finally:
        kafka.stop(cluster)
