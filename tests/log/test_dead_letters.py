import polars as pl
import pyarrow as pa

from millrace.log import Log, OutgoingRecords
from millrace.log.dead_letters import (
    DEAD_SCHEMA,
    dead_letters,
    dead_topic,
    late_letters,
    late_topic,
    parse_letters,
)


def test_a_dead_letter_names_its_place_and_reason_in_headers(log: Log) -> None:
    dead = pl.DataFrame(
        [("input.t", 2, 17, 1000, b"k", b"\xff", "not a t"), ("input.t", 0, 3, 2000, None, None, "empty")],
        schema=DEAD_SCHEMA,
        orient="row",
    )
    log.ensure_raw(dead_topic("input.t"))
    log.append("dead.input.t", dead_letters(dead))
    records = log.read("dead.input.t", 0, 0, 2)
    assert records.headers is not None
    assert records.headers[0] == (
        ("reason", b"not a t"),
        ("topic", b"input.t"),
        ("partition", b"2"),
        ("offset", b"17"),
        ("timestamp", b"1000"),
    )
    assert parse_letters(records).rows() == [
        ("not a t", "input.t", "2", "17", "1000", b"k", b"\xff"),
        ("empty", "input.t", "0", "3", "2000", None, None),
    ]


def test_a_late_letter_counts_the_windows_that_missed_it(log: Log) -> None:
    late = pl.DataFrame(
        {
            "vehicle": ["v"],
            "reason": ["late"],
            "missed": [6],
            "topic": ["input.t"],
            "partition": [1],
            "offset": [9],
        }
    )
    log.ensure_raw(late_topic("job"))
    log.append("late.job", late_letters(OutgoingRecords(pa.array([b"value"]), pa.array([b"v"])), late))
    assert parse_letters(log.read("late.job", 0, 0, 1)).to_dicts() == [
        {
            "reason": "late",
            "missed": "6",
            "topic": "input.t",
            "partition": "1",
            "offset": "9",
            "key": b"v",
            "value": b"value",
        }
    ]


def test_without_letters_there_are_no_records(log: Log) -> None:
    log.ensure_raw("dead.t")
    log.append("dead.t", dead_letters(pl.DataFrame(schema=DEAD_SCHEMA)))
    assert log.end_offsets("dead.t") == {0: 0}
