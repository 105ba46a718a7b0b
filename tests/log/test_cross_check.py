"""The protobuf package is the judge of what ptars, and JSON made of columns, do."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from log.events import Everything, records, sealed, sent
from log.shapes import shape
from millrace.log.codecs.codec import MAX_TIME, MIN_TIME, decode, encode
from millrace.log.codecs.event_pb2 import Event
from millrace.log.codecs.json_records import to_json, to_protobuf
from millrace.topics import Codec, Topic
from strategies import examples

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# ptars against the protobuf package

LARGEST_SINGLE = float.fromhex("0x1.fffffep127")
"""Rounded to the digits in which the protobuf package writes it,
it is too large for the package itself to read.
"""

_int32, _int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
_uint32, _uint64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
_text = st.text(max_size=5)
_colour = st.sampled_from([0, 1, 7, 9])
_time = st.integers(MIN_TIME * 1000, MAX_TIME * 1000).map(lambda us: EPOCH + timedelta(microseconds=us))
_span = st.integers(-(10**12), 10**12).map(lambda us: timedelta(microseconds=us))
_inner = st.builds(
    lambda a, b, c, d: shape("Inner")(number=a, text=b, colour=c, colours=d),
    _int32,
    _text,
    _colour,
    st.lists(_colour, max_size=2),
)
_fields = {
    **dict.fromkeys("aei", _int32),
    **dict.fromkeys("bfj", _int64),
    **dict.fromkeys("cg", _uint32),
    **dict.fromkeys("dh", _uint64),
    "k": st.floats(width=32, allow_nan=False).filter(lambda x: abs(x) != LARGEST_SINGLE),
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


@examples(50)
@given(st.lists(everything(), min_size=1, max_size=5))
def test_what_ptars_reads_is_what_the_protobuf_package_reads(messages: list[Any]) -> None:
    topic = Topic("t", Everything)
    got = decode(topic, 0, records([sealed(message) for message in messages]))
    assert got.dead.is_empty()
    assert got.rows.schema == pl.Schema(
        {**topic.schema, "event_time": pl.Int64(), "ingestion_time": pl.Int64(), "_off": pl.Int64()}
    )
    assert [tidy(found) for found in got.rows.select(list(topic.schema)).to_dicts()] == [
        row(message) for message in messages
    ]


@examples(50)
@given(st.lists(everything(), min_size=1, max_size=5), st.sampled_from(["binary", "json"]), st.booleans())
def test_rows_written_and_read_again_are_the_same_in_both_codecs(
    messages: list[Any], codec: Codec, envelope: bool
) -> None:
    first = decode(Topic("t", Everything), 0, records([sealed(message) for message in messages])).rows
    topic = (
        Topic("t", Everything, codec=codec)
        if envelope
        else Topic("t", Everything, codec=codec, envelope=False, time="j")
    )
    written = encode(topic, first)
    again = decode(topic, 0, sent(written))
    if envelope:
        assert again.dead.is_empty()
        assert_frame_equal(again.rows, first)
    else:
        empty = pl.Series([value == b"" for value in written.values.to_pylist()], dtype=pl.Boolean)
        good = (
            pl.col("j").is_between(MIN_TIME, MAX_TIME) & (pl.col("j") != 0) & ~empty
        )  # 0 and absent are the same in protobuf
        assert again.dead["offset"].to_list() == first.filter(~good)["_off"].to_list()
        assert_frame_equal(
            again.rows.select(list(topic.schema)), first.filter(good).select(list(topic.schema))
        )


@examples(40)
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


@examples(60)
@given(st.lists(_flat, min_size=1, max_size=6), st.booleans())
def test_json_made_of_columns_is_the_canonical_form(messages: list[Any], envelope: bool) -> None:
    kind = shape("Flat")
    plain = Topic("t", kind)
    rows = decode(plain, 0, records([sealed(message) for message in messages])).rows
    topic = (
        Topic("t", kind, codec="json")
        if envelope
        else Topic("t", kind, codec="json", envelope=False, time="b")
    )
    by_columns = encode(topic, rows).values.to_pylist()
    by_messages = to_json(topic, encode(replace(topic, codec="binary"), rows).values.to_pylist())
    assert to_protobuf(topic, by_columns) == to_protobuf(topic, by_messages)
    for actual, theirs in zip(map(json.loads, by_columns), map(json.loads, by_messages), strict=True):
        for tree in (actual, theirs):
            (tree["details"] if envelope else tree).pop(
                "d", None
            )  # one single-precision number may be written in several ways
        assert actual == theirs
