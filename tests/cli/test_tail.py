"""Looking at a topic: what cannot be read is shown as unreadable, in its place."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa

from millrace.cli.tail import _decode_events
from millrace.log import OutgoingRecords, open_log
from millrace.log.codecs.codec import encode
from millrace.topics import Topic


@dataclass
class Stop:
    name: str


STOPS = Topic("stops", Stop, partitions=1)


def test_unreadable_records_are_shown_in_their_place(tmp_path: Path) -> None:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(STOPS)
    for at in range(3):
        log.append("stops", OutgoingRecords(pa.array([b"\xff%d" % at, b"\xfe" * 5_000])))
        log.append("stops", encode(STOPS, pl.DataFrame({"name": [str(at)], "event_time": [at]})))
    log.append("stops", OutgoingRecords(pa.array([b"\xfflast"])))
    shown = list(_decode_events(STOPS, 0, log.read("stops", 0, 0, 10)))
    assert [event["offset"] for event in shown] == list(range(10))
    assert [("unreadable" in event) for event in shown] == [True, True, False] * 3 + [True]
    assert shown[0]["value"] == "ff30"
    assert shown[1]["value"].endswith("… (5000 bytes)")
    log.close()


def test_records_that_remove_a_key_are_shown(tmp_path: Path) -> None:
    newest = Topic("stops", Stop, key="name", partitions=1, compact=True)
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(newest)
    log.append("stops", OutgoingRecords(pa.array([None], pa.binary()), pa.array([b"b"])))
    log.append("stops", encode(newest, pl.DataFrame({"name": ["a"], "event_time": [1]})))
    shown = list(_decode_events(newest, 0, log.read("stops", 0, 0, 2)))
    assert shown[0] == {"partition": 0, "offset": 0, "key": "b", "value": None}
    assert (shown[1]["offset"], shown[1]["name"]) == (1, "a")
    log.close()
