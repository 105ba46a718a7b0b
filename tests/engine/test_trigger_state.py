"""Triggers as state machines, asked directly: rows come, time passes, and they fire or do not."""

import json
from typing import Any

import pytest

from millrace import triggers
from millrace.durations import END_OF_STREAM
from millrace.engine import trigger_state as machines
from millrace.engine.trigger_state import Deadline, FiringContext, NewRows
from millrace.triggers import Trigger

COUNT2, COUNT3, DELAY = triggers.after_count(2), triggers.after_count(3), triggers.after_delay(10)


class Window:
    """One window `[0, 100)` under a trigger, fed with rows and times."""

    def __init__(self, trigger: Trigger) -> None:
        self.trigger, self.state, self.clock, self.watermark = trigger, machines.initial_state(trigger), 0, -1
        self.finished = False

    def rows(self, count: int) -> bool:
        self.state = machines.add_rows(
            self.trigger, self.state, NewRows(count, self.clock, max(self.watermark, 0))
        )
        return self.look()

    def at(self, *, clock: int | None = None, watermark: int | None = None) -> bool:
        self.clock = self.clock if clock is None else clock
        self.watermark = self.watermark if watermark is None else watermark
        return self.look()

    def look(self) -> bool:
        self.state = json.loads(json.dumps(self.state))
        moment = FiringContext(
            self.watermark, self.clock, is_past_end=self.watermark >= 100, is_clock_past_end=self.clock >= 100
        )
        if self.finished or not machines.is_ready(self.trigger, self.state, moment):
            return False
        self.state, self.finished = machines.fire(self.trigger, self.state, moment)
        return True


def test_a_count_fires_once() -> None:
    window = Window(COUNT2)
    assert [window.rows(1), window.rows(1), window.finished] == [False, True, True]


def test_a_delay_counts_from_the_first_row() -> None:
    window = Window(DELAY)
    assert not window.at(clock=5)
    assert not window.rows(1)
    assert not window.at(clock=14)
    window.rows(1)
    assert window.at(clock=15)
    assert window.finished


def test_every_fires_at_multiples_of_the_clock_where_something_is_new() -> None:
    window = Window(triggers.every(10))
    assert not window.at(clock=10)
    window.rows(1)
    assert [window.at(clock=c) for c in (19, 20, 30)] == [False, True, False]
    window.rows(1)
    assert window.at(clock=45)
    assert not window.finished


def test_every_event_time_fires_at_multiples_of_the_watermark() -> None:
    window = Window(triggers.every(10, time="event"))
    window.at(watermark=12)
    window.rows(1)
    assert [window.at(watermark=w) for w in (19, 20, 30)] == [False, True, False]


def test_at_watermark_is_early_on_time_and_late() -> None:
    window = Window(triggers.at_watermark(early=COUNT2, late=COUNT3))
    assert [window.rows(1), window.rows(1), window.rows(1)] == [False, True, False]
    assert window.at(watermark=100)
    assert not window.at(watermark=101)
    assert [window.rows(2), window.rows(1), window.rows(3)] == [False, True, True]
    assert not window.finished


def test_at_watermark_without_late_panes_finishes_on_time() -> None:
    window = Window(triggers.at_watermark(late=triggers.never()))
    assert not window.rows(5)
    assert window.at(watermark=100)
    assert window.finished


def test_at_watermark_fires_for_every_batch_of_late_rows() -> None:
    window = Window(triggers.at_watermark())
    window.rows(1)
    assert window.at(watermark=100)
    assert [window.rows(1), window.at(watermark=200), window.rows(1)] == [True, False, True]


def test_repeatedly_begins_again() -> None:
    window = Window(triggers.repeatedly(triggers.any_of(COUNT3, DELAY)))
    window.rows(1)
    assert window.at(clock=10)
    assert [window.rows(2), window.rows(1)] == [False, True]
    assert not window.finished


def test_any_of_finishes_with_the_first() -> None:
    window = Window(triggers.any_of(triggers.repeatedly(COUNT2), COUNT3))
    assert [window.rows(2), window.finished] == [True, False]
    assert [window.rows(1), window.finished] == [True, True]


def test_all_of_waits_for_all_and_remembers_those_that_finished() -> None:
    window = Window(triggers.all_of(COUNT2, triggers.repeatedly(COUNT3)))
    assert [window.rows(2), window.rows(1), window.finished] == [False, True, False]
    assert [window.rows(1), window.rows(2)] == [False, True]


def test_in_order_goes_on_when_one_has_finished() -> None:
    window = Window(triggers.in_order(COUNT2, DELAY))
    assert window.rows(2)
    window.rows(1)
    assert [window.at(clock=9), window.at(clock=10), window.finished] == [False, True, True]


def test_until_fires_a_last_time() -> None:
    window = Window(triggers.repeatedly(COUNT2).until(triggers.at_window_end()))
    assert [window.rows(2), window.rows(1)] == [True, False]
    assert window.at(clock=100)
    assert window.finished


def test_the_end_and_never() -> None:
    assert Window(triggers.at_end()).at(watermark=END_OF_STREAM)
    assert not Window(triggers.at_end()).at(watermark=END_OF_STREAM - 1)
    assert not Window(triggers.never()).at(watermark=END_OF_STREAM, clock=END_OF_STREAM)


@pytest.mark.parametrize(
    ("trigger", "states", "passed", "merged"),
    [
        (COUNT3, [1, 1], False, 2),
        (DELAY, [None, 30, 20], False, 20),
        (triggers.at_watermark(early=COUNT3), [[False, 1], [False, 1]], False, [False, 2]),
        (triggers.at_watermark(), [[True, 0], [True, 0]], True, [True, 0]),
        (triggers.at_watermark(), [[True, 0]], False, [False, None]),
        (triggers.at_watermark(), [[True, 0], [False, None]], True, [False, None]),
        (triggers.in_order(COUNT2, COUNT3), [[0, 1], [1, 2]], False, [1, 2]),
        (
            triggers.all_of(COUNT2, COUNT3),
            [[[2, True], [1, False]], [[1, False], [1, False]]],
            False,
            [[1, False], [2, False]],
        ),
        (triggers.any_of(COUNT2, DELAY), [[1, 7], [0, None]], False, [1, 7]),
        (COUNT2.until(DELAY), [[1, 7], [0, 5]], False, [1, 5]),
        (triggers.at_end(), [None, None], False, None),
    ],
    ids=str,
)
def test_windows_that_become_one_have_one_state(
    trigger: Trigger, states: list[Any], passed: bool, merged: Any
) -> None:
    assert machines.merge_states(trigger, states, NewRows(1, 0, 0, passed)) == merged


def test_it_is_known_what_a_trigger_waits_for() -> None:
    trigger = triggers.at_watermark(
        early=triggers.any_of(DELAY, triggers.every(10, time="event")), late=COUNT2
    )
    state = machines.add_rows(trigger, machines.initial_state(trigger), NewRows(1, 5, 12))
    assert {*machines.deadlines(trigger, state)} == {
        Deadline(None, is_clock=False),
        Deadline(15, is_clock=True),
        Deadline(20, is_clock=False),
    }
    assert [*machines.deadlines(triggers.at_window_end(), None)] == [Deadline(None, is_clock=True)]
    assert [*machines.deadlines(triggers.at_end().until(COUNT2), [None, 0])] == [
        Deadline(END_OF_STREAM, is_clock=False)
    ]
