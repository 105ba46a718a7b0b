"""Every message is counted once: in = written + ignored + dead. What is written equals what was sent."""

import csv
import io
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from fuzz.mutations import CASES, change, damage, text_of
from millrace.ingest.connectors.files import Files
from millrace.ingest.contract import Connector, EventPassthrough, MessageBatch
from millrace.ingest.pipeline import IngestCounts, ingest
from millrace.ingest.processors.gtfs_realtime_pb2 import FeedMessage
from millrace.ingest.registry import processor
from millrace.log import Log, open_log
from millrace.log.codecs.codec import decode
from millrace.log.dead_letters import parse_letters
from millrace.topics import Topic


@dataclass
class Location:
    lat: float
    name: str | None


@dataclass
class Report:
    id: str
    count: int
    share: float | None
    open: bool
    place: Location | None
    tags: list[int]
    at: datetime | None
    note: str | None
    number: int | None


REPORTS = Topic("input.reports", Report, key="id", partitions=1)
GOOD: dict[str, Any] = {
    "id": "a", "count": 3, "share": 0.5, "open": True, "place": {"lat": 60.1, "name": "x"}, "tags": [1, 2],
    "at": "2024-03-01T12:00:00Z", "note": "n", "number": 7, "time": 1_700_000_000_000,
}  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    yield log
    log.close()


class Given(Connector):
    """A connector of given messages, a few per batch."""

    def __init__(self, messages: list[tuple[str, bytes]]) -> None:
        self.messages, self.place = messages, 0

    def poll(self, *, limit: int, wait: int) -> MessageBatch | None:
        if self.place >= len(self.messages):
            return None
        start, self.place = self.place, self.place + min(limit, 500)
        part = self.messages[start : self.place]
        return MessageBatch(
            [t for t, _ in part],
            [p for _, p in part],
            [5] * len(part),
            range(start, start + len(part)),
            "given",
        )

    def acknowledge(self, batch: MessageBatch) -> None:
        pass


def held(log: Log, topic: str) -> int:
    return sum(log.end_offsets(topic).values())


def account(log: Log, topics: tuple[Topic, ...], counts: IngestCounts) -> None:
    """Checks that the log holds what was counted, and that events can be read."""
    for topic in topics:
        assert held(log, topic.name) == counts.written[topic.name]
        for partition, end in log.end_offsets(topic.name).items():
            assert len(decode(topic, partition, log.read(topic.name, partition, 0, end)).rows) == end
    if counts.rejected:
        assert held(log, f"dead.{topics[0].name}") == counts.rejected.total()


def rows_of(log: Log, topic: Topic) -> list[dict[str, Any]]:
    ends = log.end_offsets(topic.name).items()
    return [
        row
        for p, end in ends
        for row in decode(topic, p, log.read(topic.name, p, 0, end)).rows.rows(named=True)
    ]


def letters_of(log: Log, topic: Topic) -> list[bytes]:
    dead = f"dead.{topic.name}"
    return [
        value
        for p, end in log.end_offsets(dead).items()
        for value in parse_letters(log.read(dead, p, 0, end))["value"]
    ]


def test_json_lines(log: Log, tmp_path: Path, took: Callable[[int], None]) -> None:
    took(CASES)
    rng = random.Random(26)
    lines = [
        damage(rng, text_of(change(rng, {**GOOD, "id": f"n{n}"}))).replace(b"\n", b"?") or b"?"
        for n in range(CASES)
    ]
    lines = [line if line.strip() else b"?" for line in lines]
    (tmp_path / "r.jsonl").write_bytes(b"\n".join(lines))
    counts = ingest(
        Files(tmp_path / "r.jsonl", topic=REPORTS, time="time"), EventPassthrough((REPORTS,)), log
    )
    account(log, (REPORTS,), counts)
    assert counts.received == len(lines) == counts.written.total() + counts.rejected.total()
    letters = letters_of(log, REPORTS)
    written = list(lines)
    for letter in letters:
        written.remove(letter if letter in written else letter + b"\r")
    for line, row in zip(written, rows_of(log, REPORTS), strict=True):
        tree = json.loads(line)
        share = tree.get("share")
        assert row["share"] == (None if share is None else float(share)), (
            line
        )  # a number of JSON is the nearest double
        for name in ("id", "count", "open", "note", "number"):
            assert row[name] == tree.get(name), (name, line)
            assert isinstance(row[name], bool) == isinstance(tree.get(name), bool), (name, line)
        assert row["tags"] == (tree.get("tags") or []), line
        given = tree.get("place")
        assert row["place"] == (
            None if given is None else {"lat": given["lat"], "name": given.get("name")}
        ), line


def test_csv(log: Log, tmp_path: Path, took: Callable[[int], None]) -> None:
    took(CASES)
    rng = random.Random(27)
    names = ["id", "count", "share", "open", "note", "number", "time"]
    good = {name: GOOD[name] for name in names}
    parts = [",".join(names).encode()]
    for n in range(CASES):
        out = io.StringIO()
        changed = change(rng, {**good, "id": f"n{n}"})
        csv.writer(out, lineterminator="").writerow(
            ["" if changed.get(name) is None else changed.get(name) for name in names]
        )
        line = damage(rng, out.getvalue().encode(errors="replace"))
        if rng.random() < 0.1:
            line = line.replace(b",n,", b',"two\nlines",', 1)
        parts += [one if one.strip() else b"?" for one in line.split(b"\n")]
    (tmp_path / "r.csv").write_bytes(b"\n".join(parts))
    counts = ingest(Files(tmp_path / "r.csv", topic=REPORTS, time="time"), EventPassthrough((REPORTS,)), log)
    account(log, (REPORTS,), counts)
    rows = rows_of(log, REPORTS)
    in_rows = sum(1 + sum(str(row[name]).count("\n") for name in ("id", "note")) for row in rows)
    in_letters = sum(1 + letter.count(b"\n") for letter in letters_of(log, REPORTS))
    assert in_rows + in_letters == len(parts) - 1
    assert counts.written.total() > CASES // 4


HFP = {
    "oper": 12,
    "veh": 3,
    "tst": "2020-09-21T03:00:00.963Z",
    "lat": 60.2,
    "long": 24.9,
    "dl": 5,
    "route": "1",
    "dir": "1",
    "stop": 7,
}
TOPIC = b"/hfp/v2/journey/ongoing/vp/bus/0012/00003/1001/1/x/05:47/1111428/5/60;24/19/75/80"


def test_hfp_with_its_topics(log: Log, took: Callable[[int], None]) -> None:
    took(CASES)
    rng = random.Random(28)
    messages = []
    for _ in range(CASES):
        body = text_of({rng.choice(["VP", "VP", "ARS", "DOO", "XX"]): change(rng, HFP)})
        topic = damage(rng, TOPIC.replace(b"v2", rng.choice([b"v2", b"v1"])), 0.3).decode(errors="replace")
        messages.append((topic, damage(rng, body)))
    hsl = processor("hsl")
    counts = ingest(Given(messages), hsl, log)
    account(log, hsl.topics, counts)
    assert counts.received == CASES == counts.written.total() + counts.rejected.total()


def test_gtfs_realtime_in_both_forms(log: Log, took: Callable[[int], None]) -> None:
    took(CASES)
    rng = random.Random(29)
    good = {
        "vehicle_id": "7",
        "timestamp": 1_600_000_000,
        "bearing": 5.0,
        "speed": 3.0,
        "route_id": "r",
        "direction_id": 1,
    }
    messages = []
    for n in range(CASES):
        if n % 2:
            feed = FeedMessage()
            feed.header.timestamp = 1_600_000_000
            entity = feed.entity.add(id=f"e{n}")
            entity.vehicle.vehicle.id = "7"
            entity.vehicle.position.latitude, entity.vehicle.position.longitude = 60.0, 24.0
            payload = feed.SerializeToString()
        else:
            point = {
                "type": "Point",
                "coordinates": rng.choice([[24.0, 60.0], [24.0], ["x", 1], [1e300, 0], None]),
            }
            payload = text_of({"type": "Feature", "geometry": point, "properties": change(rng, good)})
        messages.append(("/gtfsrt/vp/tampere/1", damage(rng, payload, 0.4)))
    gtfs = processor("gtfs-rt")
    counts = ingest(Given(messages), gtfs, log)
    account(log, gtfs.topics, counts)
    assert counts.received == CASES
    assert counts.written.total() + counts.rejected.total() + counts.skipped.total() >= CASES
