"""Patterns in the model: rows wait for the watermark and are taken one at a time, key by key, and nothing is ever stored.

What a pattern matches is defined in `testing/model/pattern_definition.py`, and the matcher is held to it there; here it is about when.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from millrace import graph
from millrace.engine.trigger_state import END
from millrace.errors import DefinitionError
from millrace.graph.build.rules import DECLARED, RULE, Rules, listed
from millrace.patterns.cep.matcher import Matcher
from millrace.patterns.cep.partial_matches import Course
from millrace.patterns.cep.select import picked
from millrace.testing.model.windows import Arrival, Change, Key, Outcome, Values, released


class RowsInOrder:
    """Rows that wait for the watermark and are then taken one at a time."""

    waiting: list[Arrival]

    def step(self, arrivals: Sequence[Arrival], time: float, now: int, outcome: Outcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """A batch: rows behind their watermark are refused, those before the new one are taken in order, then time passes."""
        for arrival in released(self.waiting, arrivals, time, outcome):
            self.take([arrival.row], arrival.row["event_time"], outcome)
        if time > -END:
            self.take([], END if time >= END else int(time), outcome)

    def take(self, rows: Sequence[dict[str, object]], time: int, outcome: Outcome) -> None:
        """Rows, then time that passes."""
        raise NotImplementedError


class PatternRows(RowsInOrder):
    """The matches of one pattern over rows, each shown once, when it is certain."""

    def __init__(self, node: graph.Operation, values: Values) -> None:  # noqa: ARG002 - a match has no aggregates
        assert isinstance(node, graph.Match)
        self.node = node
        self.schema = node.inputs[0].schema
        self.matcher = Matcher(node.pattern, self.schema, node.keys)
        self.waiting = []
        self.courses: dict[Key, Course] = {}

    def take(self, rows: Sequence[dict[str, object]], time: int, outcome: Outcome) -> None:
        """Rows, then time that passes."""
        done = self.matcher.step(self.courses, pl.DataFrame(rows, schema=self.schema), time)
        for key, course in done.courses.items():
            self.courses.pop(key, None)
            if course is not None:
                self.courses[key] = course
        outcome.sides.setdefault(graph.TIMEOUTS, []).extend(
            picked(done.timeouts, self.node.select, self.node.keys).to_dicts()
        )
        for pane in picked(done.matches, self.node.select, self.node.keys).iter_rows(named=True):
            key = tuple(pane[column] for column in self.node.keys)
            outcome.records.append(((key, (pane["window_start"], pane["window_end"])), pane))
            outcome.changes.append(Change(pane["op"], pane))


class RuleRows:
    """Rules over rows: each a pattern with courses of its own, from the moment it comes until another of its name does."""

    def __init__(self, node: graph.Operation, values: Values) -> None:  # noqa: ARG002 - a match has no aggregates
        assert isinstance(node, Rules)
        self.node = node
        self.waiting: list[Arrival] = []
        self.rules: dict[str, tuple[Matcher, dict[Key, Course]]] = {}

    def step(self, arrivals: Sequence[Arrival], time: float, now: int, outcome: Outcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """A batch: as patterns take rows; a rule takes effect where it stands among them."""
        for arrival in released(self.waiting, arrivals, time, outcome):
            if arrival.row[RULE] is not None:
                self.change(arrival.row, outcome)
            else:
                for name in self.rules:
                    self.take(
                        name,
                        [{column: arrival.row[column] for column in self.node.rows}],
                        arrival.row["event_time"],
                        outcome,
                    )
        if time > -END:
            for name in self.rules:
                self.take(name, [], END if time >= END else int(time), outcome)

    def change(self, row: dict[str, Any], outcome: Outcome) -> None:
        """A rule is new, takes another's place, or is withdrawn; one that is wrong changes nothing."""
        try:
            matcher = self.node.matcher(row[DECLARED]) if row[DECLARED] else None
        except DefinitionError:
            return
        if row[RULE] in self.rules:
            self.take(row[RULE], [], row["event_time"], outcome)
            del self.rules[row[RULE]]
        if matcher is not None:
            self.rules[row[RULE]] = (matcher, {})

    def take(self, name: str, rows: Sequence[dict[str, Any]], time: int, outcome: Outcome) -> None:
        """Rows for one rule, then time that passes."""
        matcher, courses = self.rules[name]
        done = matcher.step(courses, pl.DataFrame(rows, schema=self.node.rows), time)
        for key, course in done.courses.items():
            courses.pop(key, None)
            if course is not None:
                courses[key] = course
        for pane in listed(done.matches, self.node, name).iter_rows(named=True):
            key = tuple(pane[column] for column in self.node.keys)
            outcome.records.append(((key, (pane["window_start"], pane["window_end"])), pane))
            outcome.changes.append(Change(pane["op"], pane))


class SqlRows(RowsInOrder):
    """What a row pattern of SQL shows: all rows so far are searched again each time, and what was not shown before is new."""

    def __init__(self, node: graph.Operation, values: Values) -> None:  # noqa: ARG002 - a match has no aggregates
        from millrace.patterns.sql.streams import stream_matcher

        assert isinstance(node, graph.MatchRows)
        self.node = node
        self.schema = node.inputs[0].schema
        self.matcher = stream_matcher(node.rows, self.schema, node.keys)
        self.waiting = []
        self.rows: dict[Key, list[tuple[object, ...]]] = {}
        self.shown: dict[Key, int] = {}

    def take(self, rows: Sequence[dict[str, object]], time: int, outcome: Outcome) -> None:
        """Rows, then time that passes."""
        from millrace.patterns.sql.streams import as_panes

        if rows:
            for key, lane in self.matcher.lanes(pl.DataFrame(rows, schema=self.schema)):
                self.rows.setdefault(key, []).extend(lane)
        for key, lane in self.rows.items():
            _, shown = self.matcher.follow(None, lane, time, ended=time >= END)
            for pane in as_panes(shown[self.shown.get(key, 0) :], self.matcher, self.node.schema).iter_rows(
                named=True
            ):
                outcome.records.append(((key, (pane["window_start"], pane["window_end"])), pane))
                outcome.changes.append(Change(pane["op"], pane))
            self.shown[key] = len(shown)


Recognizer = PatternRows | RuleRows | SqlRows
RECOGNIZERS: dict[type[graph.Operation], type[Recognizer]] = {
    graph.Match: PatternRows,
    Rules: RuleRows,
    graph.MatchRows: SqlRows,
}
"""What finds sequences, by the node that asks for it."""
