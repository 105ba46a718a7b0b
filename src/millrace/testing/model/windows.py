"""What an aggregation over rows holds, in the model: for each key and window all its rows, and when they were shown."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import polars as pl

from millrace import graph, panes
from millrace.engine import trigger_state
from millrace.engine.trigger_state import Moment, Rows, State
from millrace.testing.model.values import Row, canonical
from millrace.windows import FOREVER, Unaligned, Window

Key: TypeAlias = tuple[Any, ...]
Place: TypeAlias = tuple[str, int, int, int]
"""Topic, partition, which of the ways into the operator (a topic may be read twice), offset: the order of rows of equal time."""
Values: TypeAlias = Callable[[Sequence["Change"]], Row]


class Change(NamedTuple):
    """What travels between operators: a row that is new, or one that no longer holds."""

    op: str
    row: Row
    place: Place = ("", 0, 0, 0)


@dataclass
class Outcome:
    """What one operator made of one batch: what leaves the job, what travels on, what was refused."""

    records: list[tuple[tuple[Key, Window], Row]] = field(default_factory=list)
    """Values and those they replace; which pane a row belongs to, so that an old value can be found beside the new one that takes its place."""
    changes: list[Change] = field(default_factory=list)
    sides: dict[str, list[Row]] = field(default_factory=dict)
    """What is said besides, by port; each row once."""
    rows: list[Arrival] = field(default_factory=list)
    """Rows that go on as rows."""
    refused: list[Row] = field(default_factory=list)
    reports: list[Row] = field(default_factory=list)
    withdrawn: list[Row] = field(default_factory=list)
    """Panes of windows that are no more, because they have become part of others."""

    def refuse(self, row: Row, place: Place, reason: str, missed: int) -> None:
        """A row that some window did not take."""
        topic, partition, _, offset = place
        why = {"reason": reason, "missed": missed}
        self.refused.append({**row, **why})
        self.reports.append({"topic": topic, "partition": partition, "offset": offset, **why})


class Arrival(NamedTuple):
    """A row that came, with the watermark of its own partition as it stood at that row."""

    row: Row
    place: Place
    watermark: float
    future: bool


def released(
    waiting: list[Arrival], arrivals: Sequence[Arrival], time: float, outcome: Outcome
) -> list[Arrival]:
    """Where rows are taken in order: those behind their watermark are refused, the others wait, and those before `time` no longer do."""
    for arrival in arrivals:
        if arrival.future or arrival.row["event_time"] < arrival.watermark:
            outcome.refuse(arrival.row, arrival.place, "future" if arrival.future else "late", 1)
        else:
            waiting.append(arrival)
    free = [arrival for arrival in waiting if arrival.row["event_time"] < time]
    waiting[:] = [arrival for arrival in waiting if not arrival.row["event_time"] < time]
    return sorted(free, key=lambda arrival: (arrival.row["event_time"], arrival.place))


@dataclass
class Held:
    """All that is known of one key in one window."""

    rows: list[Change] = field(default_factory=list)
    fresh: list[Change] = field(default_factory=list)
    """Those that no pane has shown yet."""
    times: list[int] = field(default_factory=list)
    """The event times of those among them that were not late."""
    came: int = 0
    """How many came in this batch."""
    states: list[State] = field(default_factory=list)
    """The trigger's state; after a merge those of all windows that are one now, until the batch's rows are counted."""
    closed: bool = False
    index: int = 0
    settled: int = 0
    """How many panes there were, also of the windows that have become this one."""
    before: tuple[int, int] = (0, 0)
    """How many of them were those of other windows: a window that has grown or was merged counts its own panes anew."""
    shown: list[Row] = field(default_factory=list)
    """What the last pane held, or after a merge those of several windows: the next pane takes their place."""
    sent: list[Row] = field(default_factory=list)
    """What stands downstream; where the window has grown since, nothing."""

    def absorb(self, other: Held) -> None:
        """Two windows are one."""
        self.rows += other.rows
        self.fresh += other.fresh
        self.shown += other.shown
        self.sent += other.sent
        self.times += other.times
        self.states += other.states
        self.came += other.came
        self.index += other.index
        self.settled += other.settled


@dataclass
class Clocks:
    """Where time stands in the windows' own domain, and on the wall, before and after a batch."""

    before: float = -math.inf
    time: float = -math.inf
    clock_before: float = -math.inf
    clock: int = 0


class RowWindows:
    """The windows of one aggregation over rows."""

    def __init__(self, node: graph.Operation, values: Values) -> None:
        """`values`: the aggregates of some rows."""
        self.node, self.windowing, self.values = node, node.windowing, values
        self.held: dict[Key, dict[Window, Held]] = defaultdict(dict)
        self.clocks = Clocks()

    def step(self, arrivals: Sequence[Arrival], time: float, now: int, outcome: Outcome) -> None:
        """A batch: rows are judged and taken, time moves, panes fire, what has expired is dropped."""
        if self.windowing.by_clock:
            self.clocks.time = max(self.clocks.time, now)
        for arrival in sorted(arrivals, key=lambda a: (a.row["event_time"], a.place)):
            self.judge(arrival, now, outcome)
        self.count(now)
        clocks = Clocks(self.clocks.time, max(self.clocks.time, time), self.clocks.clock, now)
        clocks.before = self.clocks.before if self.windowing.by_clock else self.clocks.time
        for key, windows in self.held.items():
            for window, held in windows.items():
                if not held.closed:
                    self.look(key, window, held, clocks, outcome)
                held.came = 0
            self.held[key] = {
                w: held for w, held in windows.items() if clocks.time < w[1] + self.windowing.lateness
            }
        self.clocks = Clocks(clocks.time, clocks.time, now, now)

    def windows_of(self, row: Row, now: int) -> list[Window]:
        """The windows that a row belongs to, each by itself."""
        places = self.windowing.places
        at = now if self.windowing.by_clock else row["event_time"]
        if isinstance(places, Unaligned):
            offset = pl.DataFrame([row], schema=self.node.inputs[0].schema).select(offset=places.offset)[
                "offset"
            ][0]
            return places.aligned(offset or 0).assign(at)
        return places.assign(at)

    def judge(self, arrival: Arrival, now: int, outcome: Outcome) -> None:
        """Into which of its windows the row still comes; refused by any, it is reported once."""
        key = tuple(arrival.row[column] for column in self.node.keys)
        late = closed = 0
        for own in self.windows_of(arrival.row, now):
            group = self.group(key, own)
            window = min(start for start, _ in group), max(end for _, end in group)
            watermark = self.clocks.time if self.windowing.by_clock else arrival.watermark
            if arrival.future or watermark >= window[1] + self.windowing.lateness:
                late += 1
            elif self.shut(key, own):
                closed += 1
            else:
                self.take(key, window, group, arrival, outcome)
        if late or closed:
            reason = "future" if arrival.future else "late" if late else "closed"
            outcome.refuse(arrival.row, arrival.place, reason, late + closed)

    def group(self, key: Key, own: Window) -> list[Window]:
        """The window of a row, with those held that it grows into."""
        if not self.windowing.window.merging:
            return [own]
        known = [window for window, held in self.held[key].items() if not held.closed]
        return next(group for group in self.windowing.window.merge(sorted({*known, own})) if own in group)

    def shut(self, key: Key, own: Window) -> bool:
        """Whether the row belongs to a window whose trigger has finished."""
        closed = [window for window, held in self.held[key].items() if held.closed]
        if not self.windowing.window.merging:
            return own in closed
        return any(len(self.windowing.window.merge(sorted({window, own}))) == 1 for window in closed)

    def take(
        self, key: Key, window: Window, group: Sequence[Window], arrival: Arrival, outcome: Outcome
    ) -> None:
        """The row becomes part of a window, and the windows it belongs to become one; those that are no more are taken back downstream."""
        parts, same = [], None
        for own in (own for own in group if own in self.held[key]):
            part = self.held[key].pop(own)
            if own == window:
                same = part.index - part.before[0], part.settled - part.before[1]
            else:
                self.withdraw(own, part, outcome)
            parts.append(part)
        held = parts[0] if parts else Held()
        for part in parts[1:]:
            held.absorb(part)
        counted = same or (0, 0)
        held.before = held.index - counted[0], held.settled - counted[1]
        change = Change(panes.ADD, arrival.row, arrival.place)
        held.rows.append(change)
        held.fresh.append(change)
        held.came += 1
        if arrival.row["event_time"] >= arrival.watermark:
            held.times.append(arrival.row["event_time"])
        self.held[key][window] = held

    def withdraw(self, own: Window, part: Held, outcome: Outcome) -> None:
        """A window is no more: what it had shown is taken back downstream, and where tables are kept by window."""
        outcome.changes += [Change(panes.RETRACT, {**old, "op": panes.RETRACT}) for old in part.sent]
        part.sent = []
        early = self.clocks.time < own[1]
        about = {
            "index": part.index,
            "settled_index": -1 if early else part.settled,
            "timing": "early" if early else "late",
        }
        standing = [old for old in part.shown if (old["window_start"], old["window_end"]) == own]
        if self.windowing.output == "value":
            outcome.withdrawn += [{**old, **about, "final": True, "op": panes.RETRACT} for old in standing]

    def count(self, now: int) -> None:
        """Triggers are told of the batch's rows."""
        trigger, time = self.windowing.trigger, self.clocks.time
        for window, held in ((w, h) for windows in self.held.values() for w, h in windows.items() if h.came):
            state = trigger_state.begin(trigger)
            if held.states:
                merges = self.windowing.window.merging
                state = (
                    trigger_state.merged(trigger, held.states, passed=time >= window[1])
                    if merges
                    else held.states[0]
                )
            start = (
                window[0]
                if window != FOREVER
                else min(change.row["event_time"] for change in held.fresh[-held.came :])
            )
            base = start if time == -math.inf else int(time)
            held.states = [trigger_state.taken(trigger, state, Rows(held.came, now, base, time >= window[1]))]

    def look(self, key: Key, window: Window, held: Held, clocks: Clocks, outcome: Outcome) -> None:
        """Whether the window fires now, or shows itself a last time before it is dropped."""
        trigger, [state] = self.windowing.trigger, held.states
        moment = Moment(
            int(max(clocks.time, -trigger_state.END)),
            clocks.clock,
            passed=clocks.time >= window[1],
            elapsed=clocks.clock >= window[1],
        )
        fires = (held.came > 0 or self.came_due(window, state, clocks)) and trigger_state.ready(
            trigger, state, moment
        )
        expires = clocks.time >= window[1] + self.windowing.lateness
        timing = "early" if clocks.time < window[1] else "on_time" if clocks.before < window[1] else "late"
        if fires:
            after, held.closed = trigger_state.fired(trigger, state, moment)
            held.states = [after]
        always = self.windowing.closing == "always" and (expires or held.closed)
        wanted = fires and (bool(held.fresh) or (timing == "on_time" and self.windowing.on_time == "always"))
        last = expires and self.windowing.closing != "none" and bool(held.fresh)
        if wanted or last or always:
            self.show(key, window, held, timing, held.closed or expires, outcome)

    def came_due(self, window: Window, state: State, clocks: Clocks) -> bool:
        """Whether a time for which the trigger waits came in this batch."""
        for due in trigger_state.dues(self.windowing.trigger, state):
            at = window[1] if due.at is None else due.at
            before, after = (clocks.clock_before, clocks.clock) if due.clock else (clocks.before, clocks.time)
            if before < at <= after:
                return True
        return False

    def show(self, key: Key, window: Window, held: Held, timing: str, final: bool, outcome: Outcome) -> None:
        """A pane, computed anew from all rows; what it replaces is taken back."""
        own_index, own_settled = held.index - held.before[0], held.settled - held.before[1]
        settled = own_settled if timing != "early" else -1
        about = {"index": own_index, "settled_index": settled, "timing": timing, "final": final}
        named = dict(zip(self.node.keys, key, strict=True))
        place = {
            "event_time": self.pane_time(window, held),
            "window_start": window[0],
            "window_end": window[1],
            **about,
            "op": panes.ADD,
        }
        whole = {**named, **self.values(held.rows), **place}
        pane = {**named, **self.values(held.fresh), **place} if self.windowing.output == "delta" else whole
        if self.windowing.output != "delta":
            for old in held.shown:
                grown = (old["window_start"], old["window_end"]) != window
                index = held.index if grown else own_index
                outcome.records.append(((key, window), {**old, **about, "index": index, "op": panes.RETRACT}))
        outcome.records.append(((key, window), pane))
        if not (len(held.sent) == 1 and self.identity(held.sent[0]) == self.identity(whole)):
            outcome.changes += [Change(panes.RETRACT, {**old, "op": panes.RETRACT}) for old in held.sent]
            outcome.changes.append(Change(panes.ADD, whole))
            held.sent = [whole]
        held.shown, held.fresh, held.times = [whole], [], []
        held.index += 1
        held.settled += timing != "early"

    def identity(self, row: Row) -> Any:
        """What of a pane matters downstream."""
        return canonical(row, [*self.node.aggregates, "event_time", "window_start", "window_end"])

    def pane_time(self, window: Window, held: Held) -> int:
        """The end, or the earliest or latest of the rows that are new and were not late."""
        if self.windowing.time == "end" or not held.times:
            return window[1] - 1
        return min(held.times) if self.windowing.time == "earliest" else max(held.times)


def netted(records: Sequence[tuple[Any, Row]]) -> Iterator[Row]:
    """Where a pane stands for many rows: those that its new value has and the old one had not, and the other way round."""
    counts: Counter[Any] = Counter()
    rows: dict[Any, Row] = {}
    for about, row in records:
        same = about, canonical(row, set(row) - set(panes.HISTORY))
        counts[same] += 1 if row["op"] == panes.ADD else -1
        rows[same] = row
    for same, count in counts.items():
        yield from [{**rows[same], "op": panes.ADD if count > 0 else panes.RETRACT}] * abs(count)
