"""When a window fires, in the model: each trigger of a window remembers the rows that came to it.

A `TriggerRun` is one trigger at work in one window. The window tells it of new rows, asks once per batch
whether it is ready, and then lets it fire. A trigger that has finished is started anew by `repeatedly`, is
followed by the next one in `in_order`, and otherwise closes its window. Windows that merge merge their runs.

This is the specification of `engine/trigger_state.py` and shares no code with it. The engine stores the next
time that a trigger waits for; here a run keeps the first row that it has seen, and every answer is computed
from that row anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millrace import triggers
from millrace.testing.model.own_triggers import OwnTriggerRun
from millrace.testing.model.simple_triggers import AddedRows, Alarm, BatchEnd, TriggerRun, start_simple
from millrace.triggers import Trigger


@dataclass
class RepeatedlyRun(TriggerRun):
    """`repeatedly`: the inner trigger, started anew whenever it has finished."""

    trigger: Trigger
    inner: TriggerRun

    def add_rows(self, rows: AddedRows) -> None:
        """The inner trigger sees them."""
        self.inner.add_rows(rows)

    def pass_time(self, moment: BatchEnd) -> None:
        """The inner trigger sees it."""
        self.inner.pass_time(moment)

    def is_ready(self, moment: BatchEnd) -> bool:
        """Whether the inner trigger is ready."""
        return self.inner.is_ready(moment)

    def fire(self, moment: BatchEnd) -> bool:
        """It never finishes."""
        if self.inner.fire(moment):
            self.inner = start(self.trigger, moment)
        return False

    def absorb(self, others: Sequence[TriggerRun], rows: AddedRows) -> None:
        """Merges the inner triggers."""
        self.inner.absorb([other.inner for other in others if isinstance(other, RepeatedlyRun)], rows)

    def alarms(self, window_end: int) -> Iterator[Alarm]:
        """Those of the inner trigger."""
        yield from self.inner.alarms(window_end)


@dataclass
class AtWatermarkRun(TriggerRun):
    """`at_watermark`: `early` until the watermark passes the window's end, a pane on time, then `late`."""

    trigger: triggers.AtWatermark
    phase: TriggerRun
    """The run of `early` before the pane on time, of `late` after it."""
    is_settled: bool = False
    """Whether the pane on time has been shown."""

    def add_rows(self, rows: AddedRows) -> None:
        """The run of this phase sees them."""
        self.phase.add_rows(rows)

    def pass_time(self, moment: BatchEnd) -> None:
        """The run of this phase sees it."""
        self.phase.pass_time(moment)

    def is_ready(self, moment: BatchEnd) -> bool:
        """Ready at the window's end, and before and after it whenever the phase is."""
        return (not self.is_settled and moment.is_past_end) or self.phase.is_ready(moment)

    def fire(self, moment: BatchEnd) -> bool:
        """It finishes with the pane on time if there are no late ones."""
        if self.is_settled or not moment.is_past_end:
            self.phase.fire(moment)
            return False
        self.is_settled, self.phase = True, start_late(self.trigger, moment)
        return isinstance(self.trigger.late, triggers.Never)

    def absorb(self, others: Sequence[TriggerRun], rows: AddedRows) -> None:
        """A window that ends after the watermark awaits its pane on time, whatever its parts have shown."""
        runs = [self, *(other for other in others if isinstance(other, AtWatermarkRun))]
        is_settled = rows.is_past_end and all(run.is_settled for run in runs)
        phases = [run.phase for run in runs if run.is_settled == is_settled]
        self.is_settled = is_settled
        self.phase = phases[0] if phases else start_early(self.trigger, rows)
        self.phase.absorb(phases[1:], rows)

    def alarms(self, window_end: int) -> Iterator[Alarm]:
        """The window's end, and what the phase waits for."""
        if not self.is_settled:
            yield Alarm(window_end, is_clock=False)
        yield from self.phase.alarms(window_end)


@dataclass
class SeveralRun(TriggerRun):
    """Triggers side by side: each sees every row."""

    parts: list[TriggerRun]

    def add_rows(self, rows: AddedRows) -> None:
        """Every part sees them."""
        for part in self.parts:
            part.add_rows(rows)

    def pass_time(self, moment: BatchEnd) -> None:
        """Every part sees it."""
        for part in self.parts:
            part.pass_time(moment)

    def absorb(self, others: Sequence[TriggerRun], rows: AddedRows) -> None:
        """Merges each part with its counterparts."""
        for place, part in enumerate(self.parts):
            counterparts = [other.parts[place] for other in others if isinstance(other, SeveralRun)]
            part.absorb(counterparts, rows)

    def alarms(self, window_end: int) -> Iterator[Alarm]:
        """Those of all parts."""
        for part in self.parts:
            yield from part.alarms(window_end)


class AnyOfRun(SeveralRun):
    """`any_of`: fires when one of them does, and finishes when one of those has."""

    def is_ready(self, moment: BatchEnd) -> bool:
        """Whether one part is ready."""
        return any(part.is_ready(moment) for part in self.parts)

    def fire(self, moment: BatchEnd) -> bool:
        """Fires every part that is ready; the others go on."""
        finished = [part.fire(moment) for part in self.parts if part.is_ready(moment)]
        return any(finished)


class UntilRun(SeveralRun):
    """`a.until(b)`: fires as `a` does, and a last time when `b` does."""

    def is_ready(self, moment: BatchEnd) -> bool:
        """Whether one part is ready."""
        return any(part.is_ready(moment) for part in self.parts)

    def fire(self, moment: BatchEnd) -> bool:
        """Finishes when `b` fires, or when `a` has finished."""
        main, last = self.parts
        return last.is_ready(moment) or main.fire(moment)


@dataclass
class AllOfRun(TriggerRun):
    """`all_of`: fires when all are ready; one that has finished stays ready."""

    parts: list[TriggerRun | None]
    """None for a part that has finished."""

    def running(self) -> list[TriggerRun]:
        """The parts that have not finished."""
        return [part for part in self.parts if part is not None]

    def add_rows(self, rows: AddedRows) -> None:
        """The parts that have not finished see them."""
        for part in self.running():
            part.add_rows(rows)

    def pass_time(self, moment: BatchEnd) -> None:
        """The parts that have not finished see it."""
        for part in self.running():
            part.pass_time(moment)

    def is_ready(self, moment: BatchEnd) -> bool:
        """Whether all parts are ready."""
        return all(part.is_ready(moment) for part in self.running())

    def fire(self, moment: BatchEnd) -> bool:
        """Fires all parts; finishes when every part has finished."""
        self.parts = [None if part is None or part.fire(moment) else part for part in self.parts]
        return not self.running()

    def absorb(self, others: Sequence[TriggerRun], rows: AddedRows) -> None:
        """A part has finished in the merged window only if it has in all of them."""
        runs = [self, *(other for other in others if isinstance(other, AllOfRun))]
        for place in range(len(self.parts)):
            counterparts = [part for run in runs if (part := run.parts[place]) is not None]
            self.parts[place] = counterparts[0] if counterparts else None
            for part in counterparts[:1]:
                part.absorb(counterparts[1:], rows)

    def alarms(self, window_end: int) -> Iterator[Alarm]:
        """Those of the parts that have not finished."""
        for part in self.running():
            yield from part.alarms(window_end)


@dataclass
class InOrderRun(TriggerRun):
    """`in_order`: the first until it has finished, then the next; it has finished with the last."""

    triggers: tuple[Trigger, ...]
    current: TriggerRun
    position: int = 0

    def add_rows(self, rows: AddedRows) -> None:
        """The current trigger sees them."""
        self.current.add_rows(rows)

    def pass_time(self, moment: BatchEnd) -> None:
        """The current trigger sees it."""
        self.current.pass_time(moment)

    def is_ready(self, moment: BatchEnd) -> bool:
        """Whether the current trigger is ready."""
        return self.current.is_ready(moment)

    def fire(self, moment: BatchEnd) -> bool:
        """Starts the next trigger when the current one has finished."""
        if not self.current.fire(moment):
            return False
        if self.position + 1 == len(self.triggers):
            return True
        self.position += 1
        self.current = start(self.triggers[self.position], moment)
        return False

    def absorb(self, others: Sequence[TriggerRun], rows: AddedRows) -> None:
        """Goes on with the furthest position, and merges the runs that reached it."""
        runs = [self, *(other for other in others if isinstance(other, InOrderRun))]
        furthest = max(run.position for run in runs)
        currents = [run.current for run in runs if run.position == furthest]
        self.position, self.current = furthest, currents[0]
        self.current.absorb(currents[1:], rows)

    def alarms(self, window_end: int) -> Iterator[Alarm]:
        """Those of the current trigger."""
        yield from self.current.alarms(window_end)


def start(trigger: Trigger, moment: AddedRows | BatchEnd) -> TriggerRun:
    """A trigger that begins: before `moment`'s rows are added, or at its end, when another one fires."""
    match trigger:
        case triggers.AtWatermark():
            return AtWatermarkRun(trigger, start_early(trigger, moment))
        case triggers.Repeatedly(trigger=inner):
            return RepeatedlyRun(inner, start(inner, moment))
        case triggers.AnyOf(triggers=parts):
            return AnyOfRun([start(part, moment) for part in parts])
        case triggers.AllOf(triggers=parts):
            return AllOfRun([start(part, moment) for part in parts])
        case triggers.InOrder(triggers=parts):
            return InOrderRun(parts, start(parts[0], moment))
        case triggers.Until(trigger=main, last=last):
            return UntilRun([start(main, moment), start(last, moment)])
        case triggers.TriggerFn():
            return OwnTriggerRun.start(trigger, moment)
        case _:
            return start_simple(trigger)


def start_early(trigger: triggers.AtWatermark, moment: AddedRows | BatchEnd) -> TriggerRun:
    """What fires before the pane on time."""
    return start(triggers.Never() if trigger.early is None else triggers.Repeatedly(trigger.early), moment)


def start_late(trigger: triggers.AtWatermark, moment: AddedRows | BatchEnd) -> TriggerRun:
    """What fires after it: without `late`, every batch that brings rows."""
    return start(triggers.Repeatedly(trigger.late or triggers.AfterCount(1)), moment)
