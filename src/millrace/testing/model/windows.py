"""Aggregations over rows, in the model: each window keeps all its rows, and every pane is computed anew."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from millrace import graph, panes
from millrace.durations import BEFORE_ALL
from millrace.testing.model import triggers
from millrace.testing.model.evictors import keep_rows
from millrace.testing.model.outcome import ArrivedRow, Change, ComputeValues, Key, OperatorOutcome
from millrace.testing.model.simple_triggers import AddedRows, BatchEnd, TriggerRun
from millrace.testing.model.values import Row, to_canonical
from millrace.windows import FOREVER, Unaligned, Window


@dataclass
class OpenWindow:
    """The state of one key in one window."""

    rows: list[Change] = field(default_factory=list)
    new_rows: list[Change] = field(default_factory=list)
    """The rows that no pane has shown yet."""
    new_times: list[int] = field(default_factory=list)
    """The event times of the new rows that were not late."""
    arrived: list[Change] = field(default_factory=list)
    """Those that came in this batch."""
    trigger_runs: list[TriggerRun] = field(default_factory=list)
    """The run of the trigger; after a merge those of all merged windows, until `update_triggers`."""
    is_closed: bool = False
    pane_count: int = 0
    settled_count: int = 0
    """How many panes there were, those of merged windows included."""
    inherited_counts: tuple[int, int] = (0, 0)
    """How many of them other windows showed: a window that grew or was merged counts its own panes from 0."""
    shown_panes: list[Row] = field(default_factory=list)
    """The last pane, or after a merge the last panes of all merged windows: the next pane replaces them."""
    sent_panes: list[Row] = field(default_factory=list)
    """The panes that hold downstream; none after the window grew."""

    def absorb(self, other: OpenWindow) -> None:
        """Merges another window into this one."""
        self.rows += other.rows
        self.new_rows += other.new_rows
        self.shown_panes += other.shown_panes
        self.sent_panes += other.sent_panes
        self.new_times += other.new_times
        self.trigger_runs += other.trigger_runs
        self.arrived += other.arrived
        self.pane_count += other.pane_count
        self.settled_count += other.settled_count


@dataclass
class ModelClocks:
    """Time in the windows' own domain and processing time, before and after a batch."""

    old_time: float = -math.inf
    time: float = -math.inf
    old_clock: float = -math.inf
    clock: int = 0


class ModelWindows:
    """The windows of one aggregation over rows."""

    def __init__(self, node: graph.Aggregation, values: ComputeValues) -> None:
        """`values` computes the aggregates of rows."""
        self.node, self.windowing, self.values = node, node.windowing, values
        self.open_windows: dict[Key, dict[Window, OpenWindow]] = defaultdict(dict)
        self.clocks = ModelClocks()

    def step(self, arrivals: Sequence[ArrivedRow], time: float, now: int, outcome: OperatorOutcome) -> None:
        """Judges and adds rows, moves time, fires panes, and drops expired windows."""
        if self.windowing.is_processing_time:
            self.clocks.time = max(self.clocks.time, now)
        for arrival in sorted(arrivals, key=lambda a: (a.row["event_time"], a.row_order)):
            self.judge(arrival, now, outcome)
        self.update_triggers(now)
        clocks = ModelClocks(self.clocks.time, max(self.clocks.time, time), self.clocks.clock, now)
        clocks.old_time = self.clocks.old_time if self.windowing.is_processing_time else self.clocks.time
        for key, windows in self.open_windows.items():
            for window, state in windows.items():
                if not state.is_closed:
                    self.check_trigger(key, window, state, clocks, outcome)
                state.arrived = []
            self.open_windows[key] = {
                w: state for w, state in windows.items() if clocks.time < w[1] + self.windowing.lateness
            }
        self.clocks = ModelClocks(clocks.time, clocks.time, now, now)

    def windows_of(self, row: Row, now: int) -> list[Window]:
        """The windows that a row is assigned to, before any merge."""
        window_fn = self.windowing.assigner
        at = now if self.windowing.is_processing_time else row["event_time"]
        if isinstance(window_fn, Unaligned):
            offset = pl.DataFrame([row], schema=self.node.inputs[0].schema).select(offset=window_fn.offset)[
                "offset"
            ][0]
            return window_fn.align(offset or 0).assign(at)
        return window_fn.assign(at)

    def judge(self, arrival: ArrivedRow, now: int, outcome: OperatorOutcome) -> None:
        """Adds a row to those of its windows that still accept it, and reports it once if any did not."""
        key = tuple(arrival.row[column] for column in self.node.keys)
        late = closed = 0
        for own_window in self.windows_of(arrival.row, now):
            group = self.find_group(key, own_window)
            window = min(start for start, _ in group), max(end for _, end in group)
            watermark = self.clocks.time if self.windowing.is_processing_time else arrival.watermark
            if arrival.is_future or watermark >= window[1] + self.windowing.lateness:
                late += 1
            elif self.is_shut(key, own_window):
                closed += 1
            else:
                self.accept(key, window, group, arrival, outcome)
        if late or closed:
            reason = "future" if arrival.is_future else "late" if late else "closed"
            outcome.refuse(arrival, reason, late + closed)

    def find_group(self, key: Key, own_window: Window) -> list[Window]:
        """The window of a row and the open windows that it merges with."""
        if not self.windowing.window.merging:
            return [own_window]
        known = [window for window, state in self.open_windows[key].items() if not state.is_closed]
        return next(
            group
            for group in self.windowing.window.merge(sorted({*known, own_window}))
            if own_window in group
        )

    def is_shut(self, key: Key, own_window: Window) -> bool:
        """Whether the trigger of the row's window has finished."""
        closed = [window for window, state in self.open_windows[key].items() if state.is_closed]
        if not self.windowing.window.merging:
            return own_window in closed
        return any(len(self.windowing.window.merge(sorted({window, own_window}))) == 1 for window in closed)

    def accept(
        self, key: Key, window: Window, group: Sequence[Window], arrival: ArrivedRow, outcome: OperatorOutcome
    ) -> None:
        """Adds a row to a window, merging the windows of its group; those that vanish are retracted."""
        merged, own_counts = [], None
        for own_window in (own_window for own_window in group if own_window in self.open_windows[key]):
            state = self.open_windows[key].pop(own_window)
            if own_window == window:
                own_counts = (
                    state.pane_count - state.inherited_counts[0],
                    state.settled_count - state.inherited_counts[1],
                )
            else:
                self.withdraw(own_window, state, outcome)
            merged.append(state)
        merged_window = merged[0] if merged else OpenWindow()
        for state in merged[1:]:
            merged_window.absorb(state)
        counts = own_counts or (0, 0)
        merged_window.inherited_counts = (
            merged_window.pane_count - counts[0],
            merged_window.settled_count - counts[1],
        )
        change = Change(panes.ADD, arrival.row, arrival.row_order)
        merged_window.rows.append(change)
        merged_window.new_rows.append(change)
        merged_window.arrived.append(change)
        if arrival.row["event_time"] >= arrival.watermark:
            merged_window.new_times.append(arrival.row["event_time"])
        self.open_windows[key][window] = merged_window

    def withdraw(self, window: Window, state: OpenWindow, outcome: OperatorOutcome) -> None:
        """Retracts the panes of a window that was merged into another."""
        outcome.changes += [Change(panes.RETRACT, {**old, "op": panes.RETRACT}) for old in state.sent_panes]
        state.sent_panes = []
        is_early = self.clocks.time < window[1]
        history = {
            "index": state.pane_count,
            "settled_index": -1 if is_early else state.settled_count,
            "timing": "early" if is_early else "late",
        }
        standing = [old for old in state.shown_panes if (old["window_start"], old["window_end"]) == window]
        if self.windowing.accumulation == "accumulating":
            outcome.withdrawn += [{**old, **history, "final": True, "op": panes.RETRACT} for old in standing]

    def update_triggers(self, now: int) -> None:
        """Merges the triggers of merged windows, then counts the batch's rows."""
        for windows in self.open_windows.values():
            for window, open_window in windows.items():
                if not open_window.arrived:
                    continue
                rows = self.added_rows(window, open_window, now)
                if self.windowing.window.merging and open_window.trigger_runs:
                    first, *others = open_window.trigger_runs
                    first.absorb(others, rows)
                else:
                    [first] = open_window.trigger_runs or [triggers.start(self.windowing.trigger, rows)]
                first.add_rows(rows)
                open_window.trigger_runs = [first]

    def added_rows(self, window: Window, open_window: OpenWindow, now: int) -> AddedRows:
        """What a batch brought to a window, as its trigger sees it."""
        time = self.clocks.time
        return AddedRows(
            len(open_window.arrived),
            now,
            int(time) if time > -math.inf else window_start(window, open_window),
            time >= window[1],
            [
                {name: change.row.get(name) for name in self.node.row_schema}
                for change in sorted(
                    open_window.arrived, key=lambda change: (change.row["event_time"], change.row_order)
                )
            ],
            window,
            int(time) if time > -math.inf else None,
        )

    def check_trigger(
        self, key: Key, window: Window, open_window: OpenWindow, clocks: ModelClocks, outcome: OperatorOutcome
    ) -> None:
        """Emits a pane if the window fires, or if it closes and a last one is due."""
        [trigger] = open_window.trigger_runs
        moment = BatchEnd(int(max(clocks.time, BEFORE_ALL)), clocks.clock, window[1], window[0])
        is_asked = bool(open_window.arrived) or has_come_due(trigger, window, clocks)
        if is_asked:
            trigger.pass_time(moment)
        is_firing = is_asked and trigger.is_ready(moment)
        is_expiring = clocks.time >= window[1] + self.windowing.lateness
        timing = "early" if clocks.time < window[1] else "on_time" if clocks.old_time < window[1] else "late"
        if is_firing:
            open_window.is_closed = trigger.fire(moment)
        is_forced = self.windowing.closing == "always" and (is_expiring or open_window.is_closed)
        is_wanted = is_firing and (
            bool(open_window.new_rows) or (timing == "on_time" and self.windowing.on_time == "always")
        )
        is_last = is_expiring and self.windowing.closing != "none" and bool(open_window.new_rows)
        if is_wanted or is_last or is_forced:
            self.emit_pane(key, window, open_window, timing, open_window.is_closed or is_expiring, outcome)

    def emit_pane(
        self,
        key: Key,
        window: Window,
        open_window: OpenWindow,
        timing: str,
        final: bool,
        outcome: OperatorOutcome,
    ) -> None:
        """Emits a pane, computed anew from all rows, and retracts the panes that it replaces."""
        own_settled_count = open_window.settled_count - open_window.inherited_counts[1]
        history = {
            "index": open_window.pane_count - open_window.inherited_counts[0],
            "settled_index": own_settled_count if timing != "early" else -1,
            "timing": timing,
            "final": final,
        }
        is_discarding = self.windowing.accumulation == "discarding"
        whole = self.make_pane(key, window, open_window, open_window.rows, history)
        if not is_discarding:
            self.retract_shown(key, window, open_window, history, outcome)
        pane = (
            self.make_pane(key, window, open_window, open_window.new_rows, history)
            if is_discarding
            else whole
        )
        outcome.records.append(((key, window), pane))
        self.send_change(open_window, whole, outcome)
        open_window.shown_panes, open_window.new_rows, open_window.new_times = [whole], [], []
        open_window.pane_count += 1
        open_window.settled_count += timing != "early"

    def make_pane(
        self, key: Key, window: Window, open_window: OpenWindow, rows: Sequence[Change], history: Row
    ) -> Row:
        """A pane over some rows of a window."""
        return {
            **dict(zip(self.node.keys, key, strict=True)),
            **self.values(keep_rows(self.node, rows)),
            "event_time": self.pane_time(window, open_window),
            "window_start": window[0],
            "window_end": window[1],
            **history,
            "op": panes.ADD,
        }

    def retract_shown(
        self, key: Key, window: Window, open_window: OpenWindow, history: Row, outcome: OperatorOutcome
    ) -> None:
        """Retracts the panes shown before; those of the windows that were merged into it, too."""
        for old in open_window.shown_panes:
            has_grown = (old["window_start"], old["window_end"]) != window
            index = open_window.pane_count if has_grown else history["index"]
            outcome.records.append(((key, window), {**old, **history, "index": index, "op": panes.RETRACT}))

    def send_change(self, open_window: OpenWindow, whole: Row, outcome: OperatorOutcome) -> None:
        """Sends a pane downstream instead of those sent before, unless it is the same there."""
        sent = open_window.sent_panes
        if len(sent) == 1 and self.pane_identity(sent[0]) == self.pane_identity(whole):
            return
        outcome.changes += [Change(panes.RETRACT, {**old, "op": panes.RETRACT}) for old in sent]
        outcome.changes.append(Change(panes.ADD, whole))
        open_window.sent_panes = [whole]

    def pane_identity(self, row: Row) -> Any:
        """The values of a pane that matter downstream."""
        return to_canonical(row, [*self.node.aggregates, "event_time", "window_start", "window_end"])

    def pane_time(self, window: Window, open_window: OpenWindow) -> int:
        """The pane's event time: the window's end,
        or that of the earliest or latest new row that was not late.
        """
        if self.windowing.time == "end" or not open_window.new_times:
            return window[1] - 1
        return min(open_window.new_times) if self.windowing.time == "earliest" else max(open_window.new_times)


def window_start(window: Window, open_window: OpenWindow) -> int:
    """Where a window begins; the global one, with the first row of this batch."""
    if window != FOREVER:
        return window[0]
    times: list[int] = [change.row["event_time"] for change in open_window.arrived]
    return min(times)


def has_come_due(trigger: TriggerRun, window: Window, clocks: ModelClocks) -> bool:
    """Whether a time for which the trigger waits came in this batch."""
    for alarm in trigger.alarms(window[1]):
        before, after = (clocks.old_clock, clocks.clock) if alarm.is_clock else (clocks.old_time, clocks.time)
        if before < alarm.at <= after:
            return True
    return False
