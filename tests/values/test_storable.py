"""Values of state come back from storage as they were."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import DefinitionError
from millrace.values import storable

SINGLE = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False), st.text(),
    st.binary(), st.decimals(allow_nan=False), st.dates(), st.times(), st.timedeltas(), st.datetimes(),
    st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(ZoneInfo("Europe/Helsinki"))),
)  # fmt: skip
VALUES = st.recursive(SINGLE, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(VALUES)
def test_values_come_back_as_they_were(value: Any) -> None:
    found = storable.decode(storable.encode(storable.pack(storable.check_storable(value, "x"))))
    assert found == value
    assert type(found) is type(value)


def test_a_datetime_keeps_its_zone() -> None:
    at = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Helsinki"))
    found = storable.decode(storable.encode(storable.pack(at)))
    assert found.tzinfo == at.tzinfo
    shifted = datetime(2024, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert storable.decode(storable.encode(storable.pack(shifted))) == shifted


def test_a_row_of_plain_values_is_stored_as_it_is() -> None:
    row = (1, "a", None, 2.5)
    assert storable.pack_row(row) is row
    assert storable.pack_row((Decimal("1.50"), date(2024, 1, 1), time(1))) != row


def test_state_that_was_stored_before_is_read() -> None:
    assert storable.decode(bytes.fromhex("93a16101c3")) == ["a", 1, True]


def test_other_values_are_refused() -> None:
    with pytest.raises(DefinitionError, match="is set, which would not come back from storage as it was"):
        storable.check_storable({1}, "x")
