"""A field appended to a protobuf message, and to a dataclass beside it: every operator goes on with its state, also out of a savepoint."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from runners.test_grown_types import STREAMS, results

pytestmark = pytest.mark.slow


def message(*fields: tuple[str, int]) -> Any:
    """A class of the message Ride, as a generated module has it; fields have a name and a type."""
    file = descriptor_pb2.FileDescriptorProto(name="ride.proto", package="grown", syntax="proto3")
    ride = file.message_type.add(name="Ride")
    for number, (name, kind) in enumerate(fields, start=1):
        ride.field.add(name=name, number=number, type=kind, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL)  # type: ignore[arg-type] # an enum of ints
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call] # of the protobuf package
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("grown.Ride"))  # type: ignore[no-untyped-call] # as above


TEXT, NUMBER = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_INT64
NARROW, WIDE = message(("who", TEXT), ("n", NUMBER)), message(("who", TEXT), ("n", NUMBER), ("extra", TEXT))


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("kind", STREAMS)
def test_a_field_appended_to_a_message_leaves_the_results_as_they_are(kind: str, moved: bool, tmp_path: Path) -> None:
    grown = results(STREAMS[kind], tmp_path / "grown", (NARROW, 0, 25), (WIDE, 25, 60), moved=moved)
    assert grown == results(STREAMS[kind], tmp_path / "same", (NARROW, 0, 25), (NARROW, 25, 60))
    assert grown, "there are results"
