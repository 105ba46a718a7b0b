"""Three aggregations in a row come to what a batch over all rows comes to,
whatever panes went before: early, late, taken back.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from millrace import aggregates, testing, triggers, windows
from millrace.windows import Window, WindowFn
from strategies import examples
from windowings import any_trigger


@dataclass
class Reading:
    k: str
    v: int


@dataclass
class Result:
    groups: int
    n: int


READINGS, RESULTS = mr.Topic("input.readings", Reading), mr.Topic("analytics.results", Result)
Row = tuple[int, str, int]
"""Time, key, value."""

WINDOWS = [windows.fixed(10), windows.sliding(10, every=4), windows.sessions(5), windows.global_window()]


def chain(window: WindowFn, trigger: triggers.Trigger) -> mr.Job:
    """The sum per key; how many keys have a sum with the same rest by 3;
    how many rests have that many keys.
    """
    rows = mr.read(READINGS).window(
        window, trigger=trigger, lateness="1h", accumulation="retracting", closing="if_new"
    )
    sums = rows.group_by("k").sum("v")
    rests = sums.with_columns(rest=pl.col("v") % 3).group_by("rest").aggregate(groups=aggregates.count())
    return mr.Job("chain", rests.group_by("groups").count(name="n").write(RESULTS))


def recomputed(window: WindowFn, rows: list[Row]) -> Counter[Any]:
    """The same over all rows at once, in plain Python."""
    per_key: dict[str, list[tuple[Window, int]]] = defaultdict(list)
    for at, key, value in rows:
        per_key[key] += [(one, value) for one in window.assign(at)]
    sums: dict[tuple[str, Window], int] = Counter()
    for key, parts in per_key.items():
        for group in window.merge(sorted({one for one, _ in parts})):
            whole = min(start for start, _ in group), max(end for _, end in group)
            sums[key, whole] = sum(value for one, value in parts if one in group)
    rests = Counter((one, total % 3) for (_, one), total in sums.items())
    return Counter(Counter((one, groups) for (one, _), groups in rests.items()).items())


def check(data: st.DataObject) -> None:
    window = data.draw(st.sampled_from(WINDOWS))
    finishing = data.draw(any_trigger(1))
    trigger = data.draw(
        st.sampled_from(
            [
                triggers.repeatedly(finishing), triggers.at_watermark(early=finishing),
                triggers.at_watermark(late=triggers.repeatedly(finishing)),
            ]
        )
    )  # fmt: skip
    script = testing.Script(chain(window, trigger))
    rows: list[Row] = []
    standing: Counter[Any] = Counter()

    def settle() -> None:
        for pane in script.panes():
            place = (((pane["window_start"], pane["window_end"]), pane["groups"]), pane["n"])
            standing[place] += 1 if pane["op"] == "+" else -1

    for step in range(data.draw(st.integers(1, 6))):
        batch = data.draw(
            st.lists(st.tuples(st.integers(0, 40), st.sampled_from("abcd"), st.integers(-3, 5)), max_size=4)
        )
        rows += batch
        script.events(*({"k": key, "v": value, "event_time": at} for at, key, value in batch))
        settle()
        if data.draw(st.booleans()):
            script.watermark(8 * step)
        script.clock(step * data.draw(st.integers(0, 5)) + step)
        settle()
        if data.draw(st.integers(0, 3)) == 0:
            script.restart()
    script.end()
    settle()
    assert script.late() == []
    assert +standing == recomputed(window, rows)
    assert not -standing


@given(data=st.data())
@examples(40)
def test_three_aggregations_come_to_what_a_batch_comes_to(data: st.DataObject) -> None:
    check(data)


@pytest.mark.long
@given(data=st.data())
@examples(3_000)
def test_three_thousand_chains_come_to_what_a_batch_comes_to(data: st.DataObject) -> None:
    check(data)
