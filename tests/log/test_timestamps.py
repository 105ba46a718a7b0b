"""Timestamps that no calendar has, at every depth: they are not written, and not read."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from millrace.errors import DefinitionError
from millrace.log.codecs.codec import decode, encode
from millrace.log.codecs.event_pb2 import Event
from millrace.log.contract import Records
from millrace.topics import Codec, Topic


@dataclass
class Inner:
    at: datetime | None


@dataclass
class Visit:
    who: str
    at: datetime | None
    times: list[datetime]
    inner: Inner | None
    inners: list[Inner]


STAMP = pl.Datetime("ms", "UTC")
GOOD, BAD = pl.lit(5).cast(STAMP), pl.lit(400_000_000_000_000).cast(STAMP)
NONE = pl.lit(None, STAMP)
BAD_ONES = {
    "at": BAD,
    "times": pl.concat_list(GOOD, BAD),
    "inner": pl.struct(at=BAD),
    "inners": pl.concat_list(pl.struct(at=GOOD), pl.struct(at=BAD)),
}


def visit(**other: pl.Expr) -> pl.DataFrame:
    whole = {
        "at": GOOD,
        "times": pl.concat_list(GOOD),
        "inner": pl.struct(at=GOOD),
        "inners": pl.concat_list(pl.struct(at=NONE)),
    }
    columns = {
        "who": pl.lit("a"),
        **whole,
        **other,
        "event_time": pl.lit(1, pl.Int64),
        "ingestion_time": pl.lit(1, pl.Int64),
    }
    return pl.select([column.alias(name) for name, column in columns.items()])


@pytest.mark.parametrize("column", BAD_ONES)
@pytest.mark.parametrize("codec", ["binary", "json"])
@pytest.mark.parametrize("envelope", [True, False])
def test_a_result_with_a_timestamp_out_of_range_is_not_written(
    column: str, codec: Codec, envelope: bool
) -> None:
    topic = Topic("visits", Visit, codec=codec, envelope=envelope, time=None if envelope else "at")
    assert len(encode(topic, visit())) == 1
    with pytest.raises(
        DefinitionError, match=f"topic 'visits': column '{column}' holds times outside the years 1 to 9999"
    ):
        encode(topic, visit(**{column: BAD_ONES[column]}))


def mapped() -> Any:
    """A message class with `map<string, Timestamp> seen`, as protoc makes it."""
    file = descriptor_pb2.FileDescriptorProto(name="seen.proto", package="seen", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Seen")
    message.field.add(name="who", number=1, type=9, label=1)
    entry = message.nested_type.add(name="SeenEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    message.field.add(name="seen", number=2, type=11, label=3, type_name=".seen.Seen.SeenEntry")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("seen.Seen"))


def test_a_timestamp_out_of_range_in_a_map_is_a_dead_letter() -> None:
    kind = mapped()
    topic = Topic("seen", kind)
    values = []
    for seconds in (5, 400_000_000_000):
        made = kind(who=str(seconds))
        made.seen["x"].seconds = seconds
        event = Event()
        event.event_timestamp.seconds = 1
        event.details.type_url = f"type.googleapis.com/{topic.type_name}"
        event.details.value = made.SerializeToString()
        values.append(event.SerializeToString())
    numbers = np.arange(2, dtype=np.int64)
    found = decode(
        topic, 0, Records(numbers, numbers, pa.nulls(2, pa.binary()), pa.array(values, pa.binary()))
    )
    assert found.rows["who"].to_list() == ["5"]
    assert found.dead["reason"].to_list() == ["seen is outside the years 1 to 9999"]
