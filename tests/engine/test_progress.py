"""Clocks, idleness and the low watermark, as timelines."""

from millrace.durations import END_OF_STREAM
from millrace.engine.progress import PartitionReport, Progress


def batch(
    progress: Progress,
    now: int,
    *,
    delay: int = 2,
    idle: int | None = None,
    end: bool = False,
    **clocks: int | str | None,
) -> Progress:
    """One batch: `a=7` brings rows up to clock 7, `a=None` brings nothing,
    `a="?"` brings rows that say nothing of time.
    """
    reports = {
        name: PartitionReport(clock if isinstance(clock, int) else None, clock is not None, delay, idle)
        for name, clock in clocks.items()
    }
    return progress.wake(reports, now).advance(reports, now, at_end=end)


def test_the_low_watermark_is_the_least_of_all_partitions() -> None:
    assert batch(Progress(), 0, a=10, b=7).low_watermark == 5


def test_it_stands_still_until_every_partition_has_been_seen() -> None:
    progress = batch(Progress(), 0, a=10, b=None)
    assert progress.low_watermark is None
    assert batch(progress, 1, a=None, b=20).low_watermark == 8


def test_it_never_goes_back() -> None:
    progress = batch(Progress(), 0, a=10, b=10)
    assert batch(progress, 1, a=4, b=3).low_watermark == 8
    assert batch(progress, 1, a=4, b=3, c=1).low_watermark == 8


def test_it_stays_where_a_partition_joins_that_has_brought_nothing() -> None:
    progress = batch(Progress(), 0, a=10)
    assert batch(progress, 1, a=12, b=None).low_watermark == 8


def test_it_stays_where_the_delay_grows_and_no_row_comes() -> None:
    progress = batch(Progress(), 0, a=10)
    assert batch(progress, 1, delay=5, a=None).low_watermark == 8


def test_rows_that_say_nothing_of_time_do_not_move_it() -> None:
    progress = batch(Progress(), 0, a=10)
    assert batch(progress, 1, a="?").low_watermark == 8


def test_a_partition_that_is_idle_no_longer_holds_the_others_back() -> None:
    progress = batch(Progress(), 100, idle=50, a=10, b=10)
    progress = batch(progress, 149, idle=50, a=40, b=None)
    assert progress.low_watermark == 8
    assert batch(progress, 150, idle=50, a=40, b=None).low_watermark == 38


def test_a_partition_never_seen_becomes_idle_too() -> None:
    progress = batch(Progress(), 100, idle=50, a=10, b=None)
    assert progress.low_watermark is None
    assert batch(progress, 150, idle=50, a=11, b=None).low_watermark == 9


def test_when_all_are_idle_the_furthest_counts() -> None:
    progress = batch(Progress(), 100, idle=50, a=10, b=30)
    assert batch(progress, 150, idle=50, a=None, b=None).low_watermark == 28


def test_a_partition_that_wakes_up_is_not_behind_the_low_watermark() -> None:
    progress = batch(Progress(), 100, idle=50, a=10, b=10)
    progress = batch(progress, 150, idle=50, a=90, b=None)
    assert progress.low_watermark == 88
    progress = batch(progress, 151, idle=50, a=None, b=20)
    assert progress.partitions["b"].watermark(2) == 88
    assert progress.low_watermark == 88
    progress = batch(progress, 152, idle=50, a=200, b=None)
    assert progress.low_watermark == 88, "awake again, it holds the others back again"


def test_without_an_idle_time_nobody_falls_idle() -> None:
    progress = batch(Progress(), 0, a=10, b=10)
    assert batch(progress, 10**9, a=50, b=None).low_watermark == 8


def test_at_the_end_nothing_more_is_expected() -> None:
    assert batch(Progress(), 0, end=True, a=10, b=None).low_watermark == END_OF_STREAM


def test_it_survives_being_stored() -> None:
    progress = batch(batch(Progress(), 100, idle=5, a=10, b=None), 110, idle=5, a=20, b=None)
    assert Progress.from_json(progress.to_json()) == progress
    assert Progress.from_json(None) == Progress()
