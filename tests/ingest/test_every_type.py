"""Every type comes in at every entrance as the same value, or is refused by the name of its column."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import pytest

import millrace as mr
from ingest.clocks import FakeClock
from millrace.errors import InputError
from millrace.ingest import Event, MessageBatch, MessageProcessor, RawMessage
from millrace.ingest.connectors.files import Files


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Station:
    name: str
    since: datetime


@dataclass
class Everything:
    key: str
    seen: datetime | None
    fine: Annotated[datetime, pl.Datetime("us")] | None
    day: date | None
    at: time | None
    price: Annotated[Decimal, pl.Decimal(10, 2)] | None
    colour: Colour | None
    waited: timedelta | None
    small: Annotated[int, pl.Int16] | None
    place: Station | None
    stamps: list[datetime]
    names: list[str]


TOPIC = mr.Topic("input.everything", Everything, key="key")
JOB = mr.Job("copy", mr.read(TOPIC).select("key", *list(TOPIC.schema)[1:]).write("output.everything"))

SEEN = datetime(2026, 3, 2, 8, 0, 5, tzinfo=UTC)
MILLIS = 1_772_438_405_000
EMPTY: dict[str, Any] = dict.fromkeys(TOPIC.schema) | {"key": "a", "stamps": [], "names": []}
Read = Callable[[dict[str, Any], Path], dict[str, Any]]


def write_csv(row: dict[str, Any], file: Path) -> Path:
    cells = [json.dumps(cell) if isinstance(cell, list | dict) else cell for cell in row.values()]
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([row.keys(), cells])
    return file


def write_json(row: dict[str, Any], file: Path) -> Path:
    file.write_text(json.dumps(row) + "\n")
    return file


def ingested(file: Path, **options: Any) -> dict[str, Any]:
    with Files([str(file)], topic=TOPIC, clock=FakeClock(7_000), **options) as files:
        batch = files.poll(limit=10, wait=0)
    assert isinstance(batch, MessageBatch)
    return value_or_error(batch.rows, batch.rejects)


def value_or_error(rows: Any, rejects: Any) -> dict[str, Any]:
    if rejects:
        raise InputError(rejects[0].detail)
    row: dict[str, Any] = rows[0][1].drop("event_time", "ingestion_time").row(0, named=True)
    return row


def processed(row: dict[str, Any], folder: Path) -> dict[str, Any]:
    class Processor(MessageProcessor):
        topics = (TOPIC,)

        def process(self, raw: RawMessage) -> Event | None:
            return Event(TOPIC, MILLIS, row)

    made = Processor().process_many(MessageBatch([""], [b""], [7_000], [0], ""))
    return value_or_error(made.rows, made.rejects)


def replayed(events: Any) -> dict[str, Any]:
    panes = mr.replay(JOB, events)
    row: dict[str, Any] = panes.select(list(TOPIC.schema)).row(0, named=True)
    return row


TIMED = {"event_time": MILLIS}
ENTRANCES: dict[str, Read] = {
    "lines of JSON": lambda row, folder: ingested(write_json(row, folder / "r.jsonl")),
    "CSV": lambda row, folder: ingested(write_csv(row, folder / "r.csv")),
    "a processor": processed,
    "replay of JSON": lambda row, folder: replayed(write_json(row | TIMED, folder / "r.jsonl")),
    "replay of CSV": lambda row, folder: replayed(write_csv(row | TIMED, folder / "r.csv")),
    "a frame": lambda row, folder: replayed(pl.DataFrame([row | TIMED])),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(("column", "given", "kept"), [
    ("seen", "2026-03-02T08:00:05Z", SEEN),
    ("seen", "2026-03-02T10:00:05+02:00", SEEN),
    ("seen", MILLIS, SEEN),
    ("fine", "2026-03-02T08:00:05.000001Z", SEEN.replace(tzinfo=None, microsecond=1)),
    ("day", "2026-03-02", date(2026, 3, 2)),
    ("at", "08:15", time(8, 15)),
    ("at", "08:15:30", time(8, 15, 30)),
    ("price", "12.50", Decimal("12.50")),
    ("price", 12.5, Decimal("12.50")),
    ("price", 12, Decimal("12.00")),
    ("colour", "red", "red"),
    ("waited", "3.5s", timedelta(seconds=3.5)),
    ("small", 300, 300),
    ("place", {"name": "x", "since": "2026-03-02T08:00:05Z"}, {"name": "x", "since": SEEN}),
    ("place", {"name": "x", "since": MILLIS}, {"name": "x", "since": SEEN}),
    ("stamps", ["2026-03-02T08:00:05Z", "2026-03-02T08:00:05Z"], [SEEN, SEEN]),
    ("stamps", [MILLIS], [SEEN]),
    ("names", ["b", "a"], ["b", "a"]),
])  # fmt: skip
def test_a_value_is_the_same_at_every_entrance(
    entrance: str, column: str, given: Any, kept: Any, tmp_path: Path
) -> None:
    read = ENTRANCES[entrance](EMPTY | {column: given}, tmp_path)
    assert read == EMPTY | {column: kept}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(("column", "given", "message"), [
    ("seen", "noon", "is not a time: it is neither a number nor ISO 8601 text; write it like 2020-09-21T0"),
    ("seen", "2026-03-02T08:00:05", "it has no offset from UTC"),
    ("day", "02.03.2026", "write it like 2024-05-31"),
    ("at", "25:00", "write it like 08:15:00"),
    ("price", "1.234", "too many digits"),
    ("price", "12,50", "12,50"),
    ("colour", "green", "none of the categories"),
    ("waited", "3 hours", "such as '3.5s'"),
    ("small", 40_000, "40000"),
    ("place", {"name": "x", "since": "noon"}, "is not a time"),
    ("stamps", ["2026-03-02T08:00:05Z", "noon"], "is not a time"),
])  # fmt: skip
def test_a_value_that_does_not_fit_is_refused_by_its_column_at_every_entrance(
    entrance: str, column: str, given: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as refused:
        ENTRANCES[entrance](EMPTY | {column: given}, tmp_path)
    assert f"column '{column}" in str(refused.value)
    assert message in str(refused.value)


@pytest.mark.parametrize("entrance", ["lines of JSON", "CSV"])
def test_whole_milliseconds_come_in_to_a_column_of_microseconds(entrance: str, tmp_path: Path) -> None:
    read = ENTRANCES[entrance](EMPTY | {"fine": MILLIS}, tmp_path)
    assert read["fine"] == SEEN.replace(tzinfo=None)


@pytest.mark.parametrize("number", [MILLIS // 1000, float(MILLIS // 1000)])
@pytest.mark.parametrize("column", ["seen", "fine"])
def test_the_unit_of_the_column_of_times_holds_for_its_field_too(
    column: str, number: float, tmp_path: Path
) -> None:
    for write, name in ((write_json, "r.jsonl"), (write_csv, "r.csv")):
        file = write(EMPTY | {column: number}, tmp_path / name)
        kept = SEEN if column == "seen" else SEEN.replace(tzinfo=None)
        assert ingested(file, time=column, unit="s")[column] == kept


def test_a_time_of_another_unit_is_refused_with_what_it_would_be(tmp_path: Path) -> None:
    micros = EMPTY | {"seen": MILLIS * 1000}
    with pytest.raises(InputError, match="divided by 1000 it would be 2026-03-02 08:00:05"):
        ingested(write_json(micros, tmp_path / "r.jsonl"))
    with pytest.raises(InputError, match="divided by 1000 it would be 2026-03-02 08:00:05"):
        ingested(write_json(micros | {"seen": None, "t": MILLIS * 1000}, tmp_path / "r.jsonl"), time="t")


def test_seconds_taken_for_milliseconds_are_named_by_ingest(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        "from dataclasses import dataclass\nfrom datetime import datetime\nimport millrace as mr\n"
        "@dataclass\nclass Seen:\n    key: str\n    seen: datetime\n"
        "T = mr.Topic('input.seen', Seen, key='key')\n"
    )
    (tmp_path / "r.csv").write_text(f"key,seen\na,{MILLIS // 1000}\nb,{MILLIS // 1000 + 1}\nc,{MILLIS}\n")
    command = [sys.executable, "-m", "millrace.cli.main", "ingest", "files", "r.csv", "--to", "jobs.py:T"]
    ended = subprocess.run([*command, "--time", "seen"], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0
    early = (
        "2 before the year 2000, such as 1970-01-21 12:20:38; numbers count milliseconds, and multiplied by "
    )
    assert f"  look at event_time: {early}1000 it would be 2026-03-02 08:00:05\n" in ended.stderr
    assert f"  look at seen: {early}" in ended.stderr


def test_seconds_taken_for_milliseconds_are_named_by_replay(caplog: pytest.LogCaptureFixture) -> None:
    row = EMPTY | {"seen": MILLIS // 1000, "event_time": MILLIS // 1000}
    mr.replay(JOB, pl.DataFrame([row, row]))
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "topic input.everything, column 'seen': 2 before the year 2000, such as 1970-01-21 12:20:38",
        "topic input.everything, column 'event_time': 2 before the year 2000, such as 1970-01-21 12:20:38",
    ]


def test_early_times_that_are_not_seconds_are_left_alone_in_replays(caplog: pytest.LogCaptureFixture) -> None:
    mr.replay(JOB, pl.DataFrame([EMPTY | {"seen": 5_000, "event_time": 59_000}]))
    assert caplog.records == []
