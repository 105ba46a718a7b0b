"""Event types: a protobuf message class or a dataclass, as a protobuf descriptor and as columns."""

import dataclasses
import types
import typing
from datetime import datetime
from functools import lru_cache
from typing import Any

import polars as pl
from google.protobuf import descriptor_pb2, descriptor_pool, message, timestamp_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from millrace.errors import DefinitionError

PACKAGE = "millrace.type"
"""The protobuf package of messages made from dataclasses; they are distinguished by class name alone."""

_SCALARS = {
    int: FieldDescriptorProto.TYPE_INT64,
    float: FieldDescriptorProto.TYPE_DOUBLE,
    str: FieldDescriptorProto.TYPE_STRING,
    bool: FieldDescriptorProto.TYPE_BOOL,
    bytes: FieldDescriptorProto.TYPE_BYTES,
}
_ALLOWED_TYPES = (
    "int, float, str, bool, bytes, datetime, another dataclass, list[...] of these, or `... | None`"
)


def is_event_type(kind: object) -> bool:
    """Whether `kind` is a class that can be the type of a topic."""
    return isinstance(kind, type) and (issubclass(kind, message.Message) or dataclasses.is_dataclass(kind))


@lru_cache(maxsize=512)
def descriptor(kind: type) -> Descriptor:
    """The protobuf descriptor of a type.
    Fields of a dataclass are numbered in order, so new fields belong at the end.
    """
    if issubclass(kind, message.Message):
        return typing.cast("Descriptor", kind.DESCRIPTOR)
    file = descriptor_pb2.FileDescriptorProto(
        name=f"millrace/type/{kind.__qualname__}.proto", package=PACKAGE, syntax="proto3"
    )
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    file.dependency.append(stamp.name)
    _add_message(kind, file, {})
    pool = descriptor_pool.DescriptorPool()
    pool.Add(stamp)
    pool.Add(file)
    return pool.FindMessageTypeByName(f"{PACKAGE}.{_message_name(kind)}")


@lru_cache(maxsize=512)
def columns(kind: type) -> pl.Schema:
    """The polars column of each field: times are `Datetime("ms", "UTC")`, enums their names."""
    import ptars

    message_descriptor = descriptor(kind)
    _refuse_recursion(message_descriptor, ())
    schema = ptars.get_schema(message_descriptor, ptars_config())
    return pl.Schema(schema)


def ptars_config() -> Any:
    """The one configuration with which ptars maps messages to Arrow.
    Milliseconds do not overflow before the year 292 million.
    """
    import ptars

    return ptars.PtarsConfig(timestamp_unit="ms", duration_unit="ms", time_unit="ms", enum_repr="string")


def signature(kind: type) -> str:
    """The fields of a dataclass as text, to detect reordering; empty for protobuf classes,
    whose fields have numbers.
    """
    if _is_message(kind):
        return ""
    return ", ".join(f"{field.name}: {_type_name(field)}" for field in descriptor(kind).fields)


def _add_message(kind: type, file: descriptor_pb2.FileDescriptorProto, known_kinds: dict[str, type]) -> str:
    name = _message_name(kind)
    if known_kinds.setdefault(name, kind) is not kind:
        raise DefinitionError(
            f"two dataclasses named {name!r} are used in one event type; give them different names"
        )
    if any(known.name == name for known in file.message_type):
        return name
    new_message = file.message_type.add(name=name)
    hints = typing.get_type_hints(kind)
    for number, field in enumerate(dataclasses.fields(kind), start=1):
        _add_field(new_message, kind, field.name, number, hints[field.name], file, known_kinds)
    return name


def _add_field(
    new_message: DescriptorProto,
    kind: type,
    name: str,
    number: int,
    hint: Any,
    file: descriptor_pb2.FileDescriptorProto,
    known_kinds: dict[str, type],
) -> None:
    inner, optional = _split_optional(hint)
    repeated = typing.get_origin(inner) is list
    if repeated:
        inner = typing.get_args(inner)[0]
    field = new_message.field.add(name=name, number=number)
    field.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    if inner in _SCALARS:
        field.type = _SCALARS[inner]
    elif inner is datetime:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, ".google.protobuf.Timestamp"
    elif dataclasses.is_dataclass(inner) and isinstance(inner, type):
        field.type, field.type_name = (
            FieldDescriptorProto.TYPE_MESSAGE,
            f".{PACKAGE}.{_add_message(inner, file, known_kinds)}",
        )
    else:
        raise DefinitionError(f"{kind.__name__}.{name}: {hint!r} cannot be a column; use {_ALLOWED_TYPES}")
    if optional and repeated:
        raise DefinitionError(
            f"{kind.__name__}.{name}: a list cannot be None, only empty; leave out `| None`"
        )
    if optional and field.type != FieldDescriptorProto.TYPE_MESSAGE:
        field.proto3_optional = True
        field.oneof_index = len(new_message.oneof_decl)
        new_message.oneof_decl.add(name=f"_{name}")


def _split_optional(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        if len(rest) == 1:
            return rest[0], True
    return hint, False


def _is_message(kind: type) -> bool:
    return issubclass(kind, message.Message)


def _message_name(kind: type) -> str:
    return kind.__qualname__.rpartition(".")[2]


def _type_name(field: FieldDescriptor) -> str:
    kind = (
        field.message_type.name
        if field.message_type is not None
        else FieldDescriptorProto.Type.Name(typing.cast("Any", field.type))[5:].lower()
    )
    return f"list[{kind}]" if field.is_repeated else kind


def _refuse_recursion(message_descriptor: Descriptor, outer: tuple[str, ...]) -> None:
    if message_descriptor.full_name in outer:
        raise DefinitionError(
            f"{outer[0]} contains {message_descriptor.full_name} in itself, so it has no fixed columns; "
            "leave that field out"
        )
    for field in message_descriptor.fields:
        if field.message_type is not None:
            _refuse_recursion(field.message_type, (*outer, message_descriptor.full_name))
