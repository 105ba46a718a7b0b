import pickle
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl
import pytest
from google.protobuf import struct_pb2, timestamp_pb2

from millrace.errors import DefinitionError
from millrace.topics import Topic


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


@dataclass
class Colliding:
    window_end: int


@dataclass
class Nested:
    _secret: int


@dataclass
class Shapeless:
    contents: dict[str, int]


@dataclass
class Nothing:
    pass


def test_the_columns_of_a_dataclass_are_its_fields() -> None:
    assert Topic("input.sightings", Sighting).schema == pl.Schema(
        {
            "vehicle": pl.String(),
            "speed": pl.Float64(),
            "seen": pl.Datetime("ms", "UTC"),
            "raw": pl.Binary(),
            "moving": pl.Boolean(),
            "doors": pl.List(pl.Int64()),
            "stop": pl.Struct({"name": pl.String(), "platform": pl.Int64()}),
        }
    )


def test_the_columns_of_a_protobuf_class_are_its_fields() -> None:
    topic = Topic("input.times", timestamp_pb2.Timestamp)
    assert topic.schema == pl.Schema({"seconds": pl.Int64(), "nanos": pl.Int32()})
    assert topic.type_name == "google.protobuf.Timestamp"


def test_equal_topics_are_equal_and_survive_pickling() -> None:
    topic = Topic("input.sightings", Sighting, "vehicle", retention="1d")
    assert (
        pickle.loads(pickle.dumps(topic))
        == topic
        == Topic("input.sightings", Sighting, "vehicle", retention="1d")
    )
    assert topic.retention_ms == 86_400_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "no spaces"}, "topic name 'no spaces'"),
        ({"name": ""}, "topic name ''"),
        ({"name": "é"}, "topic name"),
        ({"type": int}, "is not an event type; give a dataclass, or the class of a protobuf message"),
        ({"type": "Sighting"}, "is not an event type; give a dataclass, or the class of a protobuf message"),
        ({"type": Colliding}, "Colliding.window_end would collide"),
        ({"type": Nested}, "Nested._secret would collide"),
        ({"type": Shapeless}, "Shapeless.contents: dict"),
        ({"type": Nothing}, "Nothing has no fields"),
        ({"type": struct_pb2.Struct}, "contains google.protobuf.Struct in itself"),
        ({"key": "nobody"}, "key='nobody' is not a field of Sighting; it has vehicle"),
        ({"key": "stop"}, "a key must be a single value"),
        ({"codec": "xml"}, "codec='xml' is unknown; use 'binary' or 'json'"),
        ({"partitions": 0}, "partitions=0 must be a number from 1 to 1024"),
        ({"partitions": True}, "partitions=True must be a number"),
        ({"retention": "soon"}, "retention='soon' is not a duration"),
        ({"retention": 0}, "retention=0 must be longer than zero"),
        ({"time": "seen"}, "set envelope=False"),
        ({"envelope": False}, "name the field that holds it with time="),
        ({"envelope": False, "time": "nobody"}, "time='nobody' is not a field of Sighting"),
        ({"envelope": False, "time": "moving"}, "time='moving' is Boolean"),
    ],
)
def test_what_could_not_be_stored_is_refused_with_the_remedy(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(message)):
        Topic(**{"name": "input.sightings", "type": Sighting, **given})
