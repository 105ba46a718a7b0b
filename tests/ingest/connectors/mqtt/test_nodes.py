"""Two ingestion nodes and a real broker: whatever dies, every event is in the log."""

import gzip
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from ingest.connectors.mqtt.mosquitto import Mosquitto, eventually
from millrace.ingest.connectors.recording_frames import read_frames
from millrace.ingest.processors.hsl import Hsl
from millrace.log import Log, open_log
from millrace.log.codecs.codec import decode
from millrace.log.dead_letters import parse_letters
from millrace.runners.replay import replay
from millrace.testing.script import reads
from transit.jobs import five

pytestmark = [pytest.mark.mqtt, pytest.mark.slow]

WATERMARK_DELAY = 7_200_000
"""More than all of the recording: no repeat comes too late to be recognized."""
DEAD = "dead.input.vehicle-positions"
VEHICLE = {"oper": 12, "veh": 1, "tst": "2020-09-21T03:00:00.000Z", "lat": 60.2, "long": 24.9}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    opened = open_log(f"embedded:{tmp_path / 'log'}")
    yield opened
    opened.close()


class Node:
    """`millrace ingest` in a process of its own, under a name that the broker knows."""

    def __init__(self, name: str, broker: Mosquitto, log: Log) -> None:
        self.name, self.broker = name, broker
        words = [
            "ingest",
            "mqtt",
            broker.url,
            "--client-id",
            name,
            "--share",
            "city",
            "--processor",
            "hsl",
            "--log",
            log.url,
        ]
        self.command = [str(Path(sys.executable).with_name("millrace")), *words]
        self.starts = 0

    def start(self) -> None:
        before = self._welcomes()
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        self.starts += 1
        eventually(lambda: self._welcomes() > before, f"{self.name} is connected")

    def end(self, number: signal.Signals) -> str:
        self.process.send_signal(number)
        return self.process.communicate(timeout=60)[1]

    def _welcomes(self) -> int:
        return (self.broker.folder / "mosquitto.log").read_text().count(f"as {self.name} ")


@pytest.fixture
def nodes(broker: Mosquitto, log: Log) -> Iterator[tuple[Node, Node]]:
    pair = Node("steady", broker, log), Node("mortal", broker, log)
    for node in pair:
        node.start()
    yield pair
    for node in pair:
        if node.process.poll() is None:
            node.end(signal.SIGKILL)


def held(log: Log) -> int:
    """How many records the log holds, events and dead letters."""
    return sum(sum(log.end_offsets(name).values()) for name in log.list_topics())


def events(log: Log) -> dict[str, pl.DataFrame]:
    """The distinct messages, whenever and however often each came."""
    topics = Hsl().topics
    found = {
        t.name: pl.concat(
            [decode(t, p, log.read(t.name, p, 0, end)).rows for p, end in log.end_offsets(t.name).items()]
        )
        for t in topics
    }
    return {
        name: distinct(rows.select(*topic.schema, "event_time"))
        for (name, rows), topic in zip(found.items(), topics, strict=True)
    }


def distinct(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.unique().sort(rows.columns)


def dead_letters(log: Log) -> set[bytes]:
    return {
        value
        for p, end in log.end_offsets(DEAD).items()
        for value in parse_letters(log.read(DEAD, p, 0, end))["value"].to_list()
    }


@pytest.mark.recordings
def test_a_node_that_is_killed_again_and_again_loses_nothing(
    broker: Mosquitto, log: Log, nodes: tuple[Node, Node], recordings: Path
) -> None:
    path, chance = recordings / "hsl-2020-09-21.jsonl.gz", random.Random(9)
    with gzip.open(path) as file:
        lines = [json.loads(line) for line in file]
    messages = [(line["topic"], json.dumps(line["payload"]).encode()) for line in lines]
    assert (len(messages), len(set(messages))) == (5_237, 5_133)
    mortal = nodes[1]
    with ThreadPoolExecutor(1) as aside:
        while messages:
            count = chance.randrange(500, 1_200)
            some, messages = messages[:count], messages[count:]
            enough = held(log) + chance.randrange(1, len(some) // 2)
            publishing = aside.submit(broker.publish, some)
            eventually(lambda enough=enough: held(log) >= enough, "the nodes are at work")  # type: ignore[misc]  # bound at once
            mortal.end(signal.SIGKILL)
            publishing.result()
            mortal.start()
    assert mortal.starts >= 5
    eventually(
        lambda: sum(map(len, events(log).values())) + len(dead_letters(log)) >= 5_133,
        "every distinct event is in the log",
    )
    expected = read_frames(path, processor="hsl")
    for topic in Hsl().topics:
        found = events(log)[topic.name]
        assert found.equals(distinct(expected[topic.name].select(found.columns))), topic.name
    assert sum(map(len, events(log).values())) + len(dead_letters(log)) == 5_133
    assert held(log) >= 5_237
    each_job_counts_each_event_once(log, expected)
    for node in nodes:
        assert "stopped: " in node.end(signal.SIGINT)
        assert node.process.returncode == 130


def each_job_counts_each_event_once(log: Log, recorded: dict[str, pl.DataFrame]) -> None:
    """However often and in whatever order the log has them: what nodes that died had not acknowledged came
    again, minutes of the recording later.
    """
    once = {
        name: rows.unique([c for c in rows.columns if c != "ingestion_time"], maintain_order=True)
        for name, rows in recorded.items()
    }
    expected = five.expected(once, five.far_away, lateness=WATERMARK_DELAY)
    for job in five.jobs(five.far_away, lateness=WATERMARK_DELAY):
        [topic] = [output.topic for output in job.outputs]
        assert len(expected[topic.name]), job.name
        assert five.last_words(topic.name, replay(job, reads(job)[0].topic.name, log=log.url)).equals(
            expected[topic.name]
        ), job.name


def test_ctrl_c_acknowledges_what_the_log_has(broker: Mosquitto, log: Log, nodes: tuple[Node, Node]) -> None:
    messages = [
        ("/hfp/v2/journey/ongoing/vp/bus/0012", json.dumps({"VP": {**VEHICLE, "veh": n}}).encode())
        for n in range(200)
    ]
    broker.publish([*messages, ("/other/things", b"are not asked for")])
    eventually(lambda: held(log) >= 200, "all are written")
    for node in nodes:
        node.end(signal.SIGINT)
        node.start()
    broker.publish([("/hfp/v2/journey/ongoing/vp/bus/0012", b"the last")])
    eventually(lambda: DEAD in log.list_topics() and held(log) >= 201, "nodes are at work again")
    for node in nodes:
        node.end(signal.SIGTERM)
    assert held(log) == 201
    assert dead_letters(log) == {b"the last"}
