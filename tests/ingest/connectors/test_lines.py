"""Lines are decoded by a type made from the topic:
what does not fit is a dead letter that names its column.
"""

import io
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ingest.clocks import FakeClock
from millrace.errors import InputError
from millrace.ingest.connectors.files import Files, Stdin, _LineConnector
from millrace.ingest.contract import Reject
from millrace.topics import Topic


@dataclass
class Site:
    lat: float
    name: str | None


@dataclass
class Report:
    id: str
    place: Site | None
    tags: list[int]
    open: bool
    at: datetime | None
    raw: bytes | None


REPORTS = Topic("input.reports", Report, key="id")


@dataclass
class Note:
    id: str
    text: str


NOTES = Topic("input.notes", Note, key="id")


def drain(reader: _LineConnector) -> tuple[list[dict[str, Any]], list[Reject]]:
    rows: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    with reader:
        while (batch := reader.poll(limit=3, wait=0)) is not None:
            rows += [row for _, frame in batch.rows for row in frame.rows(named=True)]
            rejects += batch.rejects
    return rows, rejects


def read(
    path: Path, data: bytes, topic: Topic = REPORTS, **options: Any
) -> tuple[list[dict[str, Any]], list[Reject]]:
    path.write_bytes(data)
    return drain(Files(path, topic=topic, clock=FakeClock(7_000), **options))


def test_nested_values_are_taken(tmp_path: Path) -> None:
    line = (
        b'{"id": "a", "place": {"lat": 1, "name": null, "more": 2}, "tags": [1, 2.0], "open": true, '
        b'"at": "2024-03-01T12:00:00Z", "raw": "x"}'
    )
    rows, rejects = read(tmp_path / "r.jsonl", line)
    assert rejects == []
    assert rows[0]["place"] == {"lat": 1.0, "name": None}
    assert (rows[0]["tags"], rows[0]["at"], rows[0]["raw"]) == (
        [1, 2],
        datetime(2024, 3, 1, 12, tzinfo=UTC),
        b"x",
    )


@pytest.mark.parametrize(("value", "column"), [
    (b'"place": "here", "open": true', "'place'"),
    (b'"place": {"lat": "north"}, "open": true', "'place': .lat"),
    (b'"place": {"name": "x"}, "open": true', "'place': 'lat'"),
    (b'"tags": "one", "open": true', "'tags'"),
    (b'"tags": [1.5], "open": true', "'tags': [0]"),
    (b'"tags": [null], "open": true', "'tags': [0]"),
    (b'"open": 2', "'open'"),
    (b'"open": 1.5', "'open'"),
    (b'"open": "true"', "'open'"),
    (b'"open": null', "'open'"),
    (b'"tags": []', "'open' is missing"),
    (b'"open": true, "at": "noon"', "'at'"),
    (b'"open": true, "raw": 5', "'raw'"),
])  # fmt: skip
def test_what_does_not_fit_is_a_letter_that_names_the_column(
    tmp_path: Path, value: bytes, column: str
) -> None:
    good = b'{"id": "a", "open": false}'
    rows, [reject] = read(tmp_path / "r.jsonl", b"\n".join([good, b'{"id": "b", ' + value + b"}", good]))
    assert [row["id"] for row in rows] == ["a", "a"]
    assert reject.reason == "does not fit the type"
    assert f"column {column}" in reject.detail


@pytest.mark.parametrize("line", ["a,2", "a,1.5", "a,maybe"])
def test_a_boolean_of_csv_is_a_word_or_a_letter(tmp_path: Path, line: str) -> None:
    rows, [reject] = read(tmp_path / "r.csv", f"id,open\n{line}\n".encode())
    assert (rows, reject.reason) == ([], "does not fit the type")


def test_a_value_of_csv_may_run_over_several_lines_also_over_batches(tmp_path: Path) -> None:
    rows, rejects = read(tmp_path / "r.csv", b'id,text\na,"one\n\ntwo ""x""\nthree"\nb,plain\n', NOTES)
    assert [(row["id"], row["text"]) for row in rows] == [("a", 'one\n\ntwo "x"\nthree'), ("b", "plain")]
    assert rejects == []


@pytest.mark.parametrize("size", [130_000, 140_000, 900_000])
def test_the_lines_of_a_long_value_of_csv_are_no_events_of_their_own(tmp_path: Path, size: int) -> None:
    text = (b"forged,x\n" + b"x" * 5_000 + b"\nforged,y\n") * (size // 5_000)
    rows, rejects = read(tmp_path / "r.csv", b'id,text\na,"' + text + b'"\nb,plain\n', NOTES)
    assert [(row["id"], row["text"]) for row in rows] == [("a", text.decode()), ("b", "plain")]
    assert rejects == []


def test_a_quote_that_nothing_closes_costs_its_own_line(tmp_path: Path) -> None:
    data = b'id,text\na,"open\nb,plain\nc,"quoted"\nd,5" pipe\n'
    rows, [reject] = read(tmp_path / "r.csv", data, NOTES)
    assert [row["id"] for row in rows] == ["b", "c", "d"]
    assert (reject.raw.payload, reject.raw.origin) == (b'a,"open', f"{tmp_path / 'r.csv'}:2")


def test_separators_of_unicode_end_no_record(tmp_path: Path) -> None:
    rows, rejects = read(tmp_path / "r.csv", 'id,text\n"a",x\u2028y\u0085z\n'.encode(), NOTES)
    assert ([row["text"] for row in rows], rejects) == (["x\u2028y\u0085z"], [])


def test_a_line_that_is_too_long_is_one_letter_and_never_cut_and_written(tmp_path: Path) -> None:
    long = b"b," + b"x" * (1 << 20)
    rows, [reject] = read(tmp_path / "r.csv", b"id,text\na,1\n" + long + b"\nc,3\n", NOTES)
    assert ([row["id"] for row in rows], reject.reason) == (["a", "c"], "line too long")


def test_a_long_value_is_whole_or_a_letter(tmp_path: Path) -> None:
    rows, rejects = read(
        tmp_path / "r.csv",
        b"id,text\na," + b"x" * 130_000 + b"\nb," + b"x" * 1_000_000 + b"\nc," + b"x" * (1 << 20) + b"\n",
        NOTES,
    )
    assert [len(row["text"]) for row in rows] == [130_000, 1_000_000]
    assert [reject.reason for reject in rejects] == ["line too long"]


def test_a_line_over_a_megabyte_on_standard_input_forges_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    forged = b'{"id": "forged", "text": "x"}'
    padding = b" " * ((1 << 20) + 5 - 12)
    data = (
        b'{"id": "a", "text": "1"}\n{"text": "'
        + padding
        + forged
        + b" " * (1 << 20)
        + forged
        + b'\n{"id": "c", "text": "3"}'
    )
    reading, writing = os.pipe()
    import threading

    def write() -> None:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(reading, "rb") as pipe:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(pipe))
        rows, [reject] = drain(Stdin(topic=NOTES, clock=FakeClock(0)))
    thread.join()
    assert ([row["id"] for row in rows], reject.reason) == (["a", "c"], "line too long")


def test_lines_that_end_with_cr_alone_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="end lines with LF or CRLF"):
        read(tmp_path / "r.csv", b"id,text\ra,1\rb,2\r", NOTES)


def test_a_column_that_is_named_twice_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="names 'text' more than once"):
        read(tmp_path / "r.csv", b"id,text,other,other,text\na,1,2,3,4\n", NOTES)
    rows, rejects = read(tmp_path / "s.csv", b"id,text,other,other\na,1,2,3\n", NOTES)
    assert ([row["text"] for row in rows], rejects) == (["1"], []), (
        "columns that the topic does not have are passed over"
    )


@pytest.mark.parametrize(
    ("written", "taken"),
    [
        (b"9007199254740991.0", 2**53 - 1),
        (b"9007199254740993.0", None),
        (b"9007199254740993", 2**53 + 1),
        (b"1e17", None),
    ],
)
def test_a_whole_number_with_a_point_is_taken_only_where_it_is_exact(
    tmp_path: Path, written: bytes, taken: int | None
) -> None:
    rows, rejects = read(tmp_path / "r.jsonl", b'{"id": "a", "open": true, "tags": [' + written + b"]}")
    assert [row["tags"] for row in rows] == ([] if taken is None else [[taken]])
    assert len(rejects) == (taken is None)
