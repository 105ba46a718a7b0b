"""The column type of a single value in a dataclass, and how protobuf stores it.

A plain type has one column type. `Annotated` names another one of polars:

    price: Decimal                                      Decimal(38, 9)
    price: Annotated[Decimal, pl.Decimal(12, 2)]        Decimal(12, 2)
    at: Annotated[datetime, pl.Datetime("us")]          without a time zone, in microseconds

Decimals, dates, times of day and enums are stored as text ("12.50", "2024-05-31", "08:15:00"): exact, and
readable where records are JSON. What protobuf has itself (numbers, Timestamp, Duration) is stored as that.
"""

from __future__ import annotations

import enum
import typing
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

_TEXT = FieldDescriptorProto.TYPE_STRING
_MESSAGE = FieldDescriptorProto.TYPE_MESSAGE
TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"

ALLOWED_TYPES = (
    "int, float, str, bool, bytes, Decimal, datetime, date, time, timedelta, an Enum of texts, "
    "another dataclass, list[...] of these, or `... | None`"
)


@dataclass(frozen=True)
class FieldType:
    """A single value: its column, and its protobuf type."""

    dtype: pl.DataType
    stored: int
    """A type of `FieldDescriptorProto`."""
    message: str = ""
    """The full name of the protobuf message, where it is one."""

    @property
    def may_be_absent(self) -> bool:
        """Whether the value is null where a record has none, as there is no other default."""
        return bool(self.message) or isinstance(self.dtype, pl.Date | pl.Time | pl.Enum)

    @property
    def signature(self) -> str:
        """As the stored declaration of a topic has it."""
        dtype = self.dtype
        if dtype == _DEFAULTS[datetime].dtype:
            return "Timestamp"
        if dtype in _NAMED_BY_STORAGE:
            return FieldDescriptorProto.Type.Name(typing.cast("Any", self.stored))[5:].lower()
        if isinstance(dtype, pl.Decimal):
            return f"decimal({dtype.precision}, {dtype.scale})"
        if isinstance(dtype, pl.Datetime):
            return f"datetime({dtype.time_unit}, {dtype.time_zone or 'no zone'})"
        if isinstance(dtype, pl.Duration):
            return f"duration({dtype.time_unit})"
        return type(dtype).__name__.lower()


_DEFAULTS: dict[type, FieldType] = {
    int: FieldType(pl.Int64(), FieldDescriptorProto.TYPE_INT64),
    float: FieldType(pl.Float64(), FieldDescriptorProto.TYPE_DOUBLE),
    str: FieldType(pl.String(), _TEXT),
    bool: FieldType(pl.Boolean(), FieldDescriptorProto.TYPE_BOOL),
    bytes: FieldType(pl.Binary(), FieldDescriptorProto.TYPE_BYTES),
    Decimal: FieldType(pl.Decimal(38, 9), _TEXT),
    datetime: FieldType(pl.Datetime("ms", "UTC"), _MESSAGE, TIMESTAMP),
    date: FieldType(pl.Date(), _TEXT),
    time: FieldType(pl.Time(), _TEXT),
    timedelta: FieldType(pl.Duration("us"), _MESSAGE, DURATION),
}
_INTEGERS: dict[Any, Any] = {
    **dict.fromkeys((pl.Int8, pl.Int16, pl.Int32), FieldDescriptorProto.TYPE_INT32),
    **dict.fromkeys((pl.UInt8, pl.UInt16, pl.UInt32), FieldDescriptorProto.TYPE_UINT32),
    pl.Int64: FieldDescriptorProto.TYPE_INT64,
    pl.UInt64: FieldDescriptorProto.TYPE_UINT64,
}
_NAMED_BY_STORAGE = (
    pl.Int32, pl.UInt32, pl.Int64, pl.UInt64, pl.Float32, pl.Float64, pl.String, pl.Boolean, pl.Binary,
)  # fmt: skip
_PYTHON_TYPES: dict[Any, type] = {
    **dict.fromkeys(_INTEGERS, int),
    pl.Float32: float,
    pl.Float64: float,
    pl.String: str,
    pl.Categorical: str,
    pl.Enum: str,
    pl.Boolean: bool,
    pl.Binary: bytes,
    pl.Decimal: Decimal,
    pl.Datetime: datetime,
    pl.Date: date,
    pl.Time: time,
    pl.Duration: timedelta,
}


def field_type(hint: Any) -> FieldType | None:
    """The type of a single value; None where the hint is none, such as a dataclass.
    Raises ValueError with the reason where `Annotated` names a type that the field cannot have.
    """
    if typing.get_origin(hint) is typing.Annotated:
        plain, *notes = typing.get_args(hint)
        dtypes = [note for note in notes if isinstance(note, pl.DataType) or _is_dtype_class(note)]
        if not dtypes:
            return field_type(plain)
        return _annotated_type(plain, dtypes[0]() if isinstance(dtypes[0], type) else dtypes[0])
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enum_type(hint)
    return _DEFAULTS.get(hint) if isinstance(hint, type) else None


def python_hint(dtype: pl.DataType) -> Any:
    """The type hint of a field whose column has this type; None where no field can have it."""
    plain = _PYTHON_TYPES.get(dtype.base_type())
    if plain is None or refusal(dtype):
        return None
    return plain if _DEFAULTS[plain].dtype == dtype else typing.Annotated[plain, dtype]


def _annotated_type(plain: Any, dtype: pl.DataType) -> FieldType:
    if _PYTHON_TYPES.get(dtype.base_type()) is not plain:
        expected = _PYTHON_TYPES.get(dtype.base_type())
        raise ValueError(
            f"{dtype} is not a type of columns of {getattr(plain, '__name__', plain)}"
            + (f"; it belongs to {expected.__name__}" if expected else "")
        )
    if reason := refusal(dtype):
        raise ValueError(reason)
    if dtype.is_integer():
        return FieldType(dtype, _INTEGERS[dtype.base_type()])
    if dtype == pl.Float32:
        return FieldType(dtype, FieldDescriptorProto.TYPE_FLOAT)
    default = _DEFAULTS[_PYTHON_TYPES[dtype.base_type()]]
    return FieldType(dtype, default.stored, default.message)


def refusal(dtype: pl.DataType) -> str:
    """Why no field can have this type, although one of its kind can; empty where one can."""
    if isinstance(dtype, pl.Datetime | pl.Duration) and dtype.time_unit == "ns":
        return f"{dtype} counts nanoseconds, and Python's times end at microseconds; use the unit 'us'"
    return ""


def _enum_type(kind: type[enum.Enum]) -> FieldType:
    names = [member.value for member in kind]
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"the values of {kind.__name__} must be texts, as its column holds them by name")
    return FieldType(pl.Enum(names), _TEXT)


def _is_dtype_class(note: object) -> bool:
    return isinstance(note, type) and issubclass(note, pl.DataType)
