"""Avro that others wrote, to protobuf bytes: a record at a time, by fastavro (extra `kafka`)."""

import base64
import io
import json
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from millrace.errors import ComponentMissing, DefinitionError
from millrace.log.codecs import json_records
from millrace.topics import Topic
from millrace.values import event_types

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE = {
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_SINT64,
    FieldDescriptor.TYPE_INT32,
}


def to_binary(topic: Topic, values: Iterable[bytes | None]) -> tuple[list[bytes | None], dict[int, str]]:
    """The protobuf bytes of Avro records, and why some could not be read; None stays None."""
    read, parse, described = (
        _reader(topic),
        json_records.from_members(topic),
        event_types.descriptor(topic.type),
    )
    made: list[bytes | None] = []
    bad: dict[int, str] = {}
    for place, value in enumerate(values):
        try:
            made.append(None if value is None else parse(_members(read(value), described)))
        except Exception as error:  # noqa: BLE001 - fastavro raises whatever it stumbles over
            made.append(None)
            bad[place] = f"not Avro of {topic.type_name}: {str(error) or type(error).__name__}"
    return made, bad


def _reader(topic: Topic) -> Callable[[bytes], dict[str, Any]]:
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise ComponentMissing(
            f"topic {topic.name!r} holds Avro, which needs fastavro; install it with: pip install 'millrace[kafka]'"
        ) from error
    schema = _schema(topic.avro or "", topic.name)

    def read(value: bytes) -> dict[str, Any]:
        source = io.BytesIO(value)
        found = fastavro.schemaless_reader(source, schema, None)
        if not isinstance(found, dict) or source.read(1):
            raise ValueError("bytes are left over")
        return found

    return read


@lru_cache(maxsize=64)
def _schema(text: str, name: str) -> Any:
    import fastavro

    try:
        return fastavro.parse_schema(json.loads(text))
    except Exception as error:
        raise DefinitionError(f"topic {name!r}: avro={text!r} is no schema of a record: {error}") from error


def _members(record: dict[str, Any], described: Descriptor) -> dict[str, Any]:
    """What JSON would have for the fields that our type knows."""
    fields = described.fields_by_name
    return {
        name: _plain(value, fields[name])
        for name, value in record.items()
        if value is not None and name in fields
    }


def _plain(value: Any, field: FieldDescriptor) -> Any:
    if isinstance(value, dict) and field.message_type is not None:
        return _members(value, field.message_type)
    if isinstance(value, list):
        return [_plain(each, field) for each in value]
    if isinstance(value, datetime):
        at = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (
            (at - _EPOCH) // timedelta(milliseconds=1)
            if field.type in _WHOLE
            else at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        )
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return float(value)
    return str(value) if isinstance(value, date) else value
