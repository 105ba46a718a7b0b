"""A trigger of a user's own at work, in the model: its calls, one after the other.

The specification of when which method is called; the calls themselves are the user's code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millrace.testing.model.simple_triggers import AddedRows, Alarm, BatchEnd, TriggerRun
from millrace.triggers import TriggerFn
from millrace.triggers.own import (
    CONTINUE,
    OwnTriggerState,
    add_elements,
    call_timers,
    merge_parts,
    note_fired,
    start_own,
)


@dataclass
class OwnTriggerRun(TriggerRun):
    """`on_element` for each row in order; then the timers that are due; then the answers decide."""

    trigger: TriggerFn
    kept: OwnTriggerState

    @classmethod
    def start(cls, trigger: TriggerFn, moment: AddedRows | BatchEnd) -> OwnTriggerRun:
        """Before rows are added, or when another trigger fires, which starts this one."""
        times = (moment.known_watermark, moment.clock)
        return cls(trigger, start_own(trigger, moment.window, times, time_passes=moment.time_passes))

    def add_rows(self, rows: AddedRows) -> None:
        """The rows in order, as of the watermark before the batch."""
        add_elements(self.trigger, self.kept, rows.rows, rows.window, (rows.known_watermark, rows.clock))

    def absorb(self, others: Sequence[TriggerRun], rows: AddedRows) -> None:
        """What is kept begins anew, with what the trigger makes of its parts."""
        parts = [self.kept, *(other.kept for other in others if isinstance(other, OwnTriggerRun))]
        self.kept = merge_parts(self.trigger, parts, rows.window, (rows.known_watermark, rows.clock))

    def pass_time(self, moment: BatchEnd) -> None:
        """Calls the timers that are due."""
        call_timers(self.trigger, self.kept, moment.window, (moment.known_watermark, moment.clock))

    def is_ready(self, moment: BatchEnd) -> bool:  # noqa: ARG002 - time has been passed on to the trigger
        """Whether it has answered so since it fired last."""
        return self.kept.result is not CONTINUE

    def fire(self, moment: BatchEnd) -> bool:
        """Whether it answered that it has finished."""
        return note_fired(self.trigger, self.kept, moment.window, (moment.known_watermark, moment.clock))

    def alarms(self, window_end: int) -> Iterator[Alarm]:  # noqa: ARG002 - timers know their times
        """Its timers."""
        yield from (Alarm(at, is_clock=False) for at in self.kept.timers)
        yield from (Alarm(at, is_clock=True) for at in self.kept.clock_timers)
