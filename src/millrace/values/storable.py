"""Values that state may hold: those that come back from storage as they were.

They are stored as msgpack. What it does not have (decimals, dates, times) is text with a number that tells
its type; msgspec alone would write it as text without one, which comes back as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from millrace.errors import DefinitionError

T = TypeVar("T")
_PLAIN_TYPES = (bool, int, float, str, bytes, Decimal, date, time, timedelta)
STORABLE_TYPES = "text, numbers, booleans, bytes, decimals, dates, times, None, and lists and dicts of them"


def check_storable(value: T, name: str) -> T:
    """A copy of a value that comes back from storage as it was; refuses others."""
    if value is None or isinstance(
        value, bool | int | float | str | bytes | Decimal | date | time | timedelta
    ):
        return value
    if isinstance(value, list):
        return [check_storable(item, name) for item in value]  # type: ignore[return-value]  # as above
    if isinstance(value, dict):
        return {check_storable(key, name): check_storable(item, name) for key, item in value.items()}  # type: ignore[return-value]  # as above
    raise DefinitionError(
        f"{name}: {value!r} is {type(value).__name__}, which would not come back from storage as it was; "
        f"keep {STORABLE_TYPES}"
    )


def copy_storable(value: T) -> T:
    """The same value, of which nothing that can be changed is shared."""
    if isinstance(value, list):
        return [copy_storable(item) for item in value]  # type: ignore[return-value]  # a list as it was
    if isinstance(value, dict):
        return {key: copy_storable(item) for key, item in value.items()}  # type: ignore[return-value]  # as above
    return value


def encode(document: Any) -> bytes:
    """The bytes of a document of storable values and tuples of them."""
    return msgspec.msgpack.encode(document)


def decode(data: bytes) -> Any:
    """What `encode` wrote, with lists for tuples."""
    return msgspec.msgpack.decode(data, ext_hook=_unpack)


def pack(value: Any) -> Any:
    """A value as `encode` takes it; most are taken as they are."""
    kind = type(value)
    if kind in _PACKERS:
        return _PACKERS[kind](value)
    if kind is list or kind is tuple:
        return [pack(item) for item in value]
    return {pack(key): pack(item) for key, item in value.items()} if kind is dict else value


def pack_row(row: Sequence[Any]) -> Sequence[Any]:
    """The values of a row: the row itself where all are taken as they are."""
    return row if are_plain(row) else [pack(value) for value in row]


def are_plain(values: Iterable[Any]) -> bool:
    """Whether `encode` takes all values as they are."""
    return _TO_PACK.isdisjoint(map(type, values))


def _extension(code: int, text: str) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, text.encode())


def _pack_datetime(at: datetime) -> Any:
    """Without a zone as text. msgpack has times in UTC; another zone is named beside it."""
    if at.tzinfo is None:
        return _extension(5, at.isoformat())
    if at.tzinfo is UTC or not isinstance(at.tzinfo, ZoneInfo):
        return at
    return _extension(6, f"{at.astimezone(UTC).isoformat()} {at.tzinfo.key}")


def _unpack_zoned(text: str) -> datetime:
    moment, _, zone = text.partition(" ")
    return datetime.fromisoformat(moment).astimezone(ZoneInfo(zone))


_PACKERS: dict[type, Callable[[Any], Any]] = {
    Decimal: lambda value: _extension(1, str(value)),
    date: lambda value: _extension(2, value.isoformat()),
    time: lambda value: _extension(3, value.isoformat()),
    timedelta: lambda value: _extension(4, str(value // timedelta(microseconds=1))),
    datetime: _pack_datetime,
}
_UNPACKERS: dict[int, Callable[[str], Any]] = {
    1: Decimal,
    2: date.fromisoformat,
    3: time.fromisoformat,
    4: lambda text: timedelta(microseconds=int(text)),
    5: datetime.fromisoformat,
    6: _unpack_zoned,
}
_TO_PACK = frozenset({*_PACKERS, list, tuple, dict})


def _unpack(code: int, data: memoryview) -> Any:
    return _UNPACKERS[code](bytes(data).decode())
