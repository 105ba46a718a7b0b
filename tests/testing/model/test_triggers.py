"""The trigger machine of the model and that of the engine,
side by side on random triggers and random histories of windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millrace.durations import END_OF_STREAM
from millrace.engine import trigger_state
from millrace.testing.model import triggers as model
from millrace.testing.model.simple_triggers import AddedRows, BatchEnd, TriggerRun
from millrace.triggers import Trigger
from strategies import examples
from windowings import any_trigger

WINDOW_END = 12


@dataclass
class BothMachines:
    """One window, followed by both machines."""

    trigger: Trigger
    run: TriggerRun
    state: Any
    has_finished: bool = False

    @classmethod
    def start(cls, trigger: Trigger) -> BothMachines:
        return cls(
            trigger, model.start(trigger, AddedRows(0, 0, 0, False)), trigger_state.initial_state(trigger)
        )

    def add_rows(self, count: int, clock: int, watermark: int) -> None:
        is_past_end = watermark >= WINDOW_END
        self.run.add_rows(AddedRows(count, clock, watermark, is_past_end))
        rows = trigger_state.NewRows(count, clock, watermark, is_past_end)
        self.state = trigger_state.add_rows(self.trigger, self.state, rows)

    def fire(self, clock: int, watermark: int) -> bool:
        """Asks both, lets both fire, and compares what they say and wait for."""
        moment = BatchEnd(watermark, clock, WINDOW_END)
        context = trigger_state.FiringContext(
            watermark, clock, is_past_end=watermark >= WINDOW_END, is_clock_past_end=clock >= WINDOW_END
        )
        is_ready = self.run.is_ready(moment)
        assert is_ready == trigger_state.is_ready(self.trigger, self.state, context)
        if is_ready:
            self.has_finished = self.run.fire(moment)
            self.state, finished = trigger_state.fire(self.trigger, self.state, context)
            assert self.has_finished == finished
        if not self.has_finished:
            assert self.alarms() == self.deadlines()
        return is_ready

    def alarms(self) -> set[tuple[int, bool]]:
        return {(alarm.at, alarm.is_clock) for alarm in self.run.alarms(WINDOW_END)}

    def deadlines(self) -> set[tuple[int, bool]]:
        return {
            (WINDOW_END if due.at is None else due.at, due.is_clock)
            for due in trigger_state.deadlines(self.trigger, self.state)
        }

    def absorb(self, other: BothMachines, watermark: int) -> None:
        is_past_end = watermark >= WINDOW_END
        self.run.absorb([other.run], AddedRows(1, 0, watermark, is_past_end))
        self.state = trigger_state.merge_states(
            self.trigger, [self.state, other.state], trigger_state.NewRows(1, 0, watermark, is_past_end)
        )


def follow(data: st.DataObject, windows: list[BothMachines]) -> int:
    """A few batches of rows and time; how often a window fired."""
    clock = watermark = fired = 0
    for _ in range(data.draw(st.integers(1, 8))):
        for window in windows:
            count = data.draw(st.integers(0, 3))
            if count:
                window.add_rows(count, clock, watermark)
        if len(windows) > 1 and data.draw(st.booleans()):
            windows[0].absorb(windows.pop(), watermark)
        clock += data.draw(st.sampled_from([0, 1, 3, 9]))
        watermark = data.draw(
            st.sampled_from([watermark, watermark + 1, watermark + 5, max(watermark, END_OF_STREAM)])
        )
        fired += sum(window.fire(clock, watermark) for window in windows)
        windows[:] = [window for window in windows if not window.has_finished]
        if not windows:
            break
    return fired


@given(data=st.data())
@examples(300)
def test_both_machines_fire_wait_and_finish_alike(data: st.DataObject) -> None:
    follow(data, [BothMachines.start(data.draw(any_trigger(1)))])


@given(data=st.data())
@examples(300)
def test_windows_that_merge_go_on_alike_in_both_machines(data: st.DataObject) -> None:
    trigger = data.draw(any_trigger(1))
    follow(data, [BothMachines.start(trigger) for _ in range(data.draw(st.integers(2, 4)))])
