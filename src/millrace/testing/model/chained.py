"""Aggregations over panes, in the model.

No pane is late here; one that a later one replaces is retracted. Rows may come beside panes, and may be late.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millrace import graph, panes
from millrace.errors import DefinitionError
from millrace.testing.model.operators import (
    ModelOperator,
    ModelRowOperator,
    apply_steps,
    compute_values,
    read_columns,
)
from millrace.testing.model.outcome import ArrivedRow, Change, Key, OperatorOutcome
from millrace.testing.model.source import SourceEvent
from millrace.testing.model.values import Row, to_canonical
from millrace.windows import Window


@dataclass
class ChainedWindow:
    """What an operator holds of one key in one window."""

    rows: list[Change] = field(default_factory=list)
    has_changed: bool = False
    pane_count: int = 0
    settled_count: int = 0
    last_pane: Row | None = None
    last_sent: Row | None = None


class ModelChainedOperator(ModelOperator):
    """An aggregation over the panes of other operators."""

    def __init__(
        self, node: graph.Aggregation, name: str, upstream: Mapping[graph.Operation, ModelOperator]
    ) -> None:
        """`upstream`: the operators whose panes it reads, by node."""
        super().__init__(node, name, upstream)
        self.aggregation = node
        self.chained_windows: dict[tuple[Key, Window], ChainedWindow] = defaultdict(ChainedWindow)

    def step(self, rows: Sequence[tuple[Row, Window]] = (), time: float = math.inf) -> None:
        """Applies this batch's changes, moves the watermark to the least one upstream, and fires panes.

        `rows` come beside the changes, each in a window that takes it; `time` is their watermark.
        """
        old_contents = {window_id: self.contents(state) for window_id, state in self.chained_windows.items()}
        for change in incoming_changes(self):
            for window in self.windows_of(change.row):
                self.chained_window(change.row, window).rows.append(change)
        for row, window in rows:
            self.chained_window(row, window).rows.append(Change(panes.ADD, row))
        for window_id, state in self.chained_windows.items():
            state.rows = cancel_retractions(state.rows)
            state.has_changed = self.contents(state) != old_contents.get(window_id, Counter())
        self.fire(min(time, *(operator.time for operator in self.upstream)))

    def windows_of(self, row: Row) -> list[Window]:
        """The windows that a pane is counted in: its own one, unless the windowing was set anew."""
        if self.aggregation.same_window:
            return [(row["window_start"], row["window_end"])]
        return self.aggregation.windowing.window.assign(row["event_time"])

    def chained_window(self, row: Row, window: Window) -> ChainedWindow:
        """The state of a row's key in a window."""
        return self.chained_windows[tuple(row[column] for column in self.node.keys), window]

    def fire(self, time: float) -> None:
        """Moves the watermark and emits the panes that are due."""
        old_time, self.time = self.time, max(self.time, time)
        for (key, window), state in self.chained_windows.items():
            timing = self.pane_timing(window, state, old_time)
            if timing is not None:
                self.emit_pane(key, window, state, timing)
            state.has_changed = False

    def pane_timing(self, window: Window, state: ChainedWindow, old_time: float) -> str | None:
        """The timing of the pane that is due now; None if none is."""
        is_unwindowed = self.aggregation.windowing.is_unwindowed
        if old_time < window[1] <= self.time and (state.has_changed or not is_unwindowed):
            return "on_time"
        if not state.has_changed:
            return None
        if window[1] <= old_time:
            return "late"
        return "early" if self.aggregation.same_window or is_unwindowed else None

    def emit_pane(self, key: Key, window: Window, state: ChainedWindow, timing: str) -> None:
        """Emits a pane, computed anew from all rows, and retracts the one before it."""
        old, new = state.last_pane, None
        if not state.rows and old is None:
            return
        settled_index = state.settled_count if timing != "early" else -1
        final = self.time >= window[1] + self.max_lateness
        history = {
            "index": state.pane_count,
            "settled_index": settled_index,
            "timing": timing,
            "final": final,
        }
        if state.rows:
            times = {"event_time": window[1] - 1, "window_start": window[0], "window_end": window[1]}
            new = {
                **dict(zip(self.node.keys, key, strict=True)),
                **compute_values(self.aggregation, state.rows),
                **times,
                **history,
                "op": panes.ADD,
            }
        if old is not None:
            self.outcome.records.append(((key, window), {**old, **history, "op": panes.RETRACT}))
        if new is not None:
            self.outcome.records.append(((key, window), new))
        self.emit_change(state, new)
        state.last_pane = new
        state.pane_count += 1
        state.settled_count += timing != "early"

    def emit_change(self, state: ChainedWindow, new: Row | None) -> None:
        """Sends a pane downstream, unless its values are those sent before."""
        old = state.last_sent
        names = list(self.aggregation.aggregates)
        if old is not None and new is not None and to_canonical(old, names) == to_canonical(new, names):
            return
        if old is not None:
            self.outcome.changes.append(Change(panes.RETRACT, {**old, "op": panes.RETRACT}))
        if new is not None:
            self.outcome.changes.append(Change(panes.ADD, new))
        state.last_sent = new

    def contents(self, state: ChainedWindow) -> Counter[Any]:
        """The values that the aggregates read, counted.

        With the event time if an aggregate depends on the order.
        """
        is_ordered = any(aggregate.ordered for aggregate in self.aggregation.aggregates.values())
        return Counter(
            to_canonical(
                change.row,
                [*read_columns(self.aggregation), "event_time"]
                if is_ordered
                else read_columns(self.aggregation),
            )
            for change in state.rows
        )


class ModelRowsBesidePanes(ModelRowOperator):
    """An aggregation over panes and rows of topics."""

    def __init__(
        self,
        node: graph.Aggregation,
        name: str,
        partitions: Mapping[str, int],
        preceding: Mapping[graph.Operation, ModelOperator],
    ) -> None:
        """`partitions`: how many each topic has; `preceding`: the operators before this one, by node."""
        self.chained = ModelChainedOperator(node, name, preceding)
        super().__init__(node, name, RowsOfChained(self.chained), partitions, preceding)

    def step(self, batch: Sequence[SourceEvent], now: int, end: bool) -> None:
        """Time is that of the panes, or of the rows where those are behind."""
        super().step(batch, now, end)
        self.time = self.chained.time


class RowsOfChained:
    """The rows that come beside panes: judged, then added to the windows that take them."""

    def __init__(self, chained: ModelChainedOperator) -> None:
        self.chained = chained

    def step(self, arrivals: Sequence[ArrivedRow], time: float, now: int, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """Adds the rows of a batch, with its changes."""
        lateness, taken = self.chained.node.lateness, []
        for arrival in arrivals:
            own = self.chained.windows_of(arrival.row)
            open_windows = [
                window for window in own if not arrival.is_future and arrival.watermark < window[1] + lateness
            ]
            taken += [(arrival.row, window) for window in open_windows]
            if len(open_windows) < len(own):
                outcome.refuse(arrival, missed=len(own) - len(open_windows))
        self.chained.outcome = outcome
        self.chained.step(taken, time)


def incoming_changes(operator: ModelOperator) -> Iterator[Change]:
    """The changes that upstream operators emitted in this batch, after the stateless steps."""
    for edge in operator.edges:
        if graph.comes_as_rows(edge, operator.node):
            continue
        upstream = next(one for one in operator.upstream if one.node is edge.origin)
        side_rows = [Change(panes.ADD, row) for row in upstream.outcome.side_outputs.get(edge.output, [])]
        for change in upstream.outcome.changes if edge.output == "out" else side_rows:
            yield from (Change(change.op, result) for result in apply_steps(edge, change.row))


def cancel_retractions(rows: Sequence[Change]) -> list[Change]:
    """The rows that still hold: each retraction removes one equal row."""
    how_it_came = set(panes.HISTORY_COLUMNS)
    retracted = Counter(
        to_canonical(change.row, set(change.row) - how_it_came)
        for change in rows
        if change.op == panes.RETRACT
    )
    kept = []
    for change in rows:
        row = to_canonical(change.row, set(change.row) - how_it_came)
        if change.op == panes.RETRACT:
            continue
        if retracted[row]:
            retracted[row] -= 1
        else:
            kept.append(change)
    if retracted.total():
        raise DefinitionError(
            f"no row matches the retractions {+retracted}; a stateless step must map equal rows to equal rows"
        )
    return kept
