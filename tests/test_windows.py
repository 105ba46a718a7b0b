"""Where in event time results are computed."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace import windows
from millrace.errors import DefinitionError
from millrace.windows import Sliding


@st.composite
def slidings(draw: st.DrawFn) -> Sliding:
    size = draw(st.integers(1, 60))
    return windows.sliding(size, every=draw(st.integers(1, size)), offset=draw(st.integers(-100, 100)))


@given(slidings(), st.integers(-500, 500))
def test_an_event_is_in_exactly_the_windows_that_contain_it(window: Sliding, at: int) -> None:
    starts = (window.offset + n * window.every for n in range(-1_000, 1_000))
    assert window.assign(at) == [
        (start, start + window.size) for start in starts if start <= at < start + window.size
    ]


@given(slidings(), st.integers(-500, 500))
def test_the_first_end_is_the_smallest_window_end_above(window: Sliding, at: int) -> None:
    assert window.first_end(at) == min(
        end for _, end in (*window.assign(at), *window.assign(at + window.every)) if end > at
    )


@given(slidings())
def test_no_edge_of_a_window_divides_a_slice(window: Sliding) -> None:
    edges = {edge for at in range(-100, 100) for bounds in window.assign(at) for edge in bounds}
    assert all((edge - window.offset) % window.slice_size == 0 for edge in edges)


@given(slidings(), st.integers(10**15, 10**16))
def test_times_far_away_are_as_exact_as_near_ones(window: Sliding, at: int) -> None:
    assert all(start <= at < end for start, end in window.assign(at))
    assert len(window.assign(at)) in (window.size // window.every, window.size // window.every + 1)


def test_an_event_at_the_end_belongs_to_the_next_window() -> None:
    assert windows.fixed(10).assign(9) == [(0, 10)]
    assert windows.fixed(10).assign(10) == [(10, 20)]


def test_events_before_1970_have_windows_like_any_other() -> None:
    assert windows.fixed(10).assign(-1) == [(-10, 0)]
    assert windows.sliding(10, every=5).assign(-5) == [(-10, 0), (-5, 5)]


def test_an_offset_of_a_whole_window_is_none() -> None:
    assert windows.fixed("10s", offset="10s") == windows.fixed("10s")
    assert windows.fixed("10s", offset="-2s") == windows.fixed("10s", offset="8s")


def test_windows_read_as_they_are_written() -> None:
    assert str(windows.fixed("1m30s")) == "fixed('1m30s')"
    assert str(windows.fixed("10s", offset="3s")) == "fixed('10s', offset='3s')"
    assert str(windows.sliding("30s", every="5s")) == "sliding('30s', every='5s')"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: windows.sliding("5s", every="30s"),
            "every='30s' is longer than size='5s', so events between windows would be lost",
        ),
        (lambda: windows.fixed(0), "size=0 must be longer than zero"),
        (lambda: windows.fixed("-1s"), "size='-1s' must be longer than zero"),
        (lambda: windows.sliding("5s", every=0), "every=0 must be longer than zero"),
        (lambda: windows.fixed("ten"), "write it like"),
    ],
)
def test_impossible_windows_are_refused_by_value_and_remedy(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(DefinitionError) as refused:
        make()
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (windows.sessions("30s"), "sessions('30s')"),
        (windows.global_window(), "global_window()"),
        (windows.counted(10), "counted(10)"),
        (windows.counted(10, every=2), "counted(10, every=2)"),
        (windows.delta("speed", 5), "delta('speed', 5)"),
        (windows.delta("speed", 5, every=1), "delta('speed', 5, every=1)"),
        (windows.processing_time(windows.fixed("1m")), "processing_time(fixed('1m'))"),
        (windows.fixed("1m", offset=pl.col("phase")), "fixed('1m', offset=col(\"phase\"))"),
        (windows.punctuated(pl.col("last")), 'punctuated(col("last"))'),
    ],
    ids=str,
)
def test_every_window_reads_as_it_is_written(window: windows.WindowFn, text: str) -> None:
    assert str(window) == text


def test_sessions_that_overlap_or_touch_are_one() -> None:
    session = windows.sessions(10)
    assert session.assign(5) == [(5, 15)]
    assert session.merge([(0, 10), (10, 20), (21, 31), (25, 26), (40, 50)]) == [
        [(0, 10), (10, 20)],
        [(21, 31), (25, 26)],
        [(40, 50)],
    ]
    assert session.merge([(-30, -20), (-20, -10)]) == [[(-30, -20), (-20, -10)]]


def test_windows_that_do_not_merge_stay_by_themselves() -> None:
    assert windows.fixed(10).merge([(0, 10), (5, 15)]) == [[(0, 10)], [(5, 15)]]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: windows.sessions(0), "gap=0"),
        (lambda: windows.counted(0), "n=0"),
        (lambda: windows.counted(3, every=4), "every=4 is greater than n=3"),
        (lambda: windows.delta("x", -1), "threshold=-1"),
        (lambda: windows.punctuated("x"), "polars expression"),  # type: ignore[arg-type]  # a user's mistake
        (lambda: windows.processing_time(windows.processing_time(windows.fixed(1))), "processing_time"),
        (lambda: windows.counted(3).assign(1), "rows before it decide"),
    ],
)
def test_windows_that_are_impossible_are_refused(make: Callable[[], Any], named: str) -> None:
    with pytest.raises(DefinitionError, match=named):
        make()
