"""Event types: a protobuf message class or a dataclass, as a protobuf descriptor and as columns."""

import dataclasses
import types
import typing
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import polars as pl
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message, timestamp_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from millrace.errors import DefinitionError
from millrace.values import field_types
from millrace.values.field_types import FieldType

PACKAGE = "millrace.type"
"""The protobuf package of messages made from dataclasses; they are distinguished by class name alone."""


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
    _add_message(kind, file, {})
    used = {field.type_name for part in file.message_type for field in part.field}
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, duration_pb2):
        if module is timestamp_pb2 or f".{field_types.DURATION}" in used:
            dependency = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(dependency)
            file.dependency.append(dependency.name)
            pool.Add(dependency)
    pool.Add(file)
    return pool.FindMessageTypeByName(f"{PACKAGE}.{_message_name(kind)}")


@lru_cache(maxsize=512)
def columns(kind: type) -> pl.Schema:
    """The polars column of each field: those of a dataclass are in `values/field_types.py`; of a protobuf
    class, times are `Datetime("ms", "UTC")`, enums their names.
    """
    message_descriptor = descriptor(kind)
    _refuse_recursion(message_descriptor, ())
    return stored_columns(kind) if _is_message(kind) else _dataclass_columns(kind)


@lru_cache(maxsize=512)
def stored_columns(kind: type) -> pl.Schema:
    """The columns as protobuf has them. Those of `columns` differ where a field is stored as text, or its
    times have another unit or zone.
    """
    import ptars

    return pl.Schema(ptars.get_schema(descriptor(kind), ptars_config(kind)))


def ptars_config(kind: type | None = None) -> Any:
    """The configuration with which ptars maps messages of a type to Arrow.
    Milliseconds do not overflow before the year 292 million; microseconds, which only dataclasses have, not
    before 292,000.
    """
    import ptars

    needs_micros = kind is not None and not _is_message(kind) and _has_micros(columns(kind).values())
    unit: Any = "us" if needs_micros else "ms"
    return ptars.PtarsConfig(timestamp_unit=unit, duration_unit=unit, time_unit="ms", enum_repr="string")


def signature(kind: type) -> str:
    """The fields of a dataclass as text, to detect reordering; empty for protobuf classes,
    whose fields have numbers.
    """
    return (
        "" if _is_message(kind) else ", ".join(f"{name}: {_type_name(hint)}" for name, hint in _hints(kind))
    )


def _dataclass_columns(kind: type) -> pl.Schema:
    return pl.Schema({name: _column(hint) for name, hint in _hints(kind)})


def _column(hint: Any) -> pl.DataType:
    inner, repeated, _ = _split_hint(hint)
    single = field_types.field_type(inner)
    dtype = pl.Struct(_dataclass_columns(inner)) if single is None else single.dtype
    return pl.List(dtype) if repeated else dtype


def _has_micros(dtypes: Iterable[Any]) -> bool:
    return any(
        (isinstance(dtype, pl.Datetime | pl.Duration) and dtype.time_unit == "us")
        or (isinstance(dtype, pl.List) and _has_micros([dtype.inner]))
        or (isinstance(dtype, pl.Struct) and _has_micros(field.dtype for field in dtype.fields))
        for dtype in dtypes
    )


def _add_message(kind: type, file: descriptor_pb2.FileDescriptorProto, known_kinds: dict[str, type]) -> str:
    name = _message_name(kind)
    if known_kinds.setdefault(name, kind) is not kind:
        raise DefinitionError(
            f"two dataclasses named {name!r} are used in one event type; give them different names"
        )
    if any(known.name == name for known in file.message_type):
        return name
    new_message = file.message_type.add(name=name)
    for number, (field, hint) in enumerate(_hints(kind), start=1):
        _add_field(new_message, kind, field, number, hint, file, known_kinds)
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
    inner, repeated, optional = _split_hint(hint)
    field = new_message.field.add(name=name, number=number)
    field.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    single = _single_type(kind, name, hint, inner)
    if single is not None:
        field.type = typing.cast("Any", single.stored)
        if single.message:
            field.type_name = f".{single.message}"
        optional = optional or (single.may_be_absent and not repeated)
    else:
        field.type, field.type_name = (
            FieldDescriptorProto.TYPE_MESSAGE,
            f".{PACKAGE}.{_add_message(inner, file, known_kinds)}",
        )
    if optional and repeated:
        raise DefinitionError(
            f"{kind.__name__}.{name}: a list cannot be None, only empty; leave out `| None`"
        )
    if optional and field.type != FieldDescriptorProto.TYPE_MESSAGE:
        field.proto3_optional = True
        field.oneof_index = len(new_message.oneof_decl)
        new_message.oneof_decl.add(name=f"_{name}")


def _single_type(kind: type, name: str, hint: Any, inner: Any) -> FieldType | None:
    """The type of a single value; None for a dataclass."""
    if dataclasses.is_dataclass(inner) and isinstance(inner, type):
        return None
    remedy = f"use {field_types.ALLOWED_TYPES}"
    try:
        single = field_types.field_type(inner)
    except ValueError as error:
        raise DefinitionError(f"{kind.__name__}.{name}: {error}") from error
    if single is None:
        raise DefinitionError(f"{kind.__name__}.{name}: {hint!r} cannot be a column; {remedy}")
    return single


def _hints(kind: type) -> list[tuple[str, Any]]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return [(field.name, hints[field.name]) for field in dataclasses.fields(kind)]


def _split_hint(hint: Any) -> tuple[Any, bool, bool]:
    """The type of a value, whether there is a list of them, and whether it may be None."""
    if typing.get_origin(hint) is typing.Annotated:
        plain, *notes = typing.get_args(hint)
        inner, repeated, optional = _split_hint(plain)
        return typing.Annotated[inner, *notes], repeated, optional
    inner, optional = hint, False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        if len(rest) == 1:
            inner, optional = rest[0], True
    repeated = typing.get_origin(inner) is list
    return (typing.get_args(inner)[0] if repeated else inner), repeated, optional


def _is_message(kind: type) -> bool:
    return issubclass(kind, message.Message)


def _message_name(kind: type) -> str:
    return kind.__qualname__.rpartition(".")[2]


def _type_name(hint: Any) -> str:
    inner, repeated, _ = _split_hint(hint)
    single = field_types.field_type(inner)
    name = _message_name(inner) if single is None else single.signature
    return f"list[{name}]" if repeated else name


def _refuse_recursion(message_descriptor: Descriptor, outer: tuple[str, ...]) -> None:
    if message_descriptor.full_name in outer:
        raise DefinitionError(
            f"{outer[0]} contains {message_descriptor.full_name} in itself, so it has no fixed columns; "
            "leave that field out"
        )
    for field in message_descriptor.fields:
        if field.message_type is not None:
            _refuse_recursion(field.message_type, (*outer, message_descriptor.full_name))
