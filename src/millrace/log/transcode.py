"""Readable JSON to protobuf bytes and back, a record at a time, by the protobuf package: the canonical JSON form of messages."""

import json
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from millrace import event_types
from millrace.log import event_pb2
from millrace.topics import Topic


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
        except (json_format.Error, ValueError, TypeError, AttributeError, RecursionError) as error:
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
            kind.FromString(value), indent=None, preserving_proto_field_name=True, descriptor_pool=pool, ensure_ascii=False
        ).encode()
        for value in values
    ]


@lru_cache(maxsize=512)
def message_class(described: Descriptor) -> Any:
    """The message class of a descriptor, also of one made of a dataclass."""
    return message_factory.GetMessageClass(described)


def _envelope_parser(topic: Topic) -> Callable[[bytes], bytes]:
    pool, expected = event_types.descriptor(topic.type).file.pool, topic.type_name

    def parse(value: bytes) -> bytes:
        tree = _object(value)
        details = tree.get("details")
        url = details.get("@type") if isinstance(details, dict) else None
        if isinstance(url, str) and url.rpartition("/")[2] != expected:
            raise _OtherType(f"holds {url.rpartition('/')[2]}, not {expected}")
        event: Message = json_format.ParseDict(tree, event_pb2.Event(), ignore_unknown_fields=True, descriptor_pool=pool)
        return event.SerializeToString()

    return parse


def _plain_parser(topic: Topic) -> Callable[[bytes], bytes]:
    kind = message_class(event_types.descriptor(topic.type))

    def parse(value: bytes) -> bytes:
        made: bytes = json_format.ParseDict(_object(value), kind(), ignore_unknown_fields=True).SerializeToString()
        return made

    return parse


class _OtherType(Exception):
    """A message of another type, as its text says."""


def _object(value: bytes) -> dict[str, Any]:
    tree = json.loads(value)
    if not isinstance(tree, dict):
        raise TypeError(f"an object was expected, not {type(tree).__name__}")
    return tree
