"""Text with units outside, whole milliseconds inside."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError


@pytest.mark.parametrize(
    ("duration", "meant"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("1d", 86_400_000),
        ("1.5s", 1_500),
        (" 1h 30m ", 5_400_000),
        (250, 250),
        (timedelta(seconds=2), 2_000),
        ("0s", 0),
        ("-1m30s", -90_000),
    ],
)
def test_a_duration_is_whole_milliseconds(duration: Duration, meant: int) -> None:
    assert durations.parse_millis(duration) == meant


@given(st.integers(-(10**13), 10**13))
def test_text_reads_back(value: int) -> None:
    assert durations.parse_millis(durations.format_millis(value)) == value


@pytest.mark.parametrize("duration", ["", "ten", "5", "5 parsecs", "s", "5s!", "--5s", "-", True, 1.5, None])
def test_what_is_no_duration_is_refused_by_name_and_value(duration: Any) -> None:
    with pytest.raises(DefinitionError, match="lateness="):
        durations.parse_millis(duration, name="lateness")


def test_negative_and_empty_durations_are_refused_where_they_mean_nothing() -> None:
    with pytest.raises(DefinitionError, match="size=0 must be longer than zero"):
        durations.parse_positive(0, name="size")
    with pytest.raises(DefinitionError, match="lateness=-1 must not be negative"):
        durations.parse_non_negative(-1, name="lateness")
