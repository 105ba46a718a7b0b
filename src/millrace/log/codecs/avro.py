"""Reads Avro that others wrote: to protobuf bytes, a record at a time, by fastavro (extra `kafka`)."""

import base64
import io
import json
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from millrace.errors import ComponentMissing, DefinitionError
from millrace.log.codecs import json_records
from millrace.topics import Topic
from millrace.values import event_types

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER_TYPES = {
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_SINT64,
    FieldDescriptor.TYPE_INT32,
}


def to_protobuf(topic: Topic, values: Iterable[bytes | None]) -> tuple[list[bytes | None], dict[int, str]]:
    """The protobuf bytes of Avro records, and why some could not be read; None stays None."""
    read, parse, descriptor = (
        _make_reader(topic),
        json_records.member_parser(topic),
        event_types.descriptor(topic.type),
    )
    messages: list[bytes | None] = []
    errors: dict[int, str] = {}
    for row, value in enumerate(values):
        try:
            messages.append(None if value is None else parse(_to_json_members(read(value), descriptor)))
        except Exception as error:  # noqa: BLE001 - fastavro raises whatever it stumbles over
            messages.append(None)
            errors[row] = f"not Avro of {topic.type_name}: {str(error) or type(error).__name__}"
    return messages, errors


def _make_reader(topic: Topic) -> Callable[[bytes], dict[str, Any]]:
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise ComponentMissing(
            f"topic {topic.name!r} holds Avro, which needs fastavro; install it with: pip install "
            "'millrace-streams[kafka]'"
        ) from error
    schema = _parse_schema(topic.avro or "", topic.name)

    def read(value: bytes) -> dict[str, Any]:
        stream = io.BytesIO(value)
        record = fastavro.schemaless_reader(stream, schema, None)
        if not isinstance(record, dict) or stream.read(1):
            raise ValueError("bytes are left over")
        return record

    return read


@lru_cache(maxsize=64)
def _parse_schema(text: str, name: str) -> Any:
    import fastavro

    try:
        return fastavro.parse_schema(json.loads(text))
    except Exception as error:
        raise DefinitionError(
            f"topic {name!r}: avro={text!r} is not a schema of a record: {error}"
        ) from error


def _to_json_members(record: dict[str, Any], descriptor: Descriptor) -> dict[str, Any]:
    """The record as its JSON would be, with the fields that the topic's type has."""
    fields = descriptor.fields_by_name
    return {
        name: _to_json_value(value, fields[name])
        for name, value in record.items()
        if value is not None and name in fields
    }


def _to_json_value(value: Any, field: FieldDescriptor) -> Any:
    if isinstance(value, dict) and field.message_type is not None:
        return _to_json_members(value, field.message_type)
    if isinstance(value, list):
        return [_to_json_value(item, field) for item in value]
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (
            (moment - _EPOCH) // timedelta(milliseconds=1)
            if field.type in _INTEGER_TYPES
            else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
        )
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return f"{value:f}" if field.type == FieldDescriptor.TYPE_STRING else float(value)
    return value.isoformat() if isinstance(value, date | time) else value
