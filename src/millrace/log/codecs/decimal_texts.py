"""Decimals in JSON that others wrote as numbers, such as {"price": 12.50}: as the text that was written.

Between the record and its column there is no float, which would lose digits from the 16th on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import polars as pl


class WrittenNumber(float):
    """A number with a point or an exponent, and its digits as written."""

    text: str

    def __new__(cls, text: str) -> Self:
        """The float that the text means."""
        number = super().__new__(cls, text)
        number.text = text
        return number


def has_decimals(dtypes: Iterable[Any]) -> bool:
    """Whether there is a decimal at any depth."""
    return any(
        isinstance(dtype, pl.Decimal)
        or (isinstance(dtype, pl.List) and has_decimals([dtype.inner]))
        or (isinstance(dtype, pl.Struct) and has_decimals(field.dtype for field in dtype.fields))
        for dtype in dtypes
    )


def numbers_to_text(members: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The members of an object, with decimals as text and all other numbers as plain ones."""
    dtypes = {_camel_case(name): dtype for name, dtype in schema.items()} | dict(schema)
    return {name: _convert(value, dtypes.get(name)) for name, value in members.items()}


def _convert(value: Any, dtype: Any) -> Any:
    if isinstance(value, dict):
        fields = dtype.fields if isinstance(dtype, pl.Struct) else ()
        return numbers_to_text(value, {field.name: field.dtype for field in fields})
    if isinstance(value, list):
        inner = dtype.inner if isinstance(dtype, pl.List) else None
        return [_convert(item, inner) for item in value]
    if isinstance(dtype, pl.Decimal) and type(value) in (WrittenNumber, int):
        return value.text if isinstance(value, WrittenNumber) else str(value)
    return float(value) if isinstance(value, WrittenNumber) else value


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
