"""Times and columns from outside are converted exactly, or refused by name."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import polars as pl
import pytest

from millrace.errors import InputError
from millrace.timestamps import fit_column, to_millis, value_to_millis

AT = datetime(2024, 3, 1, 12, 0, 0, 250_000)  # noqa: DTZ001 - a time without a zone
MILLIS = 1_709_294_400_250


@pytest.mark.parametrize("column", [
    pl.Series("at", [MILLIS]),
    pl.Series("at", [float(MILLIS)]),
    pl.Series("at", [AT], pl.Datetime("ms")),
    pl.Series("at", [AT], pl.Datetime("us")),
    pl.Series("at", [AT], pl.Datetime("ns")),
    pl.Series("at", [AT], pl.Datetime("us")).dt.replace_time_zone("UTC"),
    pl.Series("at", [AT], pl.Datetime("us")).dt.replace_time_zone("UTC")
    .dt.convert_time_zone("Europe/Helsinki"),
    pl.Series("at", ["2024-03-01T12:00:00.250Z"]),
    pl.Series("at", ["2024-03-01T14:00:00.250+02:00"]),
])  # fmt: skip
def test_a_column_of_times_counts_by_its_type_unit_and_zone(column: pl.Series) -> None:
    assert to_millis(column).to_list() == [MILLIS]


def test_a_date_is_its_midnight_in_utc() -> None:
    assert to_millis(pl.Series("at", [date(1970, 1, 2)])).to_list() == [86_400_000]


@pytest.mark.parametrize(("column", "message"), [
    (pl.Series("at", [1.0, 1.5]), "column 'at': '1.5' in row 1 is not a whole millisecond"),
    (pl.Series("at", [float("nan")]), "column 'at': 'nan' in row 0"),
    (pl.Series("at", [1e300]), "column 'at'"),
    (
        pl.Series("at", [AT.replace(microsecond=123_456)]),
        'finer than a millisecond; round it down with .dt.truncate("1ms")',
    ),
    (pl.Series("at", ["noon"]), "column 'at': 'noon' is not a time"),
    (pl.Series("at", ["2024-03-01T12:00:00"]), "no offset from UTC"),
    (pl.Series("at", [True]), "column 'at' is Boolean, which is not a time"),
    (pl.Series("at", [timedelta(1)]), "which is not a time"),
    (pl.Series("at", [2**63], pl.UInt64), "column 'at'"),
])  # fmt: skip
def test_what_is_not_exactly_a_time_is_refused_by_name(column: pl.Series, message: str) -> None:
    with pytest.raises(InputError) as refused:
        to_millis(column)
    assert message in str(refused.value)


@pytest.mark.parametrize(("column", "dtype"), [
    (pl.Series("n", [3.7]), pl.Int64()),
    (pl.Series("n", ["3.7"]), pl.Int64()),
    (pl.Series("n", [300]), pl.Int8()),
    (pl.Series("n", [2]), pl.Boolean()),
    (pl.Series("n", [2**53 + 1]), pl.Float64()),
    (pl.Series("n", [1e300]), pl.Float32()),
    (pl.Series("n", [[1.0, 2.5]]), pl.List(pl.Int64())),
    (pl.Series("n", [{"x": 2.5}]), pl.Struct({"x": pl.Int64()})),
    (pl.Series("n", ["text"]), pl.Struct({"x": pl.Int64()})),
    (pl.Series("n", [timedelta(1)]), pl.Int64()),
    (pl.Series("n", ["maybe"]), pl.Boolean()),
])  # fmt: skip
def test_a_value_that_would_come_out_as_another_is_refused_by_name(
    column: pl.Series, dtype: pl.DataType
) -> None:
    with pytest.raises(InputError, match=r"column 'n(\.x)?'"):
        fit_column(column, dtype)


@pytest.mark.parametrize(("column", "dtype", "made"), [
    (pl.Series("n", [3.0, None]), pl.Int64(), [3, None]),
    (pl.Series("n", [1, 0]), pl.Boolean(), [True, False]),
    (pl.Series("n", [7]), pl.String(), ["7"]),
    (pl.Series("n", [0.1]), pl.Float32(), [pytest.approx(0.1)]),
    (pl.Series("n", [AT], pl.Datetime("ns")), pl.Datetime("ms", "UTC"), [AT.replace(tzinfo=UTC)]),
    (pl.Series("n", [AT], pl.Datetime("us")), pl.Int64(), [MILLIS]),
    (
        pl.Series("n", [{"x": 2.0, "more": 1}, None]), pl.Struct({"x": pl.Int64(), "y": pl.String()}),
        [{"x": 2, "y": None}, None],
    ),
])  # fmt: skip
def test_what_fits_exactly_is_converted(column: pl.Series, dtype: pl.DataType, made: list[Any]) -> None:
    fitted = fit_column(column, dtype)
    assert (fitted.dtype, fitted.to_list()) == (dtype, made)


@pytest.mark.parametrize(("value", "unit", "made"), [
    (5, 1, 5), (5, 1000, 5_000), (1.5, 1000, 1_500), ("1.5", 1000, 1_500), ("-7", 1, -7),
    (AT, 1, MILLIS), (AT.replace(tzinfo=timezone(timedelta(hours=2))), 1, MILLIS - 7_200_000),
])  # fmt: skip
def test_a_single_value_counts_by_its_type(value: Any, unit: int, made: int) -> None:
    assert value_to_millis(value, unit=unit) == made


def test_finer_than_a_millisecond_is_refused_unless_rounding_down_is_asked_for() -> None:
    with pytest.raises(ValueError, match="finer than a millisecond"):
        value_to_millis("2024-01-01T00:00:00.123456Z")
    assert value_to_millis("1970-01-01T00:00:00.123999Z", exact=False) == 123
    assert value_to_millis("1969-12-31T23:59:59.999999Z", exact=False) == -1
