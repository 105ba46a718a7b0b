"""Columns, with enums as numbers, to canonical protobuf JSON, for types whose fields are single values: a hundred times faster than message by message."""

import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

_STAMP = "google.protobuf.Timestamp"
_QUOTED = {FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64}  # fmt: skip
_FLOATS = {FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE}
_SPECIAL = r'["\\\x00-\x1f\x7f]'


def is_flat(described: Descriptor) -> bool:
    """Whether every field is a single value: no list, map or message but a Timestamp."""
    return all(
        not field.is_repeated and (field.message_type is None or field.message_type.full_name == _STAMP)
        for field in described.fields
    )


def objects(described: Descriptor, batch: Any, *, first: str | None = None) -> pl.Series:
    """A JSON object for each row of a flat type's columns; absent and default values are left out. `first` stands before all fields."""
    columns = [
        pl.Series(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    by_name = {field.name: field for field in described.fields}
    members = [_members(by_name[column.name], column) for column in columns]
    if first is not None:
        members.insert(0, pl.Series("@", [first]).new_from_index(0, batch.num_rows))
    return _braced(members)


def events(stamps: Any, ingested: Any, details: pl.Series, panes: pl.Series | None) -> list[bytes]:
    """Lines of `Event`."""
    members = [
        _member("event_timestamp", _time(pl.Series(stamps))),
        _member("ingestion_timestamp", _time(pl.Series(ingested))),
        _member("details", details),
    ]
    if panes is not None:
        members.append(_member("pane", panes))
    return lines(_braced(members))


def lines(made: pl.Series) -> list[bytes]:
    """The bytes of each text."""
    return made.cast(pl.Binary).to_list()


def _braced(members: list[pl.Series]) -> pl.Series:
    frame = pl.DataFrame([member.rename(str(place)) for place, member in enumerate(members)])
    inside = pl.concat_str(pl.all(), separator=", ", ignore_nulls=True)
    return frame.select(pl.lit("{") + inside + pl.lit("}")).to_series()


def _member(name: str, values: pl.Series) -> pl.Series:
    return pl.select(pl.lit(f"{json.dumps(name)}: ") + values).to_series()


def _members(field: FieldDescriptor, column: pl.Series) -> pl.Series:
    values = _values(field, column)
    if not field.has_presence:
        values = pl.select(pl.when(_default(field, column)).then(None).otherwise(values)).to_series()
    return _member(field.name, values)


def _values(field: FieldDescriptor, column: pl.Series) -> pl.Series:
    if field.message_type is not None:
        return _time(column)
    if field.enum_type is not None:
        names = {value.number: json.dumps(value.name) for value in field.enum_type.values}
        return column.replace_strict(names, default=column.cast(pl.String), return_dtype=pl.String)
    if field.type in _FLOATS:
        return _float(column)
    if field.type == FieldDescriptor.TYPE_STRING:
        return _text(column)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _quoted(column.bin.encode("base64"))
    return _quoted(column.cast(pl.String)) if field.type in _QUOTED else column.cast(pl.String)


def _default(field: FieldDescriptor, column: pl.Series) -> pl.Series:
    if field.type == FieldDescriptor.TYPE_BOOL:
        return ~column
    if field.type == FieldDescriptor.TYPE_BYTES:
        return column.bin.size() == 0
    return column == ("" if field.type == FieldDescriptor.TYPE_STRING else 0)


def _quoted(values: pl.Series) -> pl.Series:
    return pl.select(pl.lit('"') + values + pl.lit('"')).to_series()


def _text(column: pl.Series) -> pl.Series:
    if not column.str.contains(_SPECIAL).any():
        return _quoted(column)
    encode: Callable[[str], str] = json.JSONEncoder(ensure_ascii=False).encode
    return pl.Series(
        [None if value is None else encode(value) for value in column.to_list()], dtype=pl.String
    )


def _float(column: pl.Series) -> pl.Series:
    values = column.cast(pl.String)
    if column.is_finite().all():
        return values
    names = {"NaN": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
    return values.replace(names)


def _time(column: pl.Series) -> pl.Series:
    stamps = column.dt.replace_time_zone(None)
    whole = stamps.dt.epoch("ms") % 1000 == 0
    return pl.select(
        pl.when(whole)
        .then(stamps.dt.strftime('"%Y-%m-%dT%H:%M:%SZ"'))
        .otherwise(stamps.dt.strftime('"%Y-%m-%dT%H:%M:%S%.3fZ"'))
    ).to_series()


def panes(described: Descriptor, column: Any) -> pl.Series | None:
    """JSON objects of the pane column; null where there is none."""
    if column.null_count == len(column):
        return None
    batch = pa.RecordBatch.from_arrays(column.flatten(), names=[field.name for field in column.type])
    made = objects(described, batch)
    return (
        made
        if not column.null_count
        else pl.select(pl.when(pl.Series(column.is_valid())).then(made)).to_series()
    )
