"""A feed of one's own without code: lines of JSON or CSV, from files or a pipe, to a declared topic."""

import gzip
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ingest.clocks import FakeClock
from millrace import Topic
from millrace.errors import ConfigError, InputError
from millrace.ingest import MessageBatch, Reject, ingest
from millrace.ingest.connectors.files import Files
from millrace.ingest.contract import EventPassthrough
from millrace.log import open_log
from millrace.log.codecs.codec import decode
from millrace.log.dead_letters import parse_letters


@dataclass
class Reading:
    sensor: str
    celsius: float | None
    open: bool
    count: int


READINGS = Topic("input.readings", Reading, key="sensor")


def read(*paths: Path, limit: int = 1_000, **options: Any) -> tuple[list[dict[str, Any]], list[Reject]]:
    batches: list[MessageBatch] = []
    with Files([str(path) for path in paths], topic=READINGS, clock=FakeClock(7_000), **options) as files:
        while (batch := files.poll(limit=limit, wait=0)) is not None:
            batches.append(batch)
    rows = [row for batch in batches for _, frame in batch.rows for row in frame.rows(named=True)]
    return rows, [reject for batch in batches for reject in batch.rejects]


ROW = {"sensor": "cellar", "celsius": 8.5, "open": True, "count": 3}


@pytest.mark.parametrize("line", [
    '{"sensor": "cellar", "celsius": 8.5, "open": true, "count": 3, "at": 5000, "unknown": []}',
    '{"sensor": "cellar", "celsius": 8.5, "open": true, "count": 3, "at": "1970-01-01T00:00:05Z"}',
    '{"sensor": "cellar", "celsius": 8.5, "open": true, "count": 3, "at": "1970-01-01T02:00:05+02:00"}',
])  # fmt: skip
def test_a_json_object_a_line_is_an_event(tmp_path: Path, line: str) -> None:
    (tmp_path / "r.jsonl").write_text(f"{line}\n\n{line}")
    rows, rejects = read(tmp_path / "r.jsonl", time="at")
    assert (rows, rejects) == ([{**ROW, "event_time": 5_000, "ingestion_time": 7_000}] * 2, [])


def test_csv_takes_its_types_from_the_topic(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_bytes(
        b'\xef\xbb\xbfat,sensor,celsius,open,count\r\n5,"cel,lar",,yes,3\r\n6.5,attic,21,false,0\r\n'
    )
    rows, rejects = read(tmp_path / "r.csv", time="at", unit="s")
    assert rejects == []
    assert rows == [
        {
            "sensor": "cel,lar",
            "celsius": None,
            "open": True,
            "count": 3,
            "event_time": 5_000,
            "ingestion_time": 7_000,
        },
        {
            "sensor": "attic",
            "celsius": 21.0,
            "open": False,
            "count": 0,
            "event_time": 6_500,
            "ingestion_time": 7_000,
        },
    ]


def test_without_a_column_of_times_an_event_happens_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text('{"sensor": "cellar", "open": false, "count": 1}')
    assert [row["event_time"] for row in read(tmp_path / "r.jsonl")[0]] == [7_000]


def test_several_files_are_read_one_after_the_other_each_with_its_own_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sensor,celsius,open,count\na,1,1,1\nb,2,1,1\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"count,open,sensor\n1,1,c\n"))
    (tmp_path / "c.jsonl").write_text('{"sensor": "d", "open": true, "count": 1}\n')
    rows, rejects = read(tmp_path / "*", limit=1)
    assert ([row["sensor"] for row in rows], rejects) == (["a", "b", "c", "d"], [])


def test_a_damaged_file_is_an_error_after_what_could_be_read(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"sensor": "a", "open": true, "count": 1}\n' * 50_000)
    (tmp_path / "r.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InputError, match="is damaged after line"):
        read(tmp_path / "r.jsonl.gz")


@pytest.mark.parametrize(("line", "reason"), [
    ("{", "malformed line"),
    ("[]", "malformed line"),
    ('{"sensor": null}', "no sensor"),
    ('{"celsius": 5}', "no sensor"),
    ('{"sensor": "a", "count": 1, "open": true}', "no time"),
    ('{"sensor": "a", "count": 1, "open": true, "at": "noon"}', "wrong time"),
    ('{"sensor": "a", "count": 1, "open": true, "at": "2020-09-21T03:00:00"}', "wrong time"),
    ('{"sensor": "a", "count": 1, "open": true, "at": [5]}', "wrong time"),
    ('{"sensor": "a", "count": 1, "open": true, "at": 1e300}', "impossible event time"),
    ('{"sensor": "a", "count": "many", "open": true, "at": 5}', "does not fit the type"),
    ('{"sensor": "a", "count": 1e400, "open": true, "at": 5}', "malformed line"),
])  # fmt: skip
def test_a_line_that_is_no_event_is_a_reject_that_says_where_it_stands(
    tmp_path: Path, line: str, reason: str
) -> None:
    good = '{"sensor": "a", "count": 1, "open": true, "at": 5}'
    (tmp_path / "r.jsonl").write_text(f"{good}\n{line}\n{good}\n")
    rows, rejects = read(tmp_path / "r.jsonl", time="at")
    assert len(rows) == 2
    assert [(reject.reason, reject.raw.origin, reject.raw.payload) for reject in rejects] == [
        (reason, f"{tmp_path / 'r.jsonl'}:2", line.encode())
    ]


@pytest.mark.parametrize(("line", "detail"), [
    ('{"sensor": "a", "count": 1, "open": true, "att": 5}',
     "there is no column 'at' (did you mean 'att'?); there are sensor, count, open, att"),
    ('{"sensor": "a", "count": 1, "open": true, "at": null}', "column 'at' is empty"),
])  # fmt: skip
def test_a_line_without_a_time_shows_its_columns(tmp_path: Path, line: str, detail: str) -> None:
    (tmp_path / "r.jsonl").write_text(f"{line}\n")
    _, rejects = read(tmp_path / "r.jsonl", time="at")
    assert [(reject.reason, reject.detail) for reject in rejects] == [("no time", detail)]


def test_csv_without_the_column_of_times_is_refused_at_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("sensor,celsius,open,count,att\na,1,1,1,5\n")
    with pytest.raises(InputError, match=r"has no column 'at' \(did you mean 'att'\?\), .*; it has sensor, "):
        read(tmp_path / "r.csv", time="at")


def test_csv_lines_that_do_not_fit_are_rejects(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_bytes(b"sensor,celsius,open,count\na,1,1\nb,hot,1,1\nc,1,1,1\nd,1,1,\xff\n")
    rows, rejects = read(tmp_path / "r.csv")
    assert [row["sensor"] for row in rows] == ["c"]
    assert {reject.raw.origin[-1]: reject.reason for reject in rejects} == {
        "2": "malformed line", "3": "does not fit the type", "5": "malformed line"
    }  # fmt: skip


def test_events_and_dead_letters_are_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text('{"sensor": "a", "open": true, "count": 1}\nnonsense\n')
    log = open_log(f"embedded:{tmp_path / 'log'}")
    counts = ingest(Files(tmp_path / "r.jsonl", topic=READINGS), EventPassthrough((READINGS,)), log)
    assert (counts.received, counts.written, counts.rejected) == (
        2,
        {"input.readings": 1},
        {"malformed line": 1},
    )
    letters = parse_letters(log.read("dead.input.readings", 0, 0, 1))
    assert letters["value"].to_list() == [b"nonsense"]
    log.close()


@pytest.mark.parametrize(("options", "message"), [
    ({"topic": "nowhere.py:X"}, "there is no file"),
    ({"topic": "json:loads"}, "not a millrace.Topic"),
    ({"topic": READINGS, "unit": "h"}, "unit='h'"),
    ({"topic": READINGS, "format": "xml"}, "format='xml'"),
])  # fmt: skip
def test_what_cannot_be_is_refused_with_the_remedy(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Files("r.jsonl", **options)
    assert message in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file .*none\.csv"):
        read(tmp_path / "none.csv")


PROGRAM = """
from dataclasses import dataclass
from millrace import Topic

@dataclass
class Reading:
    sensor: str
    celsius: float

READINGS = Topic("input.readings", Reading, key="sensor")
"""


@pytest.mark.slow
def test_lines_are_piped_into_a_topic_by_the_command(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(PROGRAM)
    words = ["ingest", "stdin", "--to", "jobs.py:READINGS", "--time", "at", "--format", "csv"]
    command = [str(Path(sys.executable).with_name("millrace")), *words]
    lines = (
        "at,sensor,celsius\n"
        + "".join(f"{n},s{n % 7},{n / 10}\n" for n in range(20_000))
        + "x,y\n20000,last,0"
    )
    done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "stdin: done: 20,002 messages: 20,001 written, 0 passed over, 1 rejected" in done.stderr
    log = open_log(f"embedded:{tmp_path / 'millrace-data' / 'log'}")
    topic = Topic("input.readings", Reading_of_program, key="sensor")
    rows = pl.concat(
        [
            decode(topic, p, log.read(topic.name, p, 0, end)).rows
            for p, end in log.end_offsets(topic.name).items()
        ]
    )
    assert rows["event_time"].sort().to_list() == list(range(20_001))
    log.close()


@dataclass
class Reading_of_program:  # noqa: N801 - what the program calls Reading
    sensor: str
    celsius: float


Reading_of_program.__qualname__ = "Reading"
