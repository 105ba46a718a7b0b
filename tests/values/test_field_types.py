"""The columns of dataclass fields, and how topics know them."""

import enum
from dataclasses import make_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any

import polars as pl
import pytest

from millrace.errors import DefinitionError
from millrace.values import event_types, field_types


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.Enum):
    LOW = 1


COLUMNS: list[tuple[Any, pl.DataType, str]] = [
    (int, pl.Int64(), "int64"),
    (float, pl.Float64(), "double"),
    (str, pl.String(), "string"),
    (bool, pl.Boolean(), "bool"),
    (bytes, pl.Binary(), "bytes"),
    (datetime, pl.Datetime("ms", "UTC"), "Timestamp"),
    (Annotated[datetime, pl.Datetime("ms", "UTC")], pl.Datetime("ms", "UTC"), "Timestamp"),
    (Annotated[datetime, pl.Datetime("us")], pl.Datetime("us"), "datetime(us, no zone)"),
    (Annotated[datetime, pl.Datetime("us", "UTC")], pl.Datetime("us", "UTC"), "datetime(us, UTC)"),
    (date, pl.Date(), "date"),
    (time, pl.Time(), "time"),
    (timedelta, pl.Duration("us"), "duration(us)"),
    (Annotated[timedelta, pl.Duration("ms")], pl.Duration("ms"), "duration(ms)"),
    (Decimal, pl.Decimal(38, 9), "decimal(38, 9)"),
    (Annotated[Decimal, pl.Decimal(12, 2)], pl.Decimal(12, 2), "decimal(12, 2)"),
    (Annotated[int, pl.Int8], pl.Int8(), "int8"),
    (Annotated[int, pl.UInt64], pl.UInt64(), "uint64"),
    (Annotated[float, pl.Float32()], pl.Float32(), "float"),
    (Annotated[str, "a note"], pl.String(), "string"),
    (Annotated[str, pl.Categorical], pl.Categorical(), "categorical"),
    (Annotated[str, pl.Enum(["red"])], pl.Enum(["red"]), "enum"),
    (Colour, pl.Enum(["red", "blue"]), "enum"),
]


@pytest.mark.parametrize(("hint", "dtype", "signature"), COLUMNS, ids=str)
def test_a_field_has_a_column_and_is_known_by_its_type(hint: Any, dtype: pl.DataType, signature: str) -> None:
    kind = make_dataclass("Kind", [("a", hint), ("b", list[hint])])
    assert event_types.columns(kind) == pl.Schema({"a": dtype, "b": pl.List(dtype)})
    assert event_types.signature(kind) == f"a: {signature}, b: list[{signature}]"


def test_a_note_may_stand_around_an_optional_type() -> None:
    kind = make_dataclass("Kind", [("a", Annotated[Decimal | None, pl.Decimal(12, 2)])])
    assert event_types.columns(kind) == pl.Schema({"a": pl.Decimal(12, 2)})
    assert event_types.descriptor(kind).fields_by_name["a"].has_presence


@pytest.mark.parametrize("hint", [int, float, str, bool, bytes, datetime, list[int], list[datetime]])
def test_plain_columns_are_those_that_protobuf_has(hint: Any) -> None:
    kind = make_dataclass("Plain", [("a", hint)])
    assert event_types.columns(kind) == event_types.stored_columns(kind)


@pytest.mark.parametrize("dtype", [dtype for _, dtype, _ in COLUMNS], ids=str)
def test_a_column_type_leads_to_a_field_of_it(dtype: pl.DataType) -> None:
    field = field_types.field_type(field_types.python_hint(dtype))
    assert field is not None
    assert field.dtype == dtype


@pytest.mark.parametrize(
    ("hint", "problem"),
    [
        (Annotated[int, pl.String()], "String is not a type of columns of int; it belongs to str"),
        (Annotated[datetime, pl.Datetime("ns")], "counts nanoseconds, and .* use the unit 'us'"),
        (Annotated[timedelta, pl.Duration("ns")], "counts nanoseconds"),
        (Level, "the values of Level must be texts"),
        (dict[str, int], "cannot be a column; use int, float, str, bool, bytes, Decimal, datetime"),
    ],
    ids=str,
)
def test_what_cannot_be_a_column_is_refused(hint: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        event_types.descriptor(make_dataclass("Wrong", [("a", hint)]))
