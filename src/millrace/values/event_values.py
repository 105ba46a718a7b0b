"""Single values from outside as the type of a topic wants them: a msgspec type made from the topic, and exact checks.

A value that does not fit is refused with the name of its column; nothing is cut, guessed or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
import polars as pl
from google.protobuf.descriptor import FieldDescriptor

from millrace import timestamps
from millrace.values import event_types
from millrace.values.function_results import RANGES, SINGLE

Check: TypeAlias = Callable[[Any], Any]
"""Takes a value that is not None and returns it as a column wants it; ValueError says why it cannot."""

_EXACT = 2**53
"""Below this a float is every whole number; from there on it may be another one than was written."""


class Misfit(Exception):
    """A value that does not fit its column; the text names the column."""


class Shape:
    """What rows of one type look like, and how they are read."""

    def __init__(self, kind: type, extra: str | None = None) -> None:
        """`extra`: a column besides those of the type that may hold anything, such as the time."""
        described = event_types.descriptor(kind)
        self.schema = event_types.columns(kind)
        self.names = tuple(self.schema)
        fields = {field.name: field for field in described.fields}
        self.required = tuple(name for name in self.names if is_required(fields[name]))
        self.checks = {name: _check(fields[name], dtype) for name, dtype in self.schema.items()}
        self._singles = {
            name: _list_check(fields[name], dtype.inner)  # type: ignore[attr-defined]
            if fields[name].is_repeated
            else _inner_check(fields[name], dtype)
            for name, dtype in self.schema.items()
        }
        members = [_member(fields[name], dtype) for name, dtype in self.schema.items()]
        if extra is not None and extra not in self.schema:
            members.append((extra, Any, msgspec.UNSET))
        self.type = msgspec.defstruct(
            described.name, _renamed(members), rename=_names(members), kw_only=True, gc=False
        )
        self.places = {name: f"f{place}" for place, (name, *_) in enumerate(members)}
        self._exact = [
            (name, self.places[name], check) for name, check in self.checks.items() if check is not None
        ]
        self._decode = msgspec.json.Decoder(self.type).decode

    def decode(self, line: bytes) -> Any:
        """A row of a JSON object; Misfit, or the decoder's own error where it is not JSON in UTF-8."""
        if not line.isascii():
            line.decode()  # msgspec does not look into values that it passes over
        try:
            return self._checked(self._decode(line))
        except msgspec.ValidationError as error:
            raise Misfit(self._named(error, msgspec.json.decode(line))) from error

    def convert(self, values: Mapping[str, Any]) -> Any:
        """A row of Python values; Misfit where one does not fit."""
        try:
            return self._checked(msgspec.convert(values, self.type))
        except msgspec.ValidationError as error:
            plain = {name: _plain(value) for name, value in values.items()}
            if any(plain[name] is not values[name] for name in plain):
                return self.convert(plain)
            raise Misfit(self._named(error, values)) from error

    def one(self, name: str, value: Any) -> Any:
        """A single value as its column wants it, null being allowed; Misfit where it does not fit."""
        plain, check = _plain(value), self._singles[name]
        if plain is None:
            return None
        try:
            return check(plain)
        except (ValueError, OverflowError, UnicodeError) as error:
            raise Misfit(f"column {name!r}: {error}") from error

    def get(self, row: Any, name: str) -> Any:
        """A value of a row; None where it has none."""
        found = getattr(row, self.places[name])
        return None if found is msgspec.UNSET else found

    def is_empty(self, row: Any) -> bool:
        """Whether a row has none of the columns of the type."""
        return all(getattr(row, self.places[name]) is msgspec.UNSET for name in self.names)

    def columns(self, rows: Sequence[Any]) -> dict[str, pl.Series]:
        """The rows as columns."""
        return {
            name: pl.Series(name, [self.get(row, name) for row in rows], dtype, strict=True)
            for name, dtype in self.schema.items()
        }

    def _checked(self, row: Any) -> Any:
        for name, place, check in self._exact:
            value = getattr(row, place)
            if value is None and name in self.required:
                raise Misfit(f"column {name!r} is null, and the field must have a value")
            if value is not None and value is not msgspec.UNSET:
                try:
                    setattr(row, place, check(value))
                except (ValueError, OverflowError, UnicodeError) as error:
                    raise Misfit(f"column {name!r}: {error}") from error
        return row

    @staticmethod
    def _named(error: Exception, values: Any) -> str:
        """Msgspec's message with the column in front: "Expected `int`, got `str` - at `$.n`"."""
        text, _, where = str(error).partition(" - at `$")
        path = where.rstrip("`").lstrip(".")
        if path:
            found = values.get(path) if isinstance(values, Mapping) else None
            return f"column {path!r}: {text}{'' if found is None else f', namely {_shown(found)}'}"
        _, missing, field = text.partition("Object missing required field ")
        return f"column {field.strip('`')!r} is missing, and the field must have a value" if missing else text


@lru_cache(maxsize=512)
def shape(kind: type, extra: str | None = None) -> Shape:
    """The shape of an event type."""
    return Shape(kind, extra)


def is_required(field: FieldDescriptor) -> bool:
    """Whether a field must have a value: a single one that is not declared optional."""
    return not field.has_presence and not field.is_repeated


def _member(field: FieldDescriptor, dtype: Any) -> Any:
    hint = _hint(dtype) if field.enum_type is None and not field.is_repeated else Any
    if is_required(field):
        return (field.name, hint)
    return (field.name, hint | None | msgspec.UnsetType if hint is not Any else Any, msgspec.UNSET)


def _hint(dtype: Any) -> Any:
    """What msgspec checks by itself; the rest is Any, and checked by `_check`."""
    if dtype.base_type() in RANGES:
        return int | float
    if dtype.is_float():
        return float
    plain: dict[Any, Any] = {pl.String: str, pl.Boolean: bool}
    return plain.get(dtype.base_type(), Any)


def _renamed(members: Sequence[Any]) -> list[Any]:
    """Under names that Python allows, whatever fields and columns are called."""
    return [(f"f{place}", *rest) for place, (_, *rest) in enumerate(members)]


def _names(members: Sequence[Any]) -> dict[str, str]:
    return {f"f{place}": name for place, (name, *_) in enumerate(members)}


def _check(field: FieldDescriptor, dtype: Any) -> Check | None:
    """What msgspec does not check by itself; None where it checks all."""
    if field.is_repeated:
        return _list_check(field, dtype.inner)
    return _single_check(field, dtype)


def _single_check(field: FieldDescriptor, dtype: Any) -> Check | None:
    if field.enum_type is not None:
        names = frozenset(value.name for value in field.enum_type.values)
        return lambda value: _enum(value, names)
    if isinstance(dtype, pl.Struct):
        return _struct_check(field, dtype)
    if dtype.base_type() in RANGES:
        least, greatest = RANGES[dtype.base_type()]
        return lambda value: _integer(value, least, greatest)
    if dtype == pl.Float32:
        return _single
    return {pl.Binary: _bytes, pl.Datetime: _time}.get(dtype.base_type())


def _inner_check(field: FieldDescriptor, dtype: Any) -> Check:
    """Like `_single_check`, for values that msgspec has not looked at."""
    check = _single_check(field, dtype)
    if check is not None and dtype != pl.Float32:
        return check
    wanted = {pl.Float32: (float, int), pl.Float64: (float, int), pl.String: (str,), pl.Boolean: (bool,)}.get(
        dtype.base_type()
    )
    if wanted is None:
        return lambda value: value
    return lambda value: _of_kind(value, wanted, check)


def _list_check(field: FieldDescriptor, inner: Any) -> Check:
    check = _inner_check(field, inner)
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry

    def items(value: Any) -> list[Any]:
        if is_map and isinstance(value, Mapping):
            value = [{"key": key, "value": item} for key, item in value.items()]
        if not isinstance(value, list | tuple):
            raise ValueError(f"{_shown(value)} is not a list")  # noqa: TRY004 - a wrong value, like the others
        return [_placed(f"[{place}]", check, item) for place, item in enumerate(value)]

    return items


def _struct_check(field: FieldDescriptor, dtype: pl.Struct) -> Check:
    assert field.message_type is not None
    inner = {one.name: one for one in field.message_type.fields}
    if not set(inner) >= {one.name for one in dtype.fields}:
        return lambda value: value  # a well-known type with columns of its own
    checks: dict[str, Check] = {}
    for one in dtype.fields:
        of = inner[one.name]
        made = _list_check(of, one.dtype.inner) if of.is_repeated else _inner_check(of, one.dtype)  # type: ignore[union-attr]
        checks[one.name] = made
    required = {name for name in checks if is_required(inner[name])}

    def members(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(f"{_shown(value)} is not an object")  # noqa: TRY004 - a wrong value, like the others
        lacking = [name for name in required if value.get(name) is None]
        if lacking:
            raise ValueError(f"{min(lacking)!r} in it is missing or null, and must have a value")
        return {
            name: None if value.get(name) is None else _placed(f".{name}", check, value[name])
            for name, check in checks.items()
        }

    return members


def _placed(where: str, check: Check, value: Any) -> Any:
    if value is None:
        raise ValueError(f"{where} is null")
    try:
        return check(value)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where}: {error}") from error


def _of_kind(value: Any, wanted: tuple[type, ...], check: Check | None) -> Any:
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise ValueError(f"{_shown(value)} is not of type {wanted[0].__name__}")
    given: Any = float(str(value)) if wanted[0] is float and not isinstance(value, float) else value
    return given if check is None else check(given)


def _integer(value: Any, least: int, greatest: int) -> int:
    if type(value) is not int and (type(value) is not float or not value.is_integer()):
        raise ValueError(f"{_shown(value)} is not a whole number")
    if type(value) is float and abs(value) >= _EXACT:
        raise ValueError(
            f"{_shown(value)} is too large to be exact with a point or an exponent; write it in digits alone"
        )
    whole = int(value)
    if not least <= whole <= greatest:
        raise ValueError(f"{_shown(value)} is outside {least} to {greatest}")
    return whole


def _single(value: float) -> float:
    if abs(value) > SINGLE and abs(value) != float("inf"):
        raise ValueError(f"{value!r} does not fit a float of 32 bits")
    return value


def _enum(value: Any, names: frozenset[str]) -> str:
    if isinstance(value, str) and (value in names or value.removeprefix("-").isdecimal()):
        number = value
    elif type(value) is int:
        number = str(value)
    else:
        raise ValueError(f"{_shown(value)} is none of {', '.join(sorted(names))}")
    if number not in names and not -(2**31) <= int(number) < 2**31:
        raise ValueError(f"{_shown(value)} is outside 32 bits")
    return number


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise ValueError(f"{_shown(value)} is neither text nor bytes")


def _time(value: Any) -> Any:
    millis = timestamps.millis_of(value, exact=False)
    if not timestamps.in_range(millis):
        raise ValueError(f"{_shown(value)} is outside the years 1 to 9999")
    return timestamps.to_datetime(millis)


def _plain(value: Any) -> Any:
    """A scalar of numpy as Python has it; a tuple as a list."""
    return (
        value.item()
        if type(value).__module__ == "numpy" and hasattr(value, "item") and not getattr(value, "shape", ())
        else value
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
