"""Protobuf bytes to Arrow columns and back, by ptars. A refused batch is halved to find the bad records."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import numpy as np
import polars as pl
import ptars
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from millrace.errors import DefinitionError
from millrace.log.codecs import event_pb2, projection, stored_text
from millrace.log.contract import BinaryArray
from millrace.values import event_types

ArrowBatch = Any
"""A `pa.RecordBatch`."""


@dataclass(frozen=True, eq=False)
class Handler:
    """Parses and serializes messages of one type."""

    descriptor: Descriptor
    ptars: Any
    schema: Any
    """The Arrow schema of the columns."""
    column_types: list[Any]
    """The types of the columns, nullable at every depth: a struct that is null has children that are null."""
    writer: Any
    """The same as `ptars`, but with enums as numbers, since ptars drops a name that it does not know."""
    enum_columns: tuple[int, ...]
    """The positions of columns that are enums or contain some."""
    columns: Mapping[str, pl.DataType] = field(default_factory=dict)
    """The columns that users see in another type than protobuf stores; see `stored_text`."""

    def parse(self, values: BinaryArray) -> tuple[ArrowBatch, dict[int, str]]:
        """The columns, and the errors of rows that could not be read, by row; those rows hold defaults."""
        batch, reason = self._try_parse(values)
        if reason is None:
            return self.parse_texts(batch, {})
        errors = dict(self._find_undecodable(values, 0))
        is_good = np.ones(len(values), np.bool_)
        is_good[list(errors)] = False
        batch, reason = self._try_parse(pc.if_else(pa.array(is_good), values, pa.scalar(b"", pa.binary())))
        assert reason is None, reason
        return self.parse_texts(batch, errors)

    def parse_all(self, values: BinaryArray) -> ArrowBatch | None:
        """The columns as protobuf has them; None if any row could not be read."""
        return self._try_parse(values)[0]

    def serialize(self, batch: ArrowBatch) -> BinaryArray:
        """The messages; columns must have the types of `schema`, or the large form of text and lists."""
        return self.writer.record_batch_to_array(batch)

    def parse_texts(self, batch: ArrowBatch, errors: dict[int, str]) -> tuple[ArrowBatch, dict[int, str]]:
        """The columns as users see them, and with `errors` those of rows whose text is not a value."""
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name, dtype in self.columns.items():
            stored = arrays[name]
            arrays[name], rows = stored_text.parse_text(stored, dtype)
            for row in rows.tolist():
                errors.setdefault(row, f"{name}={stored[row].as_py()!r} is not exactly a value of {dtype}")
        return pa.RecordBatch.from_arrays(
            [*arrays.values()], names=[*arrays]
        ) if self.columns else batch, errors

    def _try_parse(self, values: BinaryArray) -> tuple[ArrowBatch | None, str | None]:
        """The columns, or the error of ptars."""
        try:
            return self.ptars.array_to_record_batch(values), None
        except ValueError as error:
            return None, str(error)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # ptars panics at impossible lengths
                raise
            return None, f"failed to decode Protobuf message: {error}"

    def _find_undecodable(self, values: BinaryArray, first_row: int) -> list[tuple[int, str]]:
        _, reason = self._try_parse(values)
        if reason is None:
            return []
        if len(values) == 1:
            return [(first_row, reason)]
        half = len(values) // 2
        return self._find_undecodable(values.slice(0, half), first_row) + self._find_undecodable(
            values.slice(half), first_row + half
        )


@lru_cache(maxsize=512)
def event_handler(event_type: type, names: frozenset[str] | None = None) -> Handler:
    """The handler of an event type. With `names` it parses those fields, and perhaps a few more."""
    stored, seen = event_types.stored_columns(event_type), event_types.columns(event_type)
    descriptor = projection.fields_of(event_type, names)
    return dataclasses.replace(
        _make_handler(descriptor, event_types.ptars_config(event_type)),
        columns={
            field.name: seen[field.name]
            for field in descriptor.fields
            if seen[field.name] != stored[field.name]
        },
    )


@lru_cache(maxsize=512)
def sealed_handler(event_type: type, names: frozenset[str] | None, panes: bool) -> Handler | None:
    """Parses `Event` with the fields of an event type in it; None where their times have other units."""
    config = event_types.ptars_config(event_type)
    if config != event_types.ptars_config():
        return None
    return _make_handler(projection.envelope_of(event_type, names, panes), config)


@lru_cache(maxsize=1)
def envelope_handler() -> Handler:
    """The handler of `Event`."""
    return _make_handler(cast("Descriptor", event_pb2.Event.DESCRIPTOR), event_types.ptars_config())


def _make_handler(descriptor: Descriptor, config: Any) -> Handler:
    parser = ptars.HandlerPool([descriptor.file], config).get_for_message(descriptor)
    enums = tuple(position for position, field in enumerate(descriptor.fields) if _has_enums(field))
    writer = (
        ptars.HandlerPool([descriptor.file], dataclasses.replace(config, enum_repr="int32")).get_for_message(
            descriptor
        )
        if enums
        else parser
    )
    schema = parser.schema()
    return Handler(descriptor, parser, schema, [_nullable(field.type) for field in schema], writer, enums)


def to_batch(handler: Handler, frame: pl.DataFrame, label: str) -> ArrowBatch:
    """The columns of a frame with the types of the handler; errors begin with `label`."""
    missing = [field.name for field in handler.schema if field.name not in frame.columns]
    if missing:
        raise DefinitionError(
            f"{label}: the rows lack {', '.join(missing)}; {handler.descriptor.name} has "
            f"{', '.join(handler.schema.names)}"
        )
    frame = frame.select(handler.schema.names)
    if handler.columns:
        frame = frame.with_columns(
            _to_stored(frame[name], dtype, handler.schema.field(name), label)
            for name, dtype in handler.columns.items()
        )
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    arrays = [
        _fit_column(table.column(field.name), field, arrow_type, label)
        for field, arrow_type in zip(handler.schema, handler.column_types, strict=True)
    ]
    for position in handler.enum_columns:
        arrays[position] = _enum_numbers(
            handler.descriptor.fields_by_name[handler.schema.field(position).name], arrays[position], label
        )
    return pa.RecordBatch.from_arrays(arrays, names=handler.schema.names)


def _to_stored(column: pl.Series, dtype: pl.DataType, field: Any, label: str) -> pl.Series:
    stored = pl.Series(values=pa.array([], field.type)).dtype
    try:
        return stored_text.to_stored(column, dtype, stored)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pl.exceptions.PolarsError) as error:
        raise DefinitionError(
            f"{label}: column {field.name!r} is {column.dtype}, which does not fit {dtype}: "
            f"{str(error).splitlines()[0]}; round or cast it before it is written"
        ) from error


def _fit_column(column: Any, field: Any, arrow_type: Any, label: str) -> Any:
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if not field.nullable and array.null_count and not pa.types.is_nested(field.type):
        raise DefinitionError(
            f"{label}: column {field.name!r} holds nulls, but the field must have a value; declare it "
            "optional (`... | None`), or use fill_null()"
        )
    if array.type == arrow_type or (pa.types.is_string(arrow_type) and pa.types.is_large_string(array.type)):
        return array
    try:
        return array.cast(arrow_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DefinitionError(
            f"{label}: column {field.name!r} is {array.type}, which does not fit {field.type}: {error}"
        ) from error


def _enum_numbers(field: FieldDescriptor, array: Any, label: str) -> Any:
    """Enum names, at any depth, as their numbers; digits stand for a value that only a newer schema names."""
    if pa.types.is_list(array.type):
        return pa.ListArray.from_arrays(
            array.offsets,
            _enum_numbers(field, array.values, label),
            mask=array.is_null() if array.null_count else None,
        )
    if pa.types.is_map(array.type):
        value = _inner_fields(field)["value"]
        return pa.MapArray.from_arrays(
            array.offsets,
            array.keys,
            _enum_numbers(value, array.items, label) if _has_enums(value) else array.items,
        )
    if field.enum_type is None:
        inner = _inner_fields(field)
        children = [
            _enum_numbers(inner[child.name], array.field(child.name), label)
            if _has_enums(inner[child.name])
            else array.field(child.name)
            for child in array.type
        ]
        return pa.StructArray.from_arrays(
            children, names=[child.name for child in array.type], mask=array.is_null()
        )
    values = field.enum_type.values
    index = pc.index_in(array, pa.array([value.name for value in values], array.type))
    numbers = pa.array([value.number for value in values], pa.int32()).take(index)
    if numbers.null_count == array.null_count:
        return numbers
    unknown = array.filter(pc.and_(array.is_valid(), index.is_null()))
    try:
        return pc.coalesce(numbers, pc.if_else(index.is_null(), array, None).cast(pa.int32()))
    except pa.ArrowInvalid as error:
        names = ", ".join(value.name for value in values)
        raise DefinitionError(
            f"{label}: {field.name}={unknown[0].as_py()!r} is not a value of "
            f"{field.enum_type.name}; it has {names}"
        ) from error


def _nullable(arrow_type: Any) -> Any:
    if pa.types.is_list(arrow_type):
        return pa.list_(
            arrow_type.value_field.with_nullable(True).with_type(_nullable(arrow_type.value_type))
        )
    if pa.types.is_struct(arrow_type):
        return pa.struct([field.with_nullable(True).with_type(_nullable(field.type)) for field in arrow_type])
    if pa.types.is_map(arrow_type):
        return pa.map_(arrow_type.key_type, _nullable(arrow_type.item_type))
    return arrow_type


def _inner_fields(field: FieldDescriptor) -> dict[str, FieldDescriptor]:
    assert field.message_type is not None
    return {inner.name: inner for inner in field.message_type.fields}


def _has_enums(field: FieldDescriptor) -> bool:
    return field.enum_type is not None or (
        field.message_type is not None and any(map(_has_enums, field.message_type.fields))
    )
