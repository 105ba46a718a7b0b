"""Rows to records and back, with the protobuf package as the judge of what ptars does."""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from google.protobuf import any_pb2, json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from log.shapes import shape
from millrace.errors import DefinitionError
from millrace.log import Records
from millrace.log.codecs import FIRST, LAST, decode, encode
from millrace.log.dead import DEAD
from millrace.log.event_pb2 import Event
from millrace.log.transcode import to_binary, to_json
from millrace.panes import COLUMNS
from millrace.topics import Codec, Topic

Position, Everything = shape("Position"), shape("Everything")
POSITIONS = Topic("input.positions", Position, "vehicle")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
APPENDED = 1_700_000_000_500


@dataclass
class Stop:
    name: str
    platform: int | None


@dataclass
class Sighting:
    vehicle: str
    speed: float | None
    seen: datetime
    raw: bytes
    moving: bool
    doors: list[int]
    stop: Stop
    stops: list[Stop]
    left: datetime | None


@dataclass
class Plain:
    name: str
    ts: str
    n: int | None


@dataclass
class Ticks:
    ms: int


def records(values: list[bytes | None], *, first: int = 0) -> Records:
    count = len(values)
    offsets = np.arange(first, first + count, dtype=np.int64)
    return Records(offsets, np.full(count, APPENDED), pa.nulls(count, pa.binary()), pa.array(values, pa.binary()))


def sealed(message: Any, event_time: int | None = 1_000, ingestion_time: int | None = 2_000) -> bytes:
    """An event as the protobuf package writes it."""
    event = Event()
    if event_time is not None:
        event.event_timestamp.FromMilliseconds(event_time)
    if ingestion_time is not None:
        event.ingestion_timestamp.FromMilliseconds(ingestion_time)
    event.details.Pack(message)
    return event.SerializeToString()


def sent(outgoing: Any, *, first: int = 0) -> Records:
    return records(outgoing.values.to_pylist(), first=first)


# ptars against the protobuf package

_int32, _int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
_uint32, _uint64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
_text = st.text(max_size=5)
_colour = st.sampled_from([0, 1, 7, 9])
_time = st.integers(FIRST * 1000, LAST * 1000).map(lambda us: EPOCH + timedelta(microseconds=us))
_span = st.integers(-(10**12), 10**12).map(lambda us: timedelta(microseconds=us))
_inner = st.builds(
    lambda a, b, c, d: shape("Inner")(number=a, text=b, colour=c, colours=d), _int32, _text, _colour, st.lists(_colour, max_size=2)
)
_fields = {
    **dict.fromkeys("aei", _int32),
    **dict.fromkeys("bfj", _int64),
    **dict.fromkeys("cg", _uint32),
    **dict.fromkeys("dh", _uint64),
    "k": st.floats(width=32, allow_nan=False),
    "l": st.floats(allow_nan=False),
    "m": st.booleans(),
    "n": _text,
    "o": st.binary(max_size=5),
    "p": _colour,
    "q": _time,
    "r": _inner,
    "s": st.lists(_int64, max_size=3),
    "t": st.lists(_text, max_size=3),
    "u": st.lists(_inner, max_size=2),
    "v": _int32,
    "w": _text,
    "x": _text,
    "y": _span,
    "z": st.lists(_colour, max_size=2),
    "aa": _colour,
    "dd": st.lists(_time, max_size=2),
    "ee": st.dictionaries(_text, _int32, max_size=1),  # JSON does not keep the order of a map
}
_choice: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}), st.fixed_dictionaries({"bb": _int32}), st.fixed_dictionaries({"cc": _text})
)


@st.composite
def everything(draw: st.DrawFn) -> Any:
    message = Everything()
    given = draw(st.fixed_dictionaries({}, optional=_fields)) | draw(_choice)
    for name, value in given.items():
        match name:
            case "q":
                message.q.FromDatetime(value)
            case "y":
                message.y.FromTimedelta(value)
            case "x":
                message.x.value = value
            case "r":
                message.r.CopyFrom(value)
            case "ee":
                message.ee.update(value)
            case "dd":
                for at in value:
                    message.dd.add().FromDatetime(at)
            case "s" | "t" | "u" | "z":
                getattr(message, name).extend(value)
            case _:
                setattr(message, name, value)
    return message


def row(message: Any) -> dict[str, Any]:
    """A message as a row, by the plainest means."""
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict(value)
    if field.is_repeated:
        return [_value(field, item) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(field, value)


def _value(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else str(value)
    match field.message_type.full_name if field.message_type is not None else "":
        case "":
            return value
        case "google.protobuf.Timestamp":
            return EPOCH + timedelta(milliseconds=(value.seconds * 10**9 + value.nanos) // 10**6)
        case "google.protobuf.Duration":
            nanos = value.seconds * 10**9 + value.nanos
            return timedelta(milliseconds=abs(nanos) // 10**6 * (1 if nanos >= 0 else -1))
        case "google.protobuf.StringValue":
            return value.value
        case _:
            return row(value)


def tidy(found: dict[str, Any]) -> dict[str, Any]:
    if "ee" in found and not isinstance(found["ee"], dict):
        found["ee"] = {entry["key"]: entry["value"] for entry in found["ee"]}
    return found


@settings(deadline=None, max_examples=50)
@given(st.lists(everything(), min_size=1, max_size=5))
def test_what_ptars_reads_is_what_the_protobuf_package_reads(messages: list[Any]) -> None:
    topic = Topic("t", Everything)
    got = decode(topic, 0, records([sealed(message) for message in messages]))
    assert got.dead.is_empty()
    assert got.rows.schema == pl.Schema({**topic.schema, "event_time": pl.Int64(), "ingestion_time": pl.Int64(), "_off": pl.Int64()})
    assert [tidy(found) for found in got.rows.select(list(topic.schema)).to_dicts()] == [row(message) for message in messages]


@settings(deadline=None, max_examples=50)
@given(st.lists(everything(), min_size=1, max_size=5), st.sampled_from(["binary", "json"]), st.booleans())
def test_rows_written_and_read_again_are_the_same_in_both_codecs(messages: list[Any], codec: Codec, envelope: bool) -> None:
    first = decode(Topic("t", Everything), 0, records([sealed(message) for message in messages])).rows
    topic = Topic("t", Everything, codec=codec) if envelope else Topic("t", Everything, codec=codec, envelope=False, time="j")
    written = encode(topic, first)
    again = decode(topic, 0, sent(written))
    if envelope:
        assert again.dead.is_empty()
        assert_frame_equal(again.rows, first)
    else:
        empty = pl.Series([value == b"" for value in written.values.to_pylist()], dtype=pl.Boolean)
        good = pl.col("j").is_between(FIRST, LAST) & ~empty
        assert again.dead["offset"].to_list() == first.filter(~good)["_off"].to_list()
        assert_frame_equal(again.rows.select(list(topic.schema)), first.filter(good).select(list(topic.schema)))


@settings(deadline=None, max_examples=40)
@given(st.lists(everything(), min_size=1, max_size=4))
def test_what_ptars_writes_the_protobuf_package_reads(messages: list[Any]) -> None:
    rows = decode(Topic("t", Everything), 0, records([sealed(message) for message in messages])).rows
    for value, message in zip(encode(Topic("t", Everything), rows).values.to_pylist(), messages, strict=True):
        event = Event.FromString(value)
        assert event.details.type_url == "type.googleapis.com/shapes.Everything"
        assert row(Everything.FromString(event.details.value)) == row(message)


_flat = st.builds(
    lambda given: shape("Flat")(**given),
    st.fixed_dictionaries(
        {},
        optional={
            "a": _int32,
            "b": _int64,
            "c": _uint64,
            "d": st.floats(width=32),
            "e": st.floats(),
            "f": st.booleans(),
            "g": _text | st.sampled_from(['"', "\\", "\n", "\x7f", "\u2028"]),
            "h": st.binary(max_size=4),
            "i": _colour,
            "j": _int64,
            "k": st.floats(),
            "l": _text,
            "m": st.booleans(),
            "n": _colour,
            "o": _time,
        },
    ),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(_flat, min_size=1, max_size=6), st.booleans())
def test_json_made_of_columns_is_the_canonical_form(messages: list[Any], envelope: bool) -> None:
    kind = shape("Flat")
    plain = Topic("t", kind)
    rows = decode(plain, 0, records([sealed(message) for message in messages])).rows
    topic = Topic("t", kind, codec="json") if envelope else Topic("t", kind, codec="json", envelope=False, time="b")
    by_columns = encode(topic, rows).values.to_pylist()
    by_messages = to_json(topic, encode(replace(topic, codec="binary"), rows).values.to_pylist())
    assert to_binary(topic, by_columns) == to_binary(topic, by_messages)
    for mine, theirs in zip(map(json.loads, by_columns), map(json.loads, by_messages), strict=True):
        for tree in (mine, theirs):
            (tree["details"] if envelope else tree).pop("d", None)  # one single-precision number may be written in several ways
        assert mine == theirs


# Dataclasses


def sightings() -> pl.DataFrame:
    at = datetime(2024, 5, 1, 12, 30, 0, 250_000, tzinfo=UTC)
    return pl.DataFrame(
        [
            ("a", 1.5, at, b"\x00\xff", True, [1, 2], {"name": "x", "platform": 3}, [{"name": "y", "platform": None}], None, 5, 6),
            ("", None, EPOCH, b"", False, [], {"name": "", "platform": None}, [], at, -5, None),
        ],
        schema={**Topic("t", Sighting).schema, "event_time": pl.Int64, "ingestion_time": pl.Int64},
        orient="row",
    )


@pytest.mark.parametrize("codec", ["binary", "json"])
def test_a_dataclass_is_written_and_read_without_a_schema_file(codec: Codec) -> None:
    topic = Topic("t", Sighting, codec=codec)
    got = decode(topic, 0, sent(encode(topic, sightings()), first=40)).rows
    assert_frame_equal(got, sightings().with_columns(_off=pl.Series([40, 41]), ingestion_time=pl.Series([6, APPENDED])))


def test_json_is_readable() -> None:
    topic = Topic("t", Sighting, codec="json")
    assert json.loads(encode(topic, sightings()).values[0].as_py()) == {
        "event_timestamp": "1970-01-01T00:00:00.005Z",
        "ingestion_timestamp": "1970-01-01T00:00:00.006Z",
        "details": {
            "@type": "type.googleapis.com/millrace.type.Sighting",
            "vehicle": "a",
            "speed": 1.5,
            "seen": "2024-05-01T12:30:00.250Z",
            "raw": "AP8=",
            "moving": True,
            "doors": ["1", "2"],
            "stop": {"name": "x", "platform": "3"},
            "stops": [{"name": "y"}],
        },
    }


# Keys, times, panes


def test_the_key_column_becomes_the_key() -> None:
    def keys(column: str | None) -> Any:
        return encode(Topic("t", Sighting, column), sightings()).keys

    assert keys("vehicle").to_pylist() == [b"a", b""]
    assert keys("raw").to_pylist() == [b"\x00\xff", b""]
    assert keys("speed").to_pylist() == [b"1.5", None]
    assert keys(None) is None


def test_ingestion_time_can_be_given_for_all() -> None:
    topic = Topic("t", Sighting)
    assert decode(topic, 0, sent(encode(topic, sightings(), ingestion_time=77))).rows["ingestion_time"].to_list() == [77, 77]
    without = encode(topic, sightings().drop("ingestion_time"))
    assert decode(topic, 0, sent(without)).rows["ingestion_time"].to_list() == [APPENDED] * 2


@pytest.mark.parametrize("codec", ["binary", "json"])
@pytest.mark.parametrize("at", [0, -1, -1_500, 1, 999, 32_503_680_000_123, 9_223_372_036_855, FIRST, LAST])
def test_times_from_the_year_1_to_9999_come_back_exactly(at: int, codec: Codec) -> None:
    topic = Topic("t", Ticks, codec=codec)
    frame = pl.DataFrame({"ms": [at], "event_time": [at], "ingestion_time": [at]})
    assert decode(topic, 0, sent(encode(topic, frame))).rows.rows() == [(at, at, at, 0)]


@pytest.mark.parametrize(("nanos", "expected"), [(999_999, 0), (1_999_999, 1), (999_999_999, 999)])
@pytest.mark.parametrize("seconds", [0, -1, -100, 32_503_680_000])
def test_parts_of_a_millisecond_are_cut_off_towards_the_past(seconds: int, nanos: int, expected: int) -> None:
    event = Event.FromString(sealed(Position()))
    event.event_timestamp.seconds, event.event_timestamp.nanos = seconds, nanos
    assert decode(POSITIONS, 0, records([event.SerializeToString()])).rows["event_time"].to_list() == [seconds * 1000 + expected]


def test_a_result_keeps_its_pane() -> None:
    topic = Topic("t", Ticks)
    pane = {"window_start": -5, "window_end": 10, "index": 2, "settled_index": -1, "timing": "early", "final": False, "op": "+"}
    frame = pl.DataFrame({"ms": [1], "event_time": [9], **{name: [value] for name, value in pane.items()}}, schema_overrides=dict(COLUMNS))
    written = sent(encode(topic, frame))
    got = decode(topic, 0, written, panes=True).rows
    assert got.columns == ["ms", "event_time", "ingestion_time", *COLUMNS, "_off"]
    assert got.row(0, named=True) == {"ms": 1, "event_time": 9, "ingestion_time": APPENDED, **pane, "_off": 0}
    assert decode(topic, 0, written).rows.columns == ["ms", "event_time", "ingestion_time", "_off"]


def test_a_record_without_a_pane_has_empty_pane_columns() -> None:
    got = decode(POSITIONS, 0, records([sealed(Position())]), panes=True).rows
    assert got.select(*COLUMNS).row(0) == (None,) * 7
    assert got.select(*COLUMNS).schema == pl.Schema(COLUMNS)


def test_no_records_make_no_rows_with_all_columns() -> None:
    for panes in (False, True):
        some, none = decode(POSITIONS, 0, records([sealed(Position())]), panes=panes), decode(POSITIONS, 0, Records.none(), panes=panes)
        assert none.rows.schema == some.rows.schema
        assert none.dead.schema == some.dead.schema == DEAD
        assert (len(none.rows), len(none.dead)) == (0, 0)
    assert len(encode(POSITIONS, none.rows)) == 0


# Newer and older schemas


def test_fields_of_a_newer_schema_are_passed_over_and_missing_ones_have_defaults() -> None:
    old, new = shape("OldPosition"), Position(vehicle="v", speed=3, sequence=4)
    event = Event.FromString(sealed(new))
    event.details.type_url = "type.googleapis.com/shapes.OldPosition"
    older = decode(Topic("t", old), 0, records([event.SerializeToString()]))
    assert older.rows.rows() == [("v", 1000, 2000, 0)]
    event.details.CopyFrom(any_pb2.Any(type_url="elsewhere.org/shapes.Position", value=old(vehicle="v").SerializeToString()))
    newer = decode(POSITIONS, 0, records([event.SerializeToString()])).rows
    assert newer.select("vehicle", "speed", "sequence").rows() == [("v", None, 0)]


def test_unknown_fields_of_json_are_passed_over() -> None:
    value = {
        "details": {"@type": "x/shapes.Position", "vehicle": "v", "colour": "red"},
        "event_timestamp": "1970-01-01T00:00:01Z",
        "more": [1],
    }
    got = decode(Topic("t", Position, codec="json"), 0, records([json.dumps(value).encode()]))
    assert got.rows.select("vehicle", "event_time").rows() == [("v", 1000)]


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
    (_NOT_TEXT.SerializeToString(), "not a shapes.Position: failed to decode Protobuf message: invalid UTF-8"),
    (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x05", "not a millrace.Event"),
    (sealed(shape("OldPosition")(vehicle="v")), "holds shapes.OldPosition, not shapes.Position"),
    (_NO_DETAILS.SerializeToString(), "holds no details, not shapes.Position"),
    (sealed(Position(), event_time=None), "has no event time"),
    (_FAR.SerializeToString(), "event time is outside the years 1 to 9999"),
]


def as_json(value: bytes) -> bytes:
    return json_format.MessageToJson(Event.FromString(value), descriptor_pool=Position.DESCRIPTOR.file.pool).encode()


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
    assert got.dead.schema == DEAD
    assert got.dead["offset"].to_list() == list(range(101, 100 + 2 * len(bad), 2))
    assert got.dead["value"].to_list() == bad
    assert got.dead.select("topic", "partition", "timestamp", "key").unique().rows() == [(topic.name, 3, APPENDED, None)]
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


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.binary(max_size=40) | st.sampled_from([GOOD, GOOD[:20], GOOD + b"\x0a", GOOD[5:]]) | st.none(), min_size=1, max_size=12),
    st.sampled_from(["binary", "json"]),
)
def test_no_bytes_stop_decoding_and_each_record_is_a_row_or_dead(values: list[bytes | None], codec: Codec) -> None:
    got = decode(Topic("t", Position, codec=codec), 0, records(values))
    assert sorted([*got.rows["_off"].to_list(), *got.dead["offset"].to_list()]) == list(range(len(values)))


def test_dead_letters_keep_the_key() -> None:
    keyed = Records(np.array([7]), np.array([8]), pa.array([b"k"]), pa.array([b"\xff"]))
    assert decode(POSITIONS, 0, keyed).dead.select("offset", "timestamp", "key", "value").rows() == [(7, 8, b"k", b"\xff")]


# Topics that millrace did not write


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T02:00:01.2509+02:00", 1_250),
        ("1970-01-01 00:00:01", 1_000),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("3000-01-01", 32_503_680_000_000),
        ("yesterday", None),
        ("", None),
    ],
)
def test_iso_text_gives_the_event_time_of_a_plain_topic(text: str, expected: int | None) -> None:
    topic = Topic("t", Plain, envelope=False, time="ts", codec="json")
    got = decode(topic, 0, records([json.dumps({"name": "a", "ts": text, "n": 4, "more": {}}).encode()]))
    if expected is None:
        assert got.dead["reason"].to_list() == ["has no event time"]
    else:
        assert got.rows.rows() == [("a", text, 4, expected, APPENDED, 0)]


def test_whole_milliseconds_and_timestamps_give_the_event_time_too() -> None:
    ticks = Topic("t", Ticks, envelope=False, time="ms", codec="json")
    assert decode(ticks, 0, records([b'{"ms": 123}', b'{"ms": "x"}', b"[1]"])).rows.rows() == [(123, 123, APPENDED, 0)]
    timed = Topic("t", Sighting, envelope=False, time="seen")
    got = decode(timed, 0, sent(encode(timed, sightings()))).rows
    assert got["event_time"].to_list() == [1_714_566_600_250, 0]
    assert got["ingestion_time"].to_list() == [APPENDED] * 2


def test_a_missing_time_in_a_plain_topic_is_dead() -> None:
    topic = Topic("t", Everything, envelope=False, time="q")
    got = decode(topic, 0, records([Everything(a=1).SerializeToString()]))
    assert got.dead["reason"].to_list() == ["has no event time"]


# What encode refuses


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (sightings().drop("speed"), "the rows lack speed"),
        (sightings().drop("event_time"), "the rows lack event_time"),
        (sightings().with_columns(event_time=pl.lit(None, pl.Int64)), "2 rows have no event_time"),
        (sightings().with_columns(event_time=pl.lit(LAST + 1)), "outside the years 1 to 9999"),
        (sightings().with_columns(vehicle=pl.lit(None, pl.String)), "column 'vehicle' holds nulls, but the field must have a value"),
        (sightings().with_columns(speed=pl.lit("fast")), "column 'speed' is large_string, and does not fit double"),
        (sightings().with_columns(index=pl.lit(1)), "have pane columns index, but lack window_start"),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_the_reason(changed: pl.DataFrame, said: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        encode(Topic("t", Sighting), changed)
    assert said in str(caught.value)


def test_an_enum_name_that_does_not_exist_is_refused() -> None:
    topic = Topic("t", Everything)
    rows = decode(topic, 0, records([sealed(Everything())])).rows
    with pytest.raises(DefinitionError, match="p='PINK' is no Colour; there are RED, GREEN, BLUE"):
        encode(topic, rows.with_columns(p=pl.lit("PINK")))


def test_numbers_are_converted_where_nothing_is_lost() -> None:
    topic = Topic("t", Ticks)
    made = encode(topic, pl.DataFrame({"ms": [5]}, schema={"ms": pl.UInt8}).with_columns(event_time=pl.lit(3, pl.Int32)))
    assert decode(topic, 0, sent(made)).rows.select("ms", "event_time").rows() == [(5, 3)]
    with pytest.raises(DefinitionError, match="does not fit int64"):
        encode(topic, pl.DataFrame({"ms": [5.5], "event_time": [1]}))
