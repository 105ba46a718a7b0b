"""Which sessions of a key become one, on columns as for one key alone."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from millrace import windows
from millrace.engine.operators.sessions import find_group, grow_windows, hull_of, merge_windows
from millrace.windows import Window, WindowFn

GAP = windows.sessions(10)


class Touching(WindowFn):
    """A user's own windows that grow into each other as sessions do."""

    merging = True

    def assign(self, at: int) -> list[Window]:
        return GAP.assign(at)

    def merge(self, one: object) -> list[list[Window]]:
        return GAP.merge(one)  # type: ignore[arg-type]  # windows, as the caller gives them


def frame(*rows: tuple[str, int, int], numbered: bool = False) -> pl.DataFrame:
    made = pl.DataFrame(
        list(rows), schema={"key": pl.String, "_start": pl.Int64, "_end": pl.Int64}, orient="row"
    )
    return made.with_row_index("_row") if numbered else made


def test_a_row_between_two_sessions_makes_one_of_both() -> None:
    stored = frame(("a", 100, 110), ("a", 115, 125), ("b", 100, 110))
    grown = grow_windows(frame(("a", 107, 117), numbered=True), stored, ["key"], GAP)
    assert grown.rows.rows(named=True) == [{"key": "a", "_row": 0, "_start": 100, "_end": 125}]
    assert sorted(grown.moved_windows.rows()) == [("a", 100, 110, 100, 125), ("a", 115, 125, 100, 125)]


def test_a_session_that_a_row_does_not_change_is_not_moved() -> None:
    grown = grow_windows(frame(("a", 100, 110), numbered=True), frame(("a", 100, 110)), ["key"], GAP)
    assert grown.merged_from.height == 1
    assert grown.moved_windows.is_empty()


def test_sessions_whose_ends_touch_are_one_and_those_apart_are_not() -> None:
    assert find_group((110, 120), [(100, 110)], GAP) == [(100, 110), (110, 120)]
    assert find_group((111, 121), [(100, 110)], GAP) == [(111, 121)]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), min_size=1, max_size=12))
def test_sessions_merge_on_columns_as_one_key_at_a_time(rows: list[tuple[str, int]]) -> None:
    single = frame(*((key, at, at + 10) for key, at in rows))
    expected = {
        (key, *one, *hull_of(group))
        for key in "ab"
        for group in GAP.merge(sorted({(at, at + 10) for other, at in rows if other == key}))
        for one in group
    }
    for window in (GAP, Touching()):
        merged = merge_windows(single, ["key"], window).select(
            "key", "_start", "_end", "_merged_start", "_merged_end"
        )
        assert {*merged.rows()} == expected
