"""A field appended to a protobuf message, and to an Avro record:
every operator goes on with its state, also out of a savepoint.
"""

import json
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import millrace as mr
from runners.test_grown_types import STREAMS, results

pytestmark = pytest.mark.slow


def message(*fields: tuple[str, int]) -> Any:
    """A class of the message Ride, as a generated module has it; fields have a name and a type."""
    file = descriptor_pb2.FileDescriptorProto(name="ride.proto", package="grown", syntax="proto3")
    ride = file.message_type.add(name="Ride")
    for number, (name, kind) in enumerate(fields, start=1):
        ride.field.add(
            name=name, number=number, type=kind, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("grown.Ride"))


def record(*more: str) -> mr.Topic:
    """A topic of Avro records, with optional text fields at the end."""
    kind = make_dataclass(
        "Bid", [("who", str), ("n", int), ("event_at", int), *((name, str | None) for name in more)]
    )
    fields: list[Any] = [
        {"name": "who", "type": "string"},
        {"name": "n", "type": "long"},
        {"name": "event_at", "type": "long"},
    ]
    fields += [{"name": name, "type": ["null", "string"], "default": None} for name in more]
    schema = json.dumps({"type": "record", "name": "Bid", "fields": fields})
    return mr.Topic(
        "rides", kind, key="who", partitions=1, envelope=False, time="event_at", codec="avro", avro=schema
    )


TEXT, NUMBER = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_INT64
NARROW, WIDE = message(("who", TEXT), ("n", NUMBER)), message(("who", TEXT), ("n", NUMBER), ("extra", TEXT))


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("kind", STREAMS)
def test_a_field_appended_to_a_message_leaves_the_results_as_they_are(
    kind: str, moved: bool, tmp_path: Path
) -> None:
    grown = results(STREAMS[kind], tmp_path / "grown", (NARROW, 0, 25), (WIDE, 25, 60), moved=moved)
    assert grown == results(STREAMS[kind], tmp_path / "same", (NARROW, 0, 25), (NARROW, 25, 60))
    assert grown, "there are results"


@pytest.mark.parametrize("kind", STREAMS)
def test_a_field_appended_to_an_avro_record_leaves_the_results_as_they_are(kind: str, tmp_path: Path) -> None:
    narrow, wide = record(), record("extra")
    grown = results(STREAMS[kind], tmp_path / "grown", (narrow, 0, 25), (wide, 25, 60), moved=True)
    assert grown == results(STREAMS[kind], tmp_path / "same", (narrow, 0, 25), (narrow, 25, 60))
    assert grown, "there are results"
