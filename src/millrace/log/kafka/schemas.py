"""The schema of a topic: a record of the compacted topic `millrace.schemas`, with which anyone can decode the
topic without millrace.

The key is the topic's name, the value JSON: how records are encoded (`codec`, `envelope`), the full name of
the protobuf type (`type`), and, in base64, a `google.protobuf.FileDescriptorSet` with everything that the
type and the envelope need (`descriptors`). `partitioner` says how keys are placed on partitions: `murmur2`,
as by Kafka's Java client. Records of earlier versions lack it: they placed keys by `millrace-hash`.
"""

import base64
from typing import Annotated, Literal, Self

import msgspec
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import DecodeError

from millrace.log.codecs import event_pb2
from millrace.log.contract import Partitioner
from millrace.log.control import ControlRecord
from millrace.log.declarations import RAW_FORMAT, TopicFormat
from millrace.log.partitioning import NEW_TOPICS, UNRECORDED
from millrace.topics import Topic
from millrace.values import event_types


class Schema(ControlRecord, frozen=True):
    """What one topic holds."""

    partitions: Annotated[int, msgspec.Meta(ge=1)]
    """As declared; there may be more by now."""
    codec: Literal["binary", "json", "avro", "raw"]
    type: str
    fields: str
    envelope: bool
    retention: Annotated[int, msgspec.Meta(ge=0)] | None
    compact: bool = False
    descriptors: str = ""
    partitioner: Partitioner = UNRECORDED

    @property
    def topic_format(self) -> TopicFormat:
        """What must stay the same as long as the topic exists, but for fields added at the end."""
        return self.codec, self.type, self.fields, self.envelope

    def with_type_of(self, newer: "Schema") -> "Schema":
        """The same with the type of a newer schema: a process of older code must not remove its fields."""
        return msgspec.structs.replace(self, fields=newer.fields, descriptors=newer.descriptors)

    @classmethod
    def from_json(cls, value: bytes | None) -> Self:
        """The schema of a record; `ValueError` if it is not one, or does not describe its type."""
        schema = super().from_json(value)
        _check_descriptors(schema)
        return schema

    def can_replace(self, old: "Schema | None") -> bool:
        """Whether it keeps codec, type, envelope and partitioner of the one before, and only adds fields."""
        if old is None or self == old:
            return True
        is_same_type = (self.codec, self.type, self.envelope) == (old.codec, old.type, old.envelope)
        return is_same_type and self.partitioner == old.partitioner and self.fields.startswith(old.fields)

    @staticmethod
    def of_topic(topic: Topic) -> "Schema":
        """The schema of a topic that is created as declared."""
        return Schema(
            topic.partitions,
            topic.codec,
            topic.type_name,
            event_types.signature(topic.typed().type),
            topic.envelope,
            topic.retention_ms,
            topic.compact,
            encode_descriptors(topic),
            NEW_TOPICS,
        )

    @staticmethod
    def of_bytes(partitions: int, retention: int | None) -> "Schema":
        """The schema of a topic without a type."""
        return Schema(partitions, *RAW_FORMAT, retention, partitioner=NEW_TOPICS)


def _check_descriptors(schema: Schema) -> None:
    """Refuses descriptors that do not describe the type."""
    if not schema.descriptors:
        return
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(
            base64.b64decode(schema.descriptors, validate=True)
        )
    except (ValueError, DecodeError) as error:
        raise ValueError("has descriptors that cannot be read") from error
    type_names = {
        f"{file.package}.{message.name}".lstrip(".") for file in files.file for message in file.message_type
    }
    if not any(schema.type == name or schema.type.startswith(f"{name}.") for name in type_names):
        raise ValueError(f"has descriptors without the type {schema.type[:80]!r}")


def encode_descriptors(topic: Topic) -> str:
    """The files that a reader needs, each after those it depends on, in base64."""
    file_by_name: dict[str, FileDescriptor] = {}
    _collect_files(event_types.descriptor(topic.typed().type).file, file_by_name)
    if topic.envelope:
        _collect_files(event_pb2.DESCRIPTOR, file_by_name)
    files = descriptor_pb2.FileDescriptorSet()
    for file in file_by_name.values():
        file.CopyToProto(files.file.add())
    return base64.b64encode(files.SerializeToString()).decode()


def _collect_files(file: FileDescriptor, file_by_name: dict[str, FileDescriptor]) -> None:
    for dependency in file.dependencies:
        _collect_files(dependency, file_by_name)
    file_by_name.setdefault(file.name, file)
