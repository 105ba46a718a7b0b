"""Connector → processor → log: what is acknowledged is in the log, and everything is accounted for."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ingest.clocks import FakeClock
from millrace.errors import InputError, LogUnwritable
from millrace.ingest.connectors.recording import Recording
from millrace.ingest.contract import Connector, MessageBatch, ProcessedBatch
from millrace.ingest.pipeline import IngestCounts, StopSignal, ingest
from millrace.ingest.processors.hsl import Hsl
from millrace.log import Log, OutgoingRecords, open_log
from millrace.log.codecs.codec import decode
from millrace.log.dead_letters import parse_letters
from millrace.transit import POSITIONS

DEAD = "dead.input.vehicle-positions"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    opened = open_log(f"embedded:{tmp_path / 'log'}")
    yield opened
    opened.close()


def position(vehicle: int, at: int = 0) -> bytes:
    time = f"2020-09-21T03:00:{at:02}.000Z"
    return json.dumps({"VP": {"oper": 12, "veh": vehicle, "tst": time, "lat": 60.2, "long": 24.9}}).encode()


class Scripted(Connector):
    """Delivers batches and writes down what happens to them, together with what the log then holds."""

    def __init__(self, log: Log, batches: Sequence[Sequence[bytes]], *, shift: int = 0) -> None:
        self.log, self.batches, self.shift = log, list(batches), shift
        self.story: list[str] = []

    def open(self) -> None:
        self.story.append("open")

    def close(self) -> None:
        self.story.append("close")

    def poll(self, *, limit: int, wait: int) -> MessageBatch | None:
        if not self.batches:
            return None
        payloads = self.batches.pop(0)
        self.story.append(f"poll {len(payloads)}")
        return MessageBatch(
            ["t"] * len(payloads),
            payloads,
            [1_000] * len(payloads),
            range(len(payloads)),
            "script",
            shift=self.shift,
        )

    def acknowledge(self, batch: MessageBatch) -> None:
        self.story.append(
            f"acknowledge {len(batch)} with {sum(self.log.end_offsets(POSITIONS.name).values())} in the log"
        )


def rows(log: Log) -> pl.DataFrame:
    parts = [
        decode(POSITIONS, p, log.read(POSITIONS.name, p, 0, end)).rows
        for p, end in log.end_offsets(POSITIONS.name).items()
    ]
    return pl.concat(parts).sort("event_time", "vehicle_id")


def letters(log: Log) -> pl.DataFrame:
    return pl.concat(
        [parse_letters(log.read(DEAD, p, 0, end)) for p, end in log.end_offsets(DEAD).items() if end]
    )


def test_a_batch_is_acknowledged_only_when_the_log_has_it(log: Log) -> None:
    connector = Scripted(log, [[position(1), position(2)], [position(3)]])
    ingest(connector, Hsl(), log)
    assert connector.story == [
        "open",
        "poll 2", "acknowledge 2 with 2 in the log",
        "poll 1", "acknowledge 1 with 3 in the log",
        "close",
    ]  # fmt: skip


def test_what_is_written_reads_back_as_it_was_said(log: Log) -> None:
    ingest(Scripted(log, [[position(1315, at=5)]]), Hsl(), log)
    (row,) = rows(log).rows(named=True)
    assert (row["vehicle_id"], row["latitude"], row["longitude"], row["speed"]) == (
        "12/1315",
        60.2,
        24.9,
        None,
    )
    assert (row["event_time"], row["ingestion_time"]) == (1600657205000, 1_000)


def test_each_vehicle_stays_in_one_partition_in_the_order_of_arrival(log: Log) -> None:
    ingest(Scripted(log, [[position(vehicle, at) for at in (3, 1, 2) for vehicle in range(20)]]), Hsl(), log)
    frames = [
        decode(POSITIONS, p, log.read(POSITIONS.name, p, 0, end)).rows.with_columns(p=p)
        for p, end in log.end_offsets(POSITIONS.name).items()
    ]
    found = (
        pl.concat(frames)
        .group_by("vehicle_id")
        .agg(pl.col("p").n_unique(), pl.col("event_time") % 60_000 // 1000)
    )
    assert found["p"].unique().to_list() == [1]
    assert set(map(tuple, found["event_time"].to_list())) == {(3, 1, 2)}


def test_rejects_become_dead_letters_that_say_why_and_whence(log: Log) -> None:
    counts = ingest(Scripted(log, [[position(1), b"broken", position(2)]]), Hsl(), log)
    (letter,) = letters(log).rows(named=True)
    assert (letter["value"], letter["reason"], letter["origin"], letter["source"]) == (
        b"broken",
        "malformed",
        "script:1",
        "t",
    )
    assert letter["detail"]
    assert counts.rejected == {"malformed": 1}


def test_everything_is_counted_once(log: Log) -> None:
    class Some(Hsl):
        def process_many(self, batch: MessageBatch) -> ProcessedBatch:
            done = super().process_many(batch)
            return ProcessedBatch(
                done.rows[:1], done.rejects, Counter({topic.name: len(rows) for topic, rows in done.rows[1:]})
            )

    messages = [position(1), b"{", position(3).replace(b"VP", b"DUE"), position(4).replace(b"VP", b"DOO")]
    counts = ingest(Scripted(log, [messages, [position(2), b"}"]]), Some(), log)
    assert counts.received == 6
    assert (dict(counts.written), dict(counts.skipped), dict(counts.rejected)) == (
        {POSITIONS.name: 2},
        {"input.door-events": 1, "input.vehicle-events": 1},
        {"malformed": 2},
    )
    assert counts.received == counts.written.total() + counts.skipped.total() + counts.rejected.total()
    assert counts.max_event_time == 1600657200000


def test_what_the_connector_could_not_read_is_a_dead_letter_too(log: Log, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(
        b"nonsense\n" + json.dumps({"received": 1, "topic": "t", "payload": json.loads(position(7))}).encode()
    )
    counts = ingest(Recording(path, speed="max"), Hsl(), log)
    assert (counts.received, counts.written.total(), counts.rejected) == (2, 1, {"malformed line": 1})
    assert letters(log)["origin"].to_list() == [f"{path}:1"]


def test_a_shift_moves_event_times(log: Log) -> None:
    ingest(Scripted(log, [[position(1)]], shift=7), Hsl(), log)
    assert rows(log)["event_time"].to_list() == [1600657200007]


def test_a_shift_out_of_the_calendar_is_a_reject_not_an_end(log: Log) -> None:
    counts = ingest(Scripted(log, [[position(1)]], shift=300_000_000_000_000), Hsl(), log)
    assert counts.rejected == {"impossible event time": 1}


def test_nothing_at_all_still_makes_the_topic(log: Log) -> None:
    assert ingest(Scripted(log, [[], []]), Hsl(), log) == IngestCounts()
    assert log.list_topics() == sorted(topic.name for topic in Hsl().topics)


def test_a_stop_is_obeyed_after_the_batch_at_hand(log: Log) -> None:
    stop = StopSignal()
    connector = Scripted(log, [[position(1)], [position(2)]])
    ingest(connector, Hsl(), log, stop=stop, report=lambda counts: stop.request())
    assert connector.story == ["open", "poll 1", "acknowledge 1 with 1 in the log", "close"]


def test_ctrl_c_lets_the_batch_at_hand_be_written_and_acknowledged(log: Log) -> None:
    class Interrupted(Scripted):
        def poll(self, *, limit: int, wait: int) -> MessageBatch | None:
            os.kill(os.getpid(), signal.SIGINT)
            return super().poll(limit=limit, wait=wait)

    connector = Interrupted(log, [[position(1)], [position(2)]])
    with StopSignal().on_interrupt() as stop:
        counts = ingest(connector, Hsl(), log, stop=stop)
    assert (counts.written.total(), connector.story[-2:]) == (1, ["acknowledge 1 with 1 in the log", "close"])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_stops_at_once() -> None:
    with StopSignal().on_interrupt() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Full:
    """The real log, until the disk is full."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def append(self, topic: str, batch: OutgoingRecords, *, now: int | None = None) -> None:
        raise LogUnwritable("no space")


def test_what_the_log_refuses_is_not_acknowledged(log: Log) -> None:
    connector = Scripted(log, [[position(1)]])
    with pytest.raises(LogUnwritable):
        ingest(connector, Hsl(), Full(log))
    assert connector.story == ["open", "poll 1", "close"]


def test_a_missing_recording_leaves_the_log_as_it_is(log: Log, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        ingest(Recording(tmp_path / "none"), Hsl(), log)


def test_the_append_time_is_the_clocks(log: Log) -> None:
    ingest(Scripted(log, [[position(1)]]), Hsl(), log, clock=FakeClock(12_345))
    times = [
        t
        for p, end in log.end_offsets(POSITIONS.name).items()
        for t in log.read(POSITIONS.name, p, 0, end).timestamps.tolist()
    ]
    assert times == [12_345]


@pytest.mark.recordings
def test_the_recorded_hour_is_all_in_the_log(log: Log, recordings: Path) -> None:
    counts = ingest(Recording(recordings / "hsl-2020-09-21.jsonl.gz", speed="max"), Hsl(), log)
    assert (counts.received, counts.written.total(), counts.skipped.total(), counts.rejected) == (
        5_237,
        5_233,
        0,
        {"no position": 4},
    )
    assert len(rows(log)) == 4_956
    assert len(letters(log)) == 4
