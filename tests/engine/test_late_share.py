"""The share of late rows, and the delay that would have taken them."""

import polars as pl

from millrace.engine.late_share import LateShare, lags_of_refused, lags_of_rows

REFUSED = {
    "topic": pl.String,
    "partition": pl.Int64,
    "offset": pl.Int64,
    "reason": pl.String,
    "event_time": pl.Int64,
    "_rows": pl.Int64,
}


def _refused(*rows: tuple[int | None, str, int]) -> pl.DataFrame:
    return pl.DataFrame(
        [("in", 0, offset, reason, at, 1) for offset, reason, at in rows], schema=REFUSED, orient="row"
    )


def test_a_row_lags_behind_the_greatest_clock_before_it() -> None:
    rows = pl.DataFrame({"event_time": [10, 50, 20, 60, 5]})
    lags, after = lags_of_rows(rows, pl.col("event_time"))
    assert (lags.to_list(), after) == ([0, 0, 30, 0, 55], 60)
    lags, after = lags_of_rows(rows, pl.col("event_time"), before=100)
    assert (lags.to_list(), after) == ([90, 50, 80, 40, 95], 100)


def test_rows_without_a_clock_of_their_own_lag_behind_the_one_before() -> None:
    rows = pl.DataFrame(
        {"event_time": [10, 5, 7], "mark": [None, 8, None]}, schema_overrides={"mark": pl.Int64}
    )
    assert lags_of_rows(rows, pl.col("mark"))[0].to_list() == [0, 3, 1]


def test_the_delay_covers_99_percent_of_the_rows_rounded_up_to_two_digits() -> None:
    share = LateShare()
    share.add(100, None, pl.Series([0] * 50 + [61_234] * 49 + [10**9]))
    assert share.delay() == 62_000
    assert share.delay(0.5) == 0
    assert share.delay(1.0) == 10**9


def test_nothing_is_said_below_a_few_percent() -> None:
    share = LateShare()
    share.add(100, _refused((1, "late", 0), (2, "closed", 0), (3, "late", 0)), pl.Series([10]))
    assert share.warning("job words") is None
    share.add(0, _refused((4, "late", 0)), None)
    assert share.warning("job words") == (
        "job words: 4 of 100 rows (4.0 %) were late; watermarks.bounded('10ms') would have taken 99% of them"
    )


def test_a_row_refused_by_two_operators_counts_once() -> None:
    share = LateShare()
    share.add(10, _refused((1, "late", 0), (1, "closed", 0), (None, "late", 0)), None)
    assert share.late == 2


def test_rows_in_the_future_are_told_apart_for_no_delay_takes_them() -> None:
    share = LateShare()
    share.add(10, _refused((1, "future", 10**15)), None)
    assert share.late == 0
    assert "1 of 10 rows (10.0 %) lie in the future" in str(share.warning("job words"))


def test_lags_of_refused_rows_are_measured_against_the_watermark_after_the_batch() -> None:
    refused = _refused((1, "late", 40), (2, "future", 10**9), (3, "closed", 90))
    assert lags_of_refused(refused, {("in", 0): 100}, delay=5).to_list() == [65, 15]
    assert lags_of_refused(refused, {("other", 0): 100}, delay=5).to_list() == []
