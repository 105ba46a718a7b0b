"""Protobuf bytes to Arrow columns and back, by ptars; a batch that it refuses is halved until the culprits are found."""

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import polars as pl
import ptars
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from millrace.errors import DefinitionError
from millrace.log.codecs import event_pb2
from millrace.log.contract import BinaryArray
from millrace.values import event_types

Batch = Any
"""A `pa.RecordBatch`."""


@dataclass(frozen=True, eq=False)
class Handler:
    """Parses and serializes messages of one type."""

    descriptor: Descriptor
    ptars: Any
    schema: Any
    """The Arrow schema of the columns."""
    kinds: list[Any]
    """The types of the columns, with nulls allowed at every depth: a struct that is null has children that are null."""
    writer: Any
    """The same as `ptars`, but with enums as numbers, since ptars drops a name that it does not know."""
    enums: tuple[int, ...]
    """The places of the columns that are enums or contain some."""

    def parse(self, values: BinaryArray) -> tuple[Batch, dict[int, str]]:
        """The columns, and why the rows at some places could not be read; those rows hold defaults."""
        batch, reason = self._attempt(values)
        if reason is None:
            return batch, {}
        culprits = dict(self._culprits(values, 0))
        good = np.ones(len(values), np.bool_)
        good[list(culprits)] = False
        batch, reason = self._attempt(pc.if_else(pa.array(good), values, pa.scalar(b"", pa.binary())))
        assert reason is None, reason
        return batch, culprits

    def serialize(self, batch: Batch) -> BinaryArray:
        """The messages; the columns must have exactly the types of `schema`, or text and lists the large form of it."""
        return self.writer.record_batch_to_array(batch)

    def _attempt(self, values: BinaryArray) -> tuple[Batch | None, str | None]:
        """The columns, or why ptars refuses."""
        try:
            return self.ptars.array_to_record_batch(values), None
        except ValueError as error:
            return None, str(error)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # ptars panics at impossible lengths
                raise
            return None, f"failed to decode Protobuf message: {error}"

    def _culprits(self, values: BinaryArray, first: int) -> list[tuple[int, str]]:
        _, reason = self._attempt(values)
        if reason is None:
            return []
        if len(values) == 1:
            return [(first, reason)]
        half = len(values) // 2
        return self._culprits(values.slice(0, half), first) + self._culprits(values.slice(half), first + half)


@lru_cache(maxsize=512)
def handler(kind: type) -> Handler:
    """The handler of an event type."""
    return _handler(event_types.descriptor(kind))


@lru_cache(maxsize=1)
def envelope() -> Handler:
    """The handler of `Event`."""
    return _handler(cast("Descriptor", event_pb2.Event.DESCRIPTOR))


def _handler(described: Descriptor) -> Handler:
    config = event_types.ptars_config()
    made = ptars.HandlerPool([described.file], config).get_for_message(described)
    enums = tuple(place for place, field in enumerate(described.fields) if _has_enums(field))
    writer = (
        ptars.HandlerPool([described.file], dataclasses.replace(config, enum_repr="int32")).get_for_message(
            described
        )
        if enums
        else made
    )
    schema = made.schema()
    return Handler(described, made, schema, [_nullable(field.type) for field in schema], writer, enums)


def to_batch(made: Handler, frame: pl.DataFrame, who: str) -> Batch:
    """The columns of a frame as the handler wants them; `who` is what errors call the topic."""
    missing = [field.name for field in made.schema if field.name not in frame.columns]
    if missing:
        raise DefinitionError(
            f"{who}: the rows lack {', '.join(missing)}; {made.descriptor.name} has {', '.join(made.schema.names)}"
        )
    table = frame.select(made.schema.names).to_arrow(compat_level=pl.CompatLevel.oldest())
    arrays = [
        _column(table.column(field.name), field, kind, who)
        for field, kind in zip(made.schema, made.kinds, strict=True)
    ]
    for place in made.enums:
        arrays[place] = _numbers(
            made.descriptor.fields_by_name[made.schema.field(place).name], arrays[place], who
        )
    return pa.RecordBatch.from_arrays(arrays, names=made.schema.names)


def _column(column: Any, field: Any, kind: Any, who: str) -> Any:
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if not field.nullable and array.null_count and not pa.types.is_nested(field.type):
        raise DefinitionError(
            f"{who}: column {field.name!r} holds nulls, but the field must have a value; declare it optional (`... | None`), or use fill_null()"
        )
    if array.type == kind or (pa.types.is_string(kind) and pa.types.is_large_string(array.type)):
        return array
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DefinitionError(
            f"{who}: column {field.name!r} is {array.type}, and does not fit {field.type}: {error}"
        ) from error


def _numbers(field: FieldDescriptor, array: Any, who: str) -> Any:
    """Enum names, however deep, as their numbers; a number in digits stands for a value that only a newer schema names."""
    if pa.types.is_list(array.type):
        return pa.ListArray.from_arrays(
            array.offsets,
            _numbers(field, array.values, who),
            mask=array.is_null() if array.null_count else None,
        )
    if pa.types.is_map(array.type):
        value = _inner(field)["value"]
        return pa.MapArray.from_arrays(
            array.offsets, array.keys, _numbers(value, array.items, who) if _has_enums(value) else array.items
        )
    if field.enum_type is None:
        inner = _inner(field)
        children = [
            _numbers(inner[child.name], array.field(child.name), who)
            if _has_enums(inner[child.name])
            else array.field(child.name)
            for child in array.type
        ]
        return pa.StructArray.from_arrays(
            children, names=[child.name for child in array.type], mask=array.is_null()
        )
    values = field.enum_type.values
    place = pc.index_in(array, pa.array([value.name for value in values], array.type))
    numbers = pa.array([value.number for value in values], pa.int32()).take(place)
    if numbers.null_count == array.null_count:
        return numbers
    unknown = array.filter(pc.and_(array.is_valid(), place.is_null()))
    try:
        return pc.coalesce(numbers, pc.if_else(place.is_null(), array, None).cast(pa.int32()))
    except pa.ArrowInvalid as error:
        names = ", ".join(value.name for value in values)
        raise DefinitionError(
            f"{who}: {field.name}={unknown[0].as_py()!r} is no {field.enum_type.name}; there are {names}"
        ) from error


def _nullable(kind: Any) -> Any:
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_nullable(True).with_type(_nullable(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_nullable(True).with_type(_nullable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _nullable(kind.item_type))
    return kind


def _inner(field: FieldDescriptor) -> dict[str, FieldDescriptor]:
    assert field.message_type is not None
    return {inner.name: inner for inner in field.message_type.fields}


def _has_enums(field: FieldDescriptor) -> bool:
    return field.enum_type is not None or (
        field.message_type is not None and any(map(_has_enums, field.message_type.fields))
    )
