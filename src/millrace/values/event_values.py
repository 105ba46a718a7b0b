"""Converts values from outside to the column types of a topic: by a msgspec type made from the topic, and
exact checks.

A value that does not fit is refused with the name of its column. Nothing is truncated, guessed or dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
import polars as pl
from google.protobuf.descriptor import FieldDescriptor

from millrace import timestamps
from millrace.values import event_types, function_results
from millrace.values.function_results import INTEGER_RANGES, MAX_FLOAT32

Check: TypeAlias = Callable[[Any], Any]
"""Converts a value that is not None to its column type; raises ValueError with the reason."""

_MAX_EXACT_FLOAT = 2**53
"""Below this, every whole number is a float.
From here on a float may differ from the number that was written.
"""

_EXACT_TYPES = (pl.Decimal, pl.Date, pl.Time, pl.Duration, pl.Datetime, pl.Enum, pl.Categorical)


class InvalidValue(Exception):
    """A value that does not fit its column; the text names the column."""


class RowDecoder:
    """Decodes rows of one event type."""

    def __init__(self, kind: type, extra: str | None = None, unit: int = 1) -> None:
        """`extra` is the column of event times, and need not be a column of the type; `unit`: how many
        milliseconds a number in it counts.
        """
        descriptor = event_types.descriptor(kind)
        self.schema = event_types.columns(kind)
        self.names = tuple(self.schema)
        fields = {field.name: field for field in descriptor.fields}
        self.required = tuple(name for name in self.names if is_required(fields[name]))
        self.checks = {name: _make_check(fields[name], dtype) for name, dtype in self.schema.items()}
        if extra is not None and isinstance(self.schema.get(extra), pl.Datetime):
            self.checks[extra] = _make_scaled_check(self.checks[extra], unit)
        self._single_checks = {
            name: _make_list_check(fields[name], dtype.inner)  # type: ignore[attr-defined]
            if fields[name].is_repeated
            else _make_inner_check(fields[name], dtype)
            for name, dtype in self.schema.items()
        }
        members = [_msgspec_member(fields[name], dtype) for name, dtype in self.schema.items()]
        if extra is not None and extra not in self.schema:
            members.append((extra, Any, msgspec.UNSET))
        self.type = msgspec.defstruct(
            descriptor.name, _rename_members(members), rename=_member_names(members), kw_only=True, gc=False
        )
        self.attribute_names = {name: f"f{index}" for index, (name, *_) in enumerate(members)}
        self._extra_checks = [
            (name, self.attribute_names[name], check)
            for name, check in self.checks.items()
            if check is not None
        ]
        self._decode = msgspec.json.Decoder(self.type).decode

    def decode(self, line: bytes) -> Any:
        """The row in a JSON object.
        Raises InvalidValue, or the error of the decoder where it is not JSON in UTF-8.
        """
        if not line.isascii():
            line.decode()  # msgspec does not check values that it skips
        try:
            return self._check_row(self._decode(line))
        except msgspec.ValidationError as error:
            raise InvalidValue(self._name_column(error, msgspec.json.decode(line))) from error

    def convert(self, values: Mapping[str, Any]) -> Any:
        """The row of Python values; raises InvalidValue."""
        try:
            return self._check_row(msgspec.convert(values, self.type))
        except msgspec.ValidationError as error:
            plain = {name: _to_python(value) for name, value in values.items()}
            if any(plain[name] is not values[name] for name in plain):
                return self.convert(plain)
            raise InvalidValue(self._name_column(error, values)) from error

    def convert_one(self, name: str, value: Any) -> Any:
        """A single value, or null, converted to the type of its column; raises InvalidValue."""
        plain, check = _to_python(value), self._single_checks[name]
        if plain is None:
            return None
        try:
            return check(plain)
        except (ValueError, OverflowError, UnicodeError) as error:
            raise InvalidValue(f"column {name!r}: {error}") from error

    def get(self, row: Any, name: str) -> Any:
        """The value of a column in a row; None where it is missing."""
        found = getattr(row, self.attribute_names[name])
        return None if found is msgspec.UNSET else found

    def is_empty(self, row: Any) -> bool:
        """Whether a row has no column of the type."""
        return all(getattr(row, self.attribute_names[name]) is msgspec.UNSET for name in self.names)

    def columns(self, rows: Sequence[Any]) -> dict[str, pl.Series]:
        """The rows as polars columns."""
        return {
            name: pl.Series(name, [self.get(row, name) for row in rows], dtype, strict=True)
            for name, dtype in self.schema.items()
        }

    def _check_row(self, row: Any) -> Any:
        for name, attribute, check in self._extra_checks:
            value = getattr(row, attribute)
            if value is None and name in self.required:
                raise InvalidValue(f"column {name!r} is null, and the field must have a value")
            if value is not None and value is not msgspec.UNSET:
                try:
                    setattr(row, attribute, check(value))
                except (ValueError, OverflowError, UnicodeError) as error:
                    raise InvalidValue(f"column {name!r}: {error}") from error
        return row

    @staticmethod
    def _name_column(error: Exception, values: Any) -> str:
        """Msgspec's message with the column in front: "Expected `int`, got `str` - at `$.n`"."""
        text, _, location = str(error).partition(" - at `$")
        path = location.rstrip("`").lstrip(".")
        if path:
            value = values.get(path) if isinstance(values, Mapping) else None
            return f"column {path!r}: {text}{'' if value is None else f', namely {_short_repr(value)}'}"
        _, missing, field = text.partition("Object missing required field ")
        return f"column {field.strip('`')!r} is missing, and the field must have a value" if missing else text


@lru_cache(maxsize=512)
def row_decoder(kind: type, extra: str | None = None, unit: int = 1) -> RowDecoder:
    """The cached decoder of an event type."""
    return RowDecoder(kind, extra, unit)


def is_required(field: FieldDescriptor) -> bool:
    """Whether a field must have a value: it is neither repeated nor optional."""
    return not field.has_presence and not field.is_repeated


def _msgspec_member(field: FieldDescriptor, dtype: Any) -> Any:
    hint = _msgspec_hint(dtype) if field.enum_type is None and not field.is_repeated else Any
    if is_required(field):
        return (field.name, hint)
    return (field.name, hint | None | msgspec.UnsetType if hint is not Any else Any, msgspec.UNSET)


def _msgspec_hint(dtype: Any) -> Any:
    """The type that msgspec checks; Any where `_make_check` does."""
    if dtype.base_type() in INTEGER_RANGES:
        return int | float
    if dtype.is_float():
        return float
    plain: dict[Any, Any] = {
        pl.String: str,
        pl.Boolean: bool,
        pl.Decimal: Decimal,
    }
    return plain.get(dtype.base_type(), Any)


def _rename_members(members: Sequence[Any]) -> list[Any]:
    """Members with names that are valid in Python, whatever the names of columns are."""
    return [(f"f{index}", *rest) for index, (_, *rest) in enumerate(members)]


def _member_names(members: Sequence[Any]) -> dict[str, str]:
    return {f"f{index}": name for index, (name, *_) in enumerate(members)}


def _make_check(field: FieldDescriptor, dtype: Any) -> Check | None:
    """The check that msgspec does not do; None where it does all."""
    if field.is_repeated:
        return _make_list_check(field, dtype.inner)
    return _make_single_check(field, dtype)


def _make_single_check(field: FieldDescriptor, dtype: Any) -> Check | None:
    if field.enum_type is not None:
        names = frozenset(value.name for value in field.enum_type.values)
        return lambda value: _check_enum(value, names)
    if isinstance(dtype, pl.Struct):
        return _make_struct_check(field, dtype)
    if dtype.base_type() in INTEGER_RANGES:
        least, greatest = INTEGER_RANGES[dtype.base_type()]
        return lambda value: _check_integer(value, least, greatest)
    if dtype == pl.Float32:
        return _check_float32
    if isinstance(dtype, _EXACT_TYPES) and dtype != pl.Datetime("ms", "UTC"):
        return lambda value: _convert(value, dtype)
    return {pl.Binary: _to_bytes, pl.Datetime: _to_datetime}.get(dtype.base_type())


def _make_scaled_check(check: Check | None, unit: int) -> Check:
    """Like `check`, for numbers that count `unit`."""
    assert check is not None, "every datetime has a check"
    return lambda value: check(timestamps.scale(value, unit))


def _make_inner_check(field: FieldDescriptor, dtype: Any) -> Check:
    """Like `_make_single_check`, for values that msgspec has not checked."""
    check = _make_single_check(field, dtype)
    if check is not None and dtype != pl.Float32:
        return check
    types = {pl.Float32: (float, int), pl.Float64: (float, int), pl.String: (str,), pl.Boolean: (bool,)}.get(
        dtype.base_type()
    )
    if types is None:
        return lambda value: value
    return lambda value: _check_type(value, types, check)


def _make_list_check(field: FieldDescriptor, inner: Any) -> Check:
    check = _make_inner_check(field, inner)
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry

    def check_items(value: Any) -> list[Any]:
        if is_map and isinstance(value, Mapping):
            value = [{"key": key, "value": item} for key, item in value.items()]
        if not isinstance(value, list | tuple):
            raise ValueError(f"{_short_repr(value)} is not a list")  # noqa: TRY004 - a wrong value, like the others
        return [_check_at(f"[{index}]", check, item) for index, item in enumerate(value)]

    return check_items


def _make_struct_check(field: FieldDescriptor, dtype: pl.Struct) -> Check:
    assert field.message_type is not None
    inner = {member.name: member for member in field.message_type.fields}
    if not set(inner) >= {member.name for member in dtype.fields}:
        return lambda value: value  # a well-known type, whose columns differ from its fields
    checks: dict[str, Check] = {}
    for member in dtype.fields:
        member_field = inner[member.name]
        member_check = (
            _make_list_check(member_field, member.dtype.inner)  # type: ignore[union-attr]
            if member_field.is_repeated
            else _make_inner_check(member_field, member.dtype)
        )
        checks[member.name] = member_check
    required = {name for name in checks if is_required(inner[name])}

    def check_members(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(f"{_short_repr(value)} is not an object")  # noqa: TRY004 - a wrong value, like the others
        missing = [name for name in required if value.get(name) is None]
        if missing:
            raise ValueError(f"{min(missing)!r} in it is missing or null, and must have a value")
        return {
            name: None if value.get(name) is None else _check_at(f".{name}", check, value[name])
            for name, check in checks.items()
        }

    return check_members


def _check_at(location: str, check: Check, value: Any) -> Any:
    if value is None:
        raise ValueError(f"{location} is null")
    try:
        return check(value)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{location}: {error}") from error


def _check_type(value: Any, types: tuple[type, ...], check: Check | None) -> Any:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise ValueError(f"{_short_repr(value)} is not of type {types[0].__name__}")
    converted: Any = float(str(value)) if types[0] is float and not isinstance(value, float) else value
    return converted if check is None else check(converted)


def _check_integer(value: Any, minimum: int, maximum: int) -> int:
    if type(value) is not int and (type(value) is not float or not value.is_integer()):
        raise ValueError(f"{_short_repr(value)} is not a whole number")
    if type(value) is float and abs(value) >= _MAX_EXACT_FLOAT:
        raise ValueError(
            f"{_short_repr(value)} is too large to be exact with a point or an exponent; "
            "write it in digits alone"
        )
    whole = int(value)
    if not minimum <= whole <= maximum:
        raise ValueError(f"{_short_repr(value)} is outside {minimum} to {maximum}")
    return whole


def _check_float32(value: float) -> float:
    if abs(value) > MAX_FLOAT32 and abs(value) != float("inf"):
        raise ValueError(f"{value!r} does not fit a float of 32 bits")
    return value


def _check_enum(value: Any, names: frozenset[str]) -> str:
    if isinstance(value, str) and (value in names or value.removeprefix("-").isdecimal()):
        number = value
    elif type(value) is int:
        number = str(value)
    else:
        raise ValueError(f"{_short_repr(value)} is none of {', '.join(sorted(names))}")
    if number not in names and not -(2**31) <= int(number) < 2**31:
        raise ValueError(f"{_short_repr(value)} is outside 32 bits")
    return number


def _convert(value: Any, dtype: Any) -> Any:
    try:
        return function_results.convert(value, dtype)
    except ValueError as error:
        raise ValueError(f"{_short_repr(value)} is not exactly a value of {dtype}: {error}") from error


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise ValueError(f"{_short_repr(value)} is neither text nor bytes")


def _to_datetime(value: Any) -> Any:
    try:
        millis = timestamps.value_to_millis(value, exact=False)
    except ValueError as error:
        raise ValueError(f"{_short_repr(value)} is not a time: {error}") from error
    if not timestamps.is_in_range(millis):
        raise ValueError(
            f"{_short_repr(value)} is outside the years 1 to 9999{timestamps.suggest_unit(millis)}"
        )
    return timestamps.to_datetime(millis)


def _to_python(value: Any) -> Any:
    """A numpy scalar as a Python value; others unchanged."""
    return (
        value.item()
        if type(value).__module__ == "numpy" and hasattr(value, "item") and not getattr(value, "shape", ())
        else value
    )


def _short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
