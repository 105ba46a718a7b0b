"""The hash that stored state and partitions depend on."""

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import DefinitionError
from millrace.values import key_hash

ALL = 2**64 - 1


def mix(h: int) -> int:
    h ^= h >> 33
    h = h * 0xFF51AFD7ED558CCD & ALL
    h ^= h >> 29
    h = h * 0xC4CEB9FE1A85EC53 & ALL
    return h ^ (h >> 32)


def plainly(data: bytes) -> int:
    """The definition in the module's docstring, a byte string at a time."""
    h = 0x9E3779B97F4A7C15 ^ len(data)
    for at in range(0, len(data), 8):
        h = mix(h ^ int.from_bytes(data[at : at + 8].ljust(8, b"\0"), "little"))
    return mix(h)


VECTORS = {
    "": 0xC5A49D04A6BAB236,
    "a": 0x756DE3398F499AB5,
    "22/1134": 0xFE12F10349188453,
    "40/00456": 0xC1F3B8A256359004,
    "a longer key that fills several words": 0x8489EF2150EE7717,
}


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40))))
def test_columns_hash_as_defined(values: list[bytes | None]) -> None:
    hashes = key_hash.hash_binary(pa.array(values, pa.binary()))
    assert hashes.tolist() == [0x27D4EB2F165667C5 if value is None else plainly(value) for value in values]


@given(st.lists(st.text(max_size=20), min_size=1), st.integers(0, 5))
def test_text_hashes_alike_in_every_arrow_layout_and_slice(values: list[str], skip: int) -> None:
    expected = key_hash.hash_binary(pa.array(values, pa.string()).slice(skip)).tolist()
    assert key_hash.hash_binary(pa.array(values, pa.large_string()).slice(skip)).tolist() == expected
    assert key_hash.hash_binary(pa.array(values, pa.string_view()).slice(skip)).tolist() == expected
    assert (
        key_hash.hash_binary(pa.chunked_array([pa.array(values), pa.array(values)])).tolist()[
            len(values) + skip :
        ]
        == expected
    )
    assert key_hash.hash_series(pl.Series(values)).tolist()[skip:] == expected


def test_whole_numbers_hash_alike_whatever_their_width() -> None:
    wide = key_hash.hash_series(pl.Series([1, -1, 7], dtype=pl.Int64)).tolist()
    assert key_hash.hash_series(pl.Series([1, -1, 7], dtype=pl.Int8)).tolist() == wide
    assert wide == [mix(value % 2**64 ^ 0x9E3779B97F4A7C15) for value in (1, -1, 7)]


def test_zero_and_minus_zero_are_one_key() -> None:
    plus, minus = key_hash.hash_series(pl.Series([0.0, -0.0]))
    assert plus == minus


def test_nulls_are_one_key_of_every_type() -> None:
    for dtype in (pl.String, pl.Int64, pl.Float64, pl.Boolean, pl.Binary, pl.Datetime("ms")):
        assert key_hash.hash_series(pl.Series([None], dtype=dtype)).tolist() == [0x27D4EB2F165667C5]


def test_key_groups_are_spread_evenly() -> None:
    frame = pl.DataFrame(
        {"operator": [i % 50 for i in range(100_000)], "vehicle": [str(i // 50) for i in range(100_000)]}
    )
    counts = np.bincount(key_hash.key_groups(frame, ["operator", "vehicle"]), minlength=128)
    assert counts.min() > 600
    assert counts.max() < 1_000


def test_a_key_that_is_a_list_is_refused_with_the_remedy() -> None:
    with pytest.raises(DefinitionError, match="make text of it"):
        key_hash.hash_series(pl.Series([[1]]))


@pytest.mark.parametrize(("text", "expected"), VECTORS.items())
def test_vectors_never_change(text: str, expected: int) -> None:
    assert key_hash.hash_binary(pa.array([text])).tolist() == [expected]


DECIMALS = {
    "1.50": 0xE84CB3237A623550,
    "-0.01": 0xE383827C9ABC85C1,
    "0.00": 0xE6D292DC402D5E34,
    "100.00": 0x3F62907397469C24,
}


@pytest.mark.parametrize(("text", "expected"), DECIMALS.items())
def test_the_hash_of_a_decimal_never_changes(text: str, expected: int) -> None:
    [found] = key_hash.hash_series(pl.Series([Decimal(text)], dtype=pl.Decimal(10, 2))).tolist()
    assert found == expected


@given(st.decimals(-(10**9), 10**9, places=2))
def test_the_hash_of_a_decimal_is_that_of_its_shortest_text(value: Decimal) -> None:
    text = f"{value:f}".rstrip("0").rstrip(".")
    for dtype in (pl.Decimal(12, 2), pl.Decimal(38, 9)):
        found = key_hash.hash_series(pl.Series([value, None], dtype=dtype)).tolist()
        assert found == [plainly((text if text != "-0" else "0").encode()), 0x27D4EB2F165667C5]


def test_the_hash_of_a_decimal_without_places_keeps_its_zeros() -> None:
    column = pl.Series([Decimal(100), Decimal(1)], dtype=pl.Decimal(10, 0))
    assert key_hash.hash_series(column).tolist() == [plainly(b"100"), plainly(b"1")]


TEMPORALS = {
    pl.Date: (date(2024, 5, 31), 0x26611124CA5DBEBB),
    pl.Time: (time(8, 15), 0xD8B3F4D672F10FD4),
    pl.Duration("us"): (timedelta(seconds=3.5), 0x2E3E998B13E1562E),
    pl.Datetime("us"): (datetime(2024, 5, 31), 0xB2BA03463F3C6136),  # noqa: DTZ001 - a column without a zone
    pl.Enum(["red"]): ("red", 0x81B5DFFDEAF8211F),
}


@pytest.mark.parametrize(("dtype", "vector"), TEMPORALS.items(), ids=str)
def test_the_hashes_of_times_and_enums_never_change(dtype: Any, vector: tuple[Any, int]) -> None:
    value, expected = vector
    assert key_hash.hash_series(pl.Series([value], dtype=dtype)).tolist() == [expected]
