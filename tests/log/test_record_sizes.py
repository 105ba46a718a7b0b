"""Letters that are too large for their topic are cut, and say so."""

import hashlib

import polars as pl
import pyarrow as pa
import pytest

from millrace.log import OutgoingRecords
from millrace.log.dead_letters import (
    DEAD_SCHEMA,
    MAX_REASON_CHARS,
    dead_letters,
    split_letters,
    split_oversized,
    truncate_letters,
)
from millrace.log.record_sizes import RECORD_OVERHEAD, record_sizes

HEADERS = (("reason", b"not a t"), ("topic", b"input.t"), ("partition", b"0"), ("offset", b"7"))


def letter(value: bytes | None, key: bytes | None = None) -> OutgoingRecords:
    return OutgoingRecords(
        pa.array([b"neighbour", value], pa.binary()), pa.array([None, key], pa.binary()), [(), HEADERS]
    )


@pytest.mark.parametrize("over", [-1, 0])
def test_a_letter_of_at_most_the_limit_stays_whole(over: int) -> None:
    whole = letter(b"x" * 5_000, b"k")
    assert truncate_letters(whole, int(record_sizes(whole).max()) - over) is whole
    assert truncate_letters(whole, None) is whole


@pytest.mark.parametrize(
    ("limit", "key"),
    [
        (600, None),
        (600, b"k"),
        *((n, key) for n in (2_000, 5_000, 1_000_000) for key in (None, b"k", b"k" * 3_000)),
    ],
)
def test_a_letter_over_the_limit_is_cut_and_keeps_length_and_digest(limit: int, key: bytes | None) -> None:
    value = bytes(range(256)) * 5_000
    made = truncate_letters(letter(value, key), limit)
    assert made.values[0].as_py() == b"neighbour"
    assert record_sizes(made).max() <= limit
    headers = dict(made.headers[1]) if made.headers else {}
    assert headers["length"] == str(len(value)).encode()
    assert headers["sha256"] == hashlib.sha256(value).hexdigest().encode()
    assert headers["offset"] == b"7"
    assert value.startswith(made.values[1].as_py())
    assert record_sizes(made)[1] == limit
    if key is not None and len(key) > 1_000:
        assert headers["key_length"] == b"3000"


def test_a_long_key_alone_is_cut_too() -> None:
    made = truncate_letters(letter(None, b"k" * 900_000), 500_000)
    assert record_sizes(made).max() <= 500_000
    assert made.values[1].as_py() is None


def test_a_reason_that_quotes_the_whole_input_is_cut() -> None:
    dead = pl.DataFrame([("t", 0, 0, 0, None, b"v", "e" * 1_000_000)], schema=DEAD_SCHEMA, orient="row")
    headers = dead_letters(dead).headers
    assert headers is not None
    assert len(dict(headers[0])["reason"]) == MAX_REASON_CHARS


def test_key_and_headers_count() -> None:
    assert record_sizes(OutgoingRecords(pa.array([b"abc"]))).tolist() == [RECORD_OVERHEAD + 3]
    assert record_sizes(OutgoingRecords(pa.array([b"abc"]), pa.array([b"key"]))).tolist() == [
        RECORD_OVERHEAD + 6
    ]
    assert record_sizes(OutgoingRecords(pa.array([b"abc"]), None, [(("name", b"value"),)])).tolist() == [
        RECORD_OVERHEAD + 3 + 4 + 5 + 10
    ]
    assert record_sizes(OutgoingRecords(pa.array([None], pa.binary()))).tolist() == [RECORD_OVERHEAD]


def test_a_result_that_is_too_large_is_set_aside_and_its_neighbours_are_kept() -> None:
    records = OutgoingRecords(pa.array([b"a", b"x" * 1_000, b"b"]), pa.array([b"1", b"2", b"3"]))
    kept, dead = split_oversized("out", records, 500)
    assert kept.values.to_pylist() == [b"a", b"b"]
    assert dead is not None
    assert dead.select("topic", "key", "reason").rows() == [
        ("out", b"2", "a record of 1101 bytes for 'out', which takes 500: not written")
    ]
    assert split_oversized("out", records, 5_000) == (records, None)


def test_portions_are_bounded_in_bytes_and_lose_nothing() -> None:
    letters = OutgoingRecords(pa.array([b"x" * 100] * 9 + [b"y" * 1_000], pa.binary()), None, [HEADERS] * 10)
    made = list(split_letters(letters, max_bytes=int(2.5 * record_sizes(letters)[0])))
    assert [len(portion) for portion in made] == [2, 2, 2, 2, 1, 1]
    assert [value for portion in made for value in portion.values.to_pylist()] == letters.values.to_pylist()
