"""Another trigger for windows whose state is kept in cells: what was shown is refined,
and each row reaches its window once.
"""

import random
from itertools import pairwise
from typing import Any

import pytest

from millrace import aggregates, triggers, windows
from millrace.stream import Stream
from millrace.triggers import Trigger
from runners.test_adapting import ChangedRun, read, some

TRIGGERS: dict[str, Trigger] = {
    "watermark": triggers.at_watermark(),
    "early counts": triggers.at_watermark(early=triggers.after_count(2)),
    "early times": triggers.at_watermark(
        early=triggers.every("3s", time="event"), late=triggers.after_count(2)
    ),
    "early delays": triggers.at_watermark(early=triggers.after_delay("2s"), late=triggers.every("1s")),
    "counts": triggers.repeatedly(triggers.after_count(3)),
    "times": triggers.every("4s", time="event"),
    "clock": triggers.every("5s"),
    "delays": triggers.repeatedly(triggers.after_delay("20s")),
    "all": triggers.repeatedly(triggers.all_of(triggers.after_count(2), triggers.after_delay("1s"))),
    "any": triggers.repeatedly(triggers.any_of(triggers.after_count(4), triggers.after_delay("9s"))),
    "in order": triggers.in_order(triggers.after_count(1), triggers.every("5s", time="event")),
    "until": triggers.every("3s").until(triggers.at_end()),
}
WINDOWS: dict[str, windows.WindowFn] = {
    "fixed": windows.fixed("10s"),
    "sliding": windows.sliding("10s", every="5s"),
    "sessions": windows.sessions("4s"),
}
SLICED = {"watermark"}
PAIRS = [
    (window, old, new)
    for i, old in enumerate(TRIGGERS)
    for j in (1, 5)
    for new in ([*TRIGGERS][(i + j) % len(TRIGGERS)],)
    for window in ("sessions" if SLICED & {old, new} else [*WINDOWS][(i + j) % 3],)
]
"""Each trigger is left twice and begun twice."""


def job(window: str, trigger: Trigger, **how: Any) -> Stream:
    settings = {"lateness": "1h", "closing": "if_new", **how}
    return (
        read()
        .window(WINDOWS[window], trigger=trigger, **settings)
        .group_by("who")
        .aggregate(total=aggregates.sum("n"), n=aggregates.count())
    )


def check_refined(changed_run: ChangedRun) -> None:
    """No pane stands beside another of its window: before each but the first, what stood is taken back."""
    standing: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in changed_run.panes:
        group, values = (row["who"], row["window_start"], row["window_end"]), (row["total"], row["n"])
        if row["op"] == "-":
            assert standing.pop(group) == values
        else:
            assert standing.setdefault(group, values) == values, (
                f"{group} is shown anew without its retraction"
            )
            standing[group] = values


def one_on_time(changed_run: ChangedRun) -> None:
    groups = [
        (row["who"], row["window_start"], row["window_end"])
        for row in changed_run.panes
        if row["timing"] == "on_time" and row["op"] == "+"
    ]
    assert len(groups) == len({*groups})


@pytest.mark.parametrize(("window", "old", "new"), PAIRS)
def test_after_another_trigger_each_row_is_in_its_windows_once_and_what_was_shown_is_taken_back(
    window: str, old: str, new: str
) -> None:
    chance = random.Random(f"{window} {old} {new}")
    accumulation = chance.choice(["retracting", "accumulating"])
    changed_run, same = (ChangedRun(job(window, TRIGGERS[old], accumulation=accumulation)) for _ in range(2))
    first, second = some(chance, 0, 4), some(chance, 48, 4)
    for one in (changed_run, same):
        one.feed(*first)
    changed_run.change(job(window, TRIGGERS[new], accumulation=accumulation))
    for one in (changed_run, same):
        one.feed(*second)
        one.end()
    assert changed_run.newest("total", "n") == same.newest("total", "n")
    one_on_time(changed_run)
    if accumulation == "retracting":
        check_refined(changed_run)


@pytest.mark.parametrize(("window", "old", "new"), [pair for pair in PAIRS if pair[0] != "sessions"])
def test_after_another_trigger_panes_of_what_is_new_add_up_to_all_rows(
    window: str, old: str, new: str
) -> None:
    chance = random.Random(f"{window} {old} {new}")
    changed_run = ChangedRun(job(window, TRIGGERS[old], accumulation="discarding"))
    batches = some(chance, 0, 8)
    changed_run.feed(*batches[:4])
    changed_run.change(job(window, TRIGGERS[new], accumulation="discarding"))
    changed_run.feed(*batches[4:])
    changed_run.end()
    assert not changed_run.late
    shown = sum(row["total"] or 0 for row in changed_run.panes)
    assert shown == sum(
        n * len(WINDOWS[window].assign(second * 1000)) for batch in batches for _, second, n in batch
    )


def panes(changed_run: ChangedRun, end: int) -> list[tuple[Any, ...]]:
    return [
        (row["index"], row["total"], row["timing"])
        for row in changed_run.panes
        if row["window_end"] == end * 1000
    ]


def after(old: Trigger, new: Trigger, *batches: Any, change_at: int) -> ChangedRun:
    changed_run = ChangedRun(job("fixed", old, closing="none"))
    changed_run.feed(*batches[:change_at])
    changed_run.change(job("fixed", new, closing="none"))
    changed_run.feed(*batches[change_at:])
    return changed_run


def test_a_new_count_begins_with_the_rows_that_no_pane_has_shown() -> None:
    many, few = (triggers.repeatedly(triggers.after_count(n)) for n in (2, 3))
    changed_run = after(
        many, few, [("a", 1, 1), ("a", 2, 2)], [("a", 3, 4)], [("a", 4, 8)], [("a", 5, 16)], change_at=2
    )
    assert panes(changed_run, 10) == [(0, 3, "early"), (1, 31, "early")]


def test_a_new_delay_begins_with_the_last_batch_if_rows_are_not_shown_yet() -> None:
    count, delay = triggers.repeatedly(triggers.after_count(9)), triggers.repeatedly(triggers.after_delay(1))
    changed_run = after(count, delay, [("a", 1, 1)], [("b", 2, 2)], change_at=1)
    assert panes(changed_run, 10) == [(0, 1, "early")]


def test_the_pane_on_time_comes_once_though_the_trigger_changes_before_or_after_it() -> None:
    early, other = (triggers.at_watermark(early=triggers.after_count(n)) for n in (1, 5))
    before = after(early, other, [("a", 1, 1)], [("a", 30, 2)], change_at=1)
    assert panes(before, 10) == [(0, 1, "early"), (1, 1, "on_time")]
    behind = after(early, other, [("a", 1, 1)], [("a", 30, 2)], [("a", 31, 4)], [("a", 2, 8)], change_at=2)
    assert panes(behind, 10) == [(0, 1, "early"), (1, 1, "on_time"), (2, 9, "late")]


def test_late_rows_that_no_pane_has_shown_wait_for_the_new_late_trigger() -> None:
    old, new = (
        triggers.at_watermark(early=triggers.after_count(9), late=triggers.after_count(n)) for n in (3, 2)
    )
    changed_run = after(
        old, new, [("a", 1, 1)], [("a", 30, 2)], [("a", 2, 4)], [("b", 32, 8)], [("a", 3, 16)], change_at=3
    )
    assert panes(changed_run, 10) == [(0, 1, "on_time"), (1, 21, "late")]


def test_what_an_ended_window_has_not_shown_comes_with_the_next_batch_of_at_watermark() -> None:
    counts, early = (
        triggers.repeatedly(triggers.after_count(3)),
        triggers.at_watermark(early=triggers.after_count(5)),
    )
    changed_run = after(
        counts, early, [("a", 1, 1)], [("a", 30, 2)], [("b", 31, 4)], [("b", 32, 8)], change_at=2
    )
    assert panes(changed_run, 10) == [(0, 1, "late")]


def test_a_window_that_was_closed_stays_so_and_one_that_was_on_time_closes_where_late_panes_end() -> None:
    once, on = (
        triggers.at_watermark(early=triggers.after_count(5), late=triggers.never()),
        triggers.at_watermark(early=triggers.after_count(5)),
    )
    closed = after(once, on, [("a", 1, 1)], [("a", 30, 2)], [("a", 2, 4)], change_at=2)
    assert panes(closed, 10) == [(0, 1, "on_time")]
    assert [row["_rows"] for row in closed.late] == [1]
    closes = after(on, once, [("a", 1, 1)], [("a", 30, 2)], [("b", 31, 4)], [("a", 2, 8)], change_at=2)
    assert panes(closes, 10) == [(0, 1, "on_time")]
    assert [row["_rows"] for row in closes.late] == [1]


def test_a_second_aggregation_goes_on_when_the_trigger_of_both_changes() -> None:
    def chained(trigger: Trigger) -> Stream:
        windowed = read().window(WINDOWS["fixed"], trigger=trigger, lateness="1h", closing="if_new")
        return (
            windowed.group_by("who")
            .aggregate(n=aggregates.count())
            .group_by("n")
            .aggregate(who=aggregates.max("who"), groups=aggregates.count())
        )

    for old, new in pairwise(TRIGGERS[name] for name in ("early counts", "times", "early delays", "until")):
        chance = random.Random(f"{old} {new}")
        changed_run, same = ChangedRun(chained(old)), ChangedRun(chained(old))
        first, second = some(chance, 0, 4), some(chance, 48, 4)
        for one in (changed_run, same):
            one.feed(*first)
        changed_run.change(chained(new))
        for one in (changed_run, same):
            one.feed(*second)
            one.end()
        held = [{(row["n"], row["window_end"]): row for row in one.panes} for one in (changed_run, same)]
        ends = [
            {group: (row["op"], row["who"], row["groups"]) for group, row in rows.items() if row["op"] == "+"}
            for rows in held
        ]
        assert ends[0] == ends[1], f"{old} to {new}"
