"""JSON records to protobuf bytes and back, one at a time, in the canonical form of the protobuf package."""

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import polars as pl
from google.protobuf import any_pb2, json_format, message_factory, timestamp_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from millrace.log.codecs import decimal_texts, event_pb2, json_lines
from millrace.topics import Topic
from millrace.values import event_types
from millrace.values.function_results import MAX_FLOAT32


def to_protobuf(topic: Topic, values: Iterable[bytes | None]) -> tuple[list[bytes | None], dict[int, str]]:
    """The protobuf bytes of JSON records, and errors by row; None stays None."""
    parse = _envelope_parser(topic) if topic.envelope else _plain_parser(topic)
    messages: list[bytes | None] = []
    errors: dict[int, str] = {}
    for row, value in enumerate(values):
        try:
            messages.append(None if value is None else parse(value))
        except _WrongMessageType as error:
            messages.append(None)
            errors[row] = str(error)
        except Exception as error:  # noqa: BLE001 - protobuf raises many types, even SystemError
            messages.append(None)
            errors[row] = f"not JSON of {topic.type_name}: {error}"
    return messages, errors


def to_json(topic: Topic, values: Iterable[bytes]) -> list[bytes]:
    """The JSON of protobuf records, one line each."""
    descriptor = event_types.descriptor(topic.type)
    message_type = event_pb2.Event if topic.envelope else message_class(descriptor)
    pool = descriptor.file.pool
    return [
        json_format.MessageToJson(
            message_type.FromString(value),
            indent=None,
            preserving_proto_field_name=True,
            descriptor_pool=pool,
            ensure_ascii=False,
        ).encode()
        for value in values
    ]


@lru_cache(maxsize=512)
def message_class(descriptor: Descriptor) -> Any:
    """The message class of a descriptor, also of one made of a dataclass."""
    return message_factory.GetMessageClass(descriptor)


def _envelope_parser(topic: Topic) -> Callable[[bytes], bytes]:
    descriptor, expected = event_types.descriptor(topic.type), topic.type_name
    pool, quick_parse = descriptor.file.pool, _quick_parser(descriptor)
    parse_object = _object_parser(topic.schema, "details")

    def parse(value: bytes) -> bytes:
        tree = parse_object(value)
        details = tree.get("details")
        url = details.get("@type") if isinstance(details, dict) else None
        if isinstance(url, str) and url.rpartition("/")[2] != expected:
            raise _WrongMessageType(f"holds {url.rpartition('/')[2]}, not {expected}")
        if quick_parse is not None and isinstance(details, dict) and url is not None:
            message = quick_parse({name: member for name, member in details.items() if name != "@type"})
            times = {name: member for name, member in tree.items() if name != "details"}
            if (
                message is not None
                and times.keys() <= _TIMESTAMP_FIELDS
                and all(type(time) is str for time in times.values())
            ):
                stamps: Any = {name: _parse_timestamp(time) for name, time in times.items()}
                return event_pb2.Event(
                    details=any_pb2.Any(type_url=url, value=message), **stamps
                ).SerializeToString()
        event = json_format.ParseDict(
            tree, event_pb2.Event(), ignore_unknown_fields=True, descriptor_pool=pool
        )
        return event.SerializeToString()

    return parse


def _plain_parser(topic: Topic) -> Callable[[bytes], bytes]:
    parse, parse_object = member_parser(topic), _object_parser(topic.schema)
    return lambda value: parse(parse_object(value))


def member_parser(topic: Topic) -> Callable[[dict[str, Any]], bytes]:
    """A function that makes the message of a topic's type from the members of a JSON object."""
    descriptor = event_types.descriptor(topic.type)
    message_type, quick_parse = message_class(descriptor), _quick_parser(descriptor)
    time = None if topic.time is None else descriptor.fields_by_name[topic.time]

    def parse(tree: dict[str, Any]) -> bytes:
        if time is not None and tree.get(time.name, tree.get(time.json_name)) is None:
            raise ValueError(f"it has no {time.name!r}, and so no event time")
        message: bytes | None = quick_parse(tree) if quick_parse is not None else None
        if message is None:
            message = json_format.ParseDict(
                tree, message_type(), ignore_unknown_fields=True
            ).SerializeToString()
        return message

    return parse


@lru_cache(maxsize=512)
def _quick_parser(descriptor: Descriptor) -> Callable[[dict[str, Any]], bytes | None] | None:
    """A function that makes the message in one call if every member already has the type of its field; else
    it returns None.

    Then the protobuf package converts the members and judges them, which takes several times as long.
    """
    if not json_lines.is_flat(descriptor) or any(len(choice.fields) > 1 for choice in descriptor.oneofs):
        return None
    message_type = message_class(descriptor)
    plain_types = {
        field.name: _PLAIN_TYPES[field.type] for field in descriptor.fields if field.type in _PLAIN_TYPES
    }
    timestamp_types = {
        field.name: message_class(field.message_type)
        for field in descriptor.fields
        if field.message_type is not None
    }
    singles = {field.name for field in descriptor.fields if field.type == FieldDescriptor.TYPE_FLOAT}

    def parse(members: dict[str, Any]) -> bytes | None:
        fields: dict[str, Any] = {}
        for name, member in members.items():
            if type(member) is plain_types.get(name) or (
                name in singles and type(member) is float and abs(member) <= MAX_FLOAT32
            ):
                fields[name] = member
            elif name in timestamp_types and type(member) is str:
                timestamp = _parse_timestamp(member)
                fields[name] = timestamp_types[name](
                    seconds=timestamp.seconds, nanos=timestamp.nanos
                )  # of the pool that the message is of
            elif type(member) is str and plain_types.get(name) is int and _INTEGER.fullmatch(member):
                fields[name] = int(member)
            else:
                return None
        message: bytes = message_type(**fields).SerializeToString()
        return message

    return parse


_INTEGER = re.compile(r"-?\d+", re.ASCII)
_COMMON_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z", re.ASCII)
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_TIMESTAMP_FIELDS = frozenset({"event_timestamp", "ingestion_timestamp"})
_PLAIN_TYPES = {
    FieldDescriptor.TYPE_STRING: str,
    FieldDescriptor.TYPE_BOOL: bool,
    FieldDescriptor.TYPE_DOUBLE: float,
    **dict.fromkeys(
        (
            FieldDescriptor.TYPE_INT32,
            FieldDescriptor.TYPE_INT64,
            FieldDescriptor.TYPE_UINT32,
            FieldDescriptor.TYPE_UINT64,
        ),
        int,
    ),
}
"""The Python types of JSON members that need no conversion. Protobuf checks their range."""


def _parse_timestamp(text: str) -> timestamp_pb2.Timestamp:
    if _COMMON_TIMESTAMP.fullmatch(text):
        seconds, micros = divmod((datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND, 1_000_000)
        return timestamp_pb2.Timestamp(seconds=seconds, nanos=micros * 1000)
    timestamp = timestamp_pb2.Timestamp()
    timestamp.FromJsonString(text)
    return timestamp


class _WrongMessageType(Exception):
    """The `@type` of the details names another type than the topic's."""


def _object_parser(schema: pl.Schema, member: str | None = None) -> Callable[[bytes], dict[str, Any]]:
    """A function that parses an object of these columns, or one that holds it as a member."""
    if not decimal_texts.has_decimals(schema.values()):
        return _parse_object

    def parse(value: bytes) -> dict[str, Any]:
        tree = _parse_object(value, parse_float=decimal_texts.WrittenNumber)
        found = tree if member is None else tree.get(member)
        if isinstance(found, dict):
            found |= decimal_texts.numbers_to_text(found, schema)
        return tree

    return parse


def _parse_object(value: bytes, parse_float: Callable[[str], float] | None = None) -> dict[str, Any]:
    tree = json.loads(value, parse_constant=_refuse_constant, parse_float=parse_float)
    if not isinstance(tree, dict):
        raise TypeError(f"an object was expected, not {type(tree).__name__}")
    return tree


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON; write it in quotes")
