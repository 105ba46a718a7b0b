"""Rows to records and back."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from google.protobuf import any_pb2
from polars.testing import assert_frame_equal

from log.events import APPENDED, POSITIONS, Everything, Position, records, sealed, sent
from log.shapes import shape
from millrace.errors import DefinitionError
from millrace.log import Records
from millrace.log.codecs.codec import MAX_TIME, MIN_TIME, decode, encode
from millrace.log.codecs.event_pb2 import Event
from millrace.log.dead_letters import DEAD_SCHEMA
from millrace.panes import COLUMNS
from millrace.topics import Codec, Topic

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


# Dataclasses


def sightings() -> pl.DataFrame:
    at = datetime(2024, 5, 1, 12, 30, 0, 250_000, tzinfo=UTC)
    return pl.DataFrame(
        [
            (
                "a",
                1.5,
                at,
                b"\x00\xff",
                True,
                [1, 2],
                {"name": "x", "platform": 3},
                [{"name": "y", "platform": None}],
                None,
                5,
                6,
            ),
            ("", None, EPOCH, b"", False, [], {"name": "", "platform": None}, [], at, -5, None),
        ],
        schema={**Topic("t", Sighting).schema, "event_time": pl.Int64, "ingestion_time": pl.Int64},
        orient="row",
    )


@pytest.mark.parametrize("codec", ["binary", "json"])
def test_a_dataclass_is_written_and_read_without_a_schema_file(codec: Codec) -> None:
    topic = Topic("t", Sighting, codec=codec)
    got = decode(topic, 0, sent(encode(topic, sightings()), first=40)).rows
    assert_frame_equal(
        got, sightings().with_columns(_off=pl.Series([40, 41]), ingestion_time=pl.Series([6, APPENDED]))
    )


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
    assert decode(topic, 0, sent(encode(topic, sightings(), ingestion_time=77))).rows[
        "ingestion_time"
    ].to_list() == [77, 77]
    without = encode(topic, sightings().drop("ingestion_time"))
    assert decode(topic, 0, sent(without)).rows["ingestion_time"].to_list() == [APPENDED] * 2


@pytest.mark.parametrize("codec", ["binary", "json"])
@pytest.mark.parametrize(
    "at", [0, -1, -1_500, 1, 999, 32_503_680_000_123, 9_223_372_036_855, MIN_TIME, MAX_TIME]
)
def test_times_from_the_year_1_to_9999_come_back_exactly(at: int, codec: Codec) -> None:
    topic = Topic("t", Ticks, codec=codec)
    frame = pl.DataFrame({"ms": [at], "event_time": [at], "ingestion_time": [at]})
    assert decode(topic, 0, sent(encode(topic, frame))).rows.rows() == [(at, at, at, 0)]


@pytest.mark.parametrize(("nanos", "expected"), [(999_999, 0), (1_999_999, 1), (999_999_999, 999)])
@pytest.mark.parametrize("seconds", [0, -1, -100, 32_503_680_000])
def test_parts_of_a_millisecond_are_cut_off_towards_the_past(seconds: int, nanos: int, expected: int) -> None:
    event = Event.FromString(sealed(Position()))
    event.event_timestamp.seconds, event.event_timestamp.nanos = seconds, nanos
    assert decode(POSITIONS, 0, records([event.SerializeToString()])).rows["event_time"].to_list() == [
        seconds * 1000 + expected
    ]


def test_a_result_keeps_its_pane() -> None:
    topic = Topic("t", Ticks)
    pane = {
        "window_start": -5,
        "window_end": 10,
        "index": 2,
        "settled_index": -1,
        "timing": "early",
        "final": False,
        "op": "+",
    }
    frame = pl.DataFrame(
        {"ms": [1], "event_time": [9], **{name: [value] for name, value in pane.items()}},
        schema_overrides=dict(COLUMNS),
    )
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
        some, none = (
            decode(POSITIONS, 0, records([sealed(Position())]), panes=panes),
            decode(POSITIONS, 0, Records.empty(), panes=panes),
        )
        assert none.rows.schema == some.rows.schema
        assert none.dead.schema == some.dead.schema == DEAD_SCHEMA
        assert (len(none.rows), len(none.dead)) == (0, 0)
    assert len(encode(POSITIONS, none.rows)) == 0


# Newer and older schemas


def test_fields_of_a_newer_schema_are_ignored_and_missing_ones_have_defaults() -> None:
    old, new = shape("OldPosition"), Position(vehicle="v", speed=3, sequence=4)
    event = Event.FromString(sealed(new))
    event.details.type_url = "type.googleapis.com/shapes.OldPosition"
    older = decode(Topic("t", old), 0, records([event.SerializeToString()]))
    assert older.rows.rows() == [("v", 1000, 2000, 0)]
    event.details.CopyFrom(
        any_pb2.Any(type_url="elsewhere.org/shapes.Position", value=old(vehicle="v").SerializeToString())
    )
    newer = decode(POSITIONS, 0, records([event.SerializeToString()])).rows
    assert newer.select("vehicle", "speed", "sequence").rows() == [("v", None, 0)]


def test_unknown_fields_of_json_are_ignored() -> None:
    value = {
        "details": {"@type": "x/shapes.Position", "vehicle": "v", "colour": "red"},
        "event_timestamp": "1970-01-01T00:00:01Z",
        "more": [1],
    }
    got = decode(Topic("t", Position, codec="json"), 0, records([json.dumps(value).encode()]))
    assert got.rows.select("vehicle", "event_time").rows() == [("v", 1000)]


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
    assert decode(ticks, 0, records([b'{"ms": 123}', b'{"ms": "x"}', b"[1]"])).rows.rows() == [
        (123, 123, APPENDED, 0)
    ]
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
    ("changed", "message"),
    [
        (sightings().drop("speed"), "the rows lack speed"),
        (sightings().drop("event_time"), "the rows lack event_time"),
        (sightings().with_columns(event_time=pl.lit(None, pl.Int64)), "2 rows have no event_time"),
        (sightings().with_columns(event_time=pl.lit(MAX_TIME + 1)), "outside the years 1 to 9999"),
        (
            sightings().with_columns(vehicle=pl.lit(None, pl.String)),
            "column 'vehicle' holds nulls, but the field must have a value",
        ),
        (
            sightings().with_columns(speed=pl.lit("fast")),
            "column 'speed' is large_string, which does not fit double",
        ),
        (sightings().with_columns(index=pl.lit(1)), "have pane columns index, but lack window_start"),
    ],
)
def test_rows_that_do_not_fit_the_type_are_refused_with_the_reason(
    changed: pl.DataFrame, message: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        encode(Topic("t", Sighting), changed)
    assert message in str(caught.value)


def test_an_enum_name_that_does_not_exist_is_refused() -> None:
    topic = Topic("t", Everything)
    rows = decode(topic, 0, records([sealed(Everything())])).rows
    with pytest.raises(DefinitionError, match="p='PINK' is not a value of Colour; it has RED, GREEN, BLUE"):
        encode(topic, rows.with_columns(p=pl.lit("PINK")))


def test_numbers_are_converted_where_nothing_is_lost() -> None:
    topic = Topic("t", Ticks)
    made = encode(
        topic, pl.DataFrame({"ms": [5]}, schema={"ms": pl.UInt8}).with_columns(event_time=pl.lit(3, pl.Int32))
    )
    assert decode(topic, 0, sent(made)).rows.select("ms", "event_time").rows() == [(5, 3)]
    with pytest.raises(DefinitionError, match="does not fit int64"):
        encode(topic, pl.DataFrame({"ms": [5.5], "event_time": [1]}))
