"""Readable JSON to protobuf bytes and back, a record at a time, by the protobuf package: the canonical JSON form of messages."""

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from google.protobuf import any_pb2, json_format, message_factory, timestamp_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from millrace.log.codecs import event_pb2, json_lines
from millrace.topics import Topic
from millrace.values import event_types
from millrace.values.function_results import SINGLE


def to_binary(topic: Topic, values: Iterable[bytes | None]) -> tuple[list[bytes | None], dict[int, str]]:
    """The protobuf bytes of JSON records, and why some could not be read; None stays None."""
    parse = _envelope_parser(topic) if topic.envelope else _plain_parser(topic)
    made: list[bytes | None] = []
    bad: dict[int, str] = {}
    for place, value in enumerate(values):
        try:
            made.append(None if value is None else parse(value))
        except _OtherType as error:
            made.append(None)
            bad[place] = str(error)
        except Exception as error:  # noqa: BLE001 - protobuf raises whatever it stumbles over, a SystemError at a name with half a surrogate
            made.append(None)
            bad[place] = f"not JSON of {topic.type_name}: {error}"
    return made, bad


def to_json(topic: Topic, values: Iterable[bytes]) -> list[bytes]:
    """The JSON of protobuf records, one line each."""
    described = event_types.descriptor(topic.type)
    kind = event_pb2.Event if topic.envelope else message_class(described)
    pool = described.file.pool
    return [
        json_format.MessageToJson(
            kind.FromString(value),
            indent=None,
            preserving_proto_field_name=True,
            descriptor_pool=pool,
            ensure_ascii=False,
        ).encode()
        for value in values
    ]


@lru_cache(maxsize=512)
def message_class(described: Descriptor) -> Any:
    """The message class of a descriptor, also of one made of a dataclass."""
    return message_factory.GetMessageClass(described)


def _envelope_parser(topic: Topic) -> Callable[[bytes], bytes]:
    described, expected = event_types.descriptor(topic.type), topic.type_name
    pool, quickly = described.file.pool, _quick_parser(described)

    def parse(value: bytes) -> bytes:
        tree = _object(value)
        details = tree.get("details")
        url = details.get("@type") if isinstance(details, dict) else None
        if isinstance(url, str) and url.rpartition("/")[2] != expected:
            raise _OtherType(f"holds {url.rpartition('/')[2]}, not {expected}")
        if quickly is not None and isinstance(details, dict) and url is not None:
            made = quickly({name: member for name, member in details.items() if name != "@type"})
            times = {name: member for name, member in tree.items() if name != "details"}
            if (
                made is not None
                and times.keys() <= _TIMES
                and all(type(time) is str for time in times.values())
            ):
                stamps: Any = {name: _stamp(time) for name, time in times.items()}
                return event_pb2.Event(
                    details=any_pb2.Any(type_url=url, value=made), **stamps
                ).SerializeToString()
        event = json_format.ParseDict(
            tree, event_pb2.Event(), ignore_unknown_fields=True, descriptor_pool=pool
        )
        return event.SerializeToString()

    return parse


def _plain_parser(topic: Topic) -> Callable[[bytes], bytes]:
    parse = from_members(topic)
    return lambda value: parse(_object(value))


def from_members(topic: Topic) -> Callable[[dict[str, Any]], bytes]:
    """Makes the message of a topic's type from what JSON has for its fields."""
    described = event_types.descriptor(topic.type)
    kind, quickly = message_class(described), _quick_parser(described)
    time = None if topic.time is None else described.fields_by_name[topic.time]

    def parse(tree: dict[str, Any]) -> bytes:
        if time is not None and tree.get(time.name, tree.get(time.json_name)) is None:
            raise ValueError(f"it has no {time.name!r}, and so no event time")
        made: bytes | None = quickly(tree) if quickly is not None else None
        if made is None:
            made = json_format.ParseDict(tree, kind(), ignore_unknown_fields=True).SerializeToString()
        return made

    return parse


@lru_cache(maxsize=512)
def _quick_parser(described: Descriptor) -> Callable[[dict[str, Any]], bytes | None] | None:
    """Makes the message in one call if every member is plainly what its field wants; else None: the protobuf package shall judge."""
    if not json_lines.is_flat(described) or any(len(choice.fields) > 1 for choice in described.oneofs):
        return None
    kind = message_class(described)
    plain = {field.name: _PLAIN[field.type] for field in described.fields if field.type in _PLAIN}
    times = {
        field.name: message_class(field.message_type)
        for field in described.fields
        if field.message_type is not None
    }
    singles = {field.name for field in described.fields if field.type == FieldDescriptor.TYPE_FLOAT}

    def parse(members: dict[str, Any]) -> bytes | None:
        given: dict[str, Any] = {}
        for name, member in members.items():
            if type(member) is plain.get(name) or (
                name in singles and type(member) is float and abs(member) <= SINGLE
            ):
                given[name] = member
            elif name in times and type(member) is str:
                at = _stamp(member)
                given[name] = times[name](
                    seconds=at.seconds, nanos=at.nanos
                )  # of the pool that the message is of
            elif type(member) is str and plain.get(name) is int and _WHOLE.fullmatch(member):
                given[name] = int(member)
            else:
                return None
        made: bytes = kind(**given).SerializeToString()
        return made

    return parse


_WHOLE = re.compile(r"-?\d+", re.ASCII)
_USUAL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z", re.ASCII)
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_TIMES = frozenset({"event_timestamp", "ingestion_timestamp"})
_PLAIN = {
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
"""What JSON gives for a field when there is nothing to convert or to check but its range, which protobuf does by itself."""


def _stamp(text: str) -> timestamp_pb2.Timestamp:
    if _USUAL.fullmatch(text):
        seconds, micros = divmod((datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND, 1_000_000)
        return timestamp_pb2.Timestamp(seconds=seconds, nanos=micros * 1000)
    made = timestamp_pb2.Timestamp()
    made.FromJsonString(text)
    return made


class _OtherType(Exception):
    """A message of another type, as its text says."""


def _object(value: bytes) -> dict[str, Any]:
    tree = json.loads(value, parse_constant=_refuse)
    if not isinstance(tree, dict):
        raise TypeError(f"an object was expected, not {type(tree).__name__}")
    return tree


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON; write it in quotes")
