"""What cannot be decoded is set aside with its reason, and its neighbours live."""

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from log.events import APPENDED, POSITIONS, Position, records, sealed
from log.shapes import shape
from millrace.log import Records
from millrace.log.codecs.codec import decode
from millrace.log.codecs.event_pb2 import Event
from millrace.log.dead_letters import DEAD_SCHEMA
from millrace.topics import Codec, Topic
from strategies import examples

# Dead letters

GOOD = sealed(Position(vehicle="good"))
_BAD_DETAILS = Event.FromString(GOOD)
_BAD_DETAILS.details.value = b"\x0a\xff"
_NOT_TEXT = Event.FromString(GOOD)
_NOT_TEXT.details.value = b"\x0a\x02\xff\xfe"
_NO_DETAILS = Event.FromString(GOOD)
_NO_DETAILS.ClearField("details")
_FAR = Event.FromString(GOOD)
_FAR.event_timestamp.seconds = 10**15

BINARY: list[tuple[bytes | None, str]] = [
    (None, "empty"),
    (b"", "empty"),
    (b"\xff\xff\xff", "not a millrace.Event"),
    (GOOD[:-1], "not a millrace.Event"),
    (b'{"vehicle": "json"}', "not a millrace.Event"),
    (_BAD_DETAILS.SerializeToString(), "not a shapes.Position"),
    (
        _NOT_TEXT.SerializeToString(),
        "not a shapes.Position: failed to decode Protobuf message: invalid UTF-8",
    ),
    (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x05", "not a millrace.Event"),
    (sealed(shape("OldPosition")(vehicle="v")), "holds shapes.OldPosition, not shapes.Position"),
    (_NO_DETAILS.SerializeToString(), "holds no details, not shapes.Position"),
    (sealed(Position(), event_time=None), "has no event time"),
    (_FAR.SerializeToString(), "event time is outside the years 1 to 9999"),
]


def as_json(value: bytes) -> bytes:
    return json_format.MessageToJson(
        Event.FromString(value), descriptor_pool=Position.DESCRIPTOR.file.pool
    ).encode()


JSON: list[tuple[bytes | None, str]] = [
    (None, "empty"),
    (b"", "empty"),
    (b"{", "not JSON of shapes.Position"),
    (b"\xff\xfe\xfd", "not JSON of shapes.Position"),
    (b"[]", "not JSON of shapes.Position"),
    (b"17", "not JSON of shapes.Position"),
    (b"null", "not JSON of shapes.Position"),
    (b"[" * 100_000, "not JSON of shapes.Position"),
    (b"{}", "holds no details, not shapes.Position"),
    (b'{"details": {"@type": "x/shapes.Nothing"}}', "holds shapes.Nothing, not shapes.Position"),
    (b'{"details": {"vehicle": "x"}}', "not JSON of shapes.Position"),
    (as_json(GOOD).replace(b'"good"', b"17"), "not JSON of shapes.Position"),
    (as_json(GOOD).replace(b"1970-01-01T00:00:01Z", b"yesterday"), "not JSON of shapes.Position"),
    (as_json(sealed(Position(), event_time=None)), "has no event time"),
]


def check(topic: Topic, bad: list[bytes | None], reasons: list[str], good: bytes) -> None:
    """Every bad record, each between good ones, is found with its reason; the good ones are all there."""
    mixed = [good, *(value for each in bad for value in (each, good))]
    got = decode(topic, 3, records(mixed, first=100))
    assert got.rows["vehicle"].to_list() == ["good"] * (len(bad) + 1)
    assert got.rows["_off"].to_list() == list(range(100, 101 + 2 * len(bad), 2))
    assert got.dead.schema == DEAD_SCHEMA
    assert got.dead["offset"].to_list() == list(range(101, 100 + 2 * len(bad), 2))
    assert got.dead["value"].to_list() == bad
    assert got.dead.select("topic", "partition", "timestamp", "key").unique().rows() == [
        (topic.name, 3, APPENDED, None)
    ]
    for reason, expected in zip(got.dead["reason"].to_list(), reasons, strict=True):
        assert reason.startswith(expected)


@pytest.mark.parametrize(("bad", "reason"), BINARY)
def test_a_record_that_cannot_be_read_is_dead_and_its_neighbours_live(bad: bytes | None, reason: str) -> None:
    check(POSITIONS, [bad], [reason], GOOD)


def test_many_different_bad_records_are_all_found_at_once() -> None:
    check(POSITIONS, [bad for bad, _ in BINARY] * 3, [reason for _, reason in BINARY] * 3, GOOD)


@pytest.mark.parametrize(("bad", "reason"), JSON)
def test_json_that_cannot_be_read_is_dead_and_its_neighbours_live(bad: bytes | None, reason: str) -> None:
    check(Topic("t", Position, codec="json"), [bad], [reason], as_json(GOOD))


@examples(50)
@given(
    st.lists(
        st.binary(max_size=40) | st.sampled_from([GOOD, GOOD[:20], GOOD + b"\x0a", GOOD[5:]]) | st.none(),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(["binary", "json"]),
)
def test_no_bytes_stop_decoding_and_each_record_is_a_row_or_dead(
    values: list[bytes | None], codec: Codec
) -> None:
    got = decode(Topic("t", Position, codec=codec), 0, records(values))
    assert sorted([*got.rows["_off"].to_list(), *got.dead["offset"].to_list()]) == list(range(len(values)))


def test_dead_letters_keep_the_key() -> None:
    keyed = Records(np.array([7]), np.array([8]), pa.array([b"k"]), pa.array([b"\xff"]))
    assert decode(POSITIONS, 0, keyed).dead.select("offset", "timestamp", "key", "value").rows() == [
        (7, 8, b"k", b"\xff")
    ]
