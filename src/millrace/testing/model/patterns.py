"""Patterns in the model: rows wait for the watermark and are taken one at a time, key by key, and nothing is ever stored.

What a pattern matches is defined in `testing/model/pattern_definition.py`, and the matcher is held to it there; here it is about when.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from millrace import graph
from millrace.errors import DefinitionError
from millrace.graph.build.rules import RULE_NAME, RULE_TEXT, MatchRules, collect_matches
from millrace.patterns.cep.matcher import Matcher
from millrace.patterns.cep.partial_matches import PartialMatches
from millrace.patterns.cep.select import select_matches
from millrace.testing.model.simple_triggers import END_OF_STREAM
from millrace.testing.model.windows import Arrival, Change, ComputeValues, Key, OperatorOutcome, release_rows


class ModelOrderedRows:
    """Rows that wait for the watermark and are then taken one at a time."""

    waiting: list[Arrival]

    def step(self, arrivals: Sequence[Arrival], time: float, now: int, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """A batch: rows behind their watermark are refused, those before the new one are taken in order, then time passes."""
        for arrival in release_rows(self.waiting, arrivals, time, outcome):
            self.accept([arrival.row], arrival.row["event_time"], outcome)
        if time > -END_OF_STREAM:
            self.accept([], END_OF_STREAM if time >= END_OF_STREAM else int(time), outcome)

    def accept(self, rows: Sequence[dict[str, object]], time: int, outcome: OperatorOutcome) -> None:
        """Rows, then time that passes."""
        raise NotImplementedError


class ModelMatch(ModelOrderedRows):
    """The matches of one pattern over rows, each shown once, when it is certain."""

    def __init__(self, node: graph.Operation, values: ComputeValues) -> None:  # noqa: ARG002 - a match has no aggregates
        assert isinstance(node, graph.MatchPattern)
        self.node = node
        self.schema = node.inputs[0].schema
        self.matcher = Matcher(node.pattern, self.schema, node.keys)
        self.waiting = []
        self.partial_matches: dict[Key, PartialMatches] = {}

    def accept(self, rows: Sequence[dict[str, object]], time: int, outcome: OperatorOutcome) -> None:
        """Rows, then time that passes."""
        done = self.matcher.step(self.partial_matches, pl.DataFrame(rows, schema=self.schema), time)
        for key, course in done.changed.items():
            self.partial_matches.pop(key, None)
            if course is not None:
                self.partial_matches[key] = course
        outcome.side_outputs.setdefault(graph.TIMEOUTS, []).extend(
            select_matches(done.timeouts, self.node.select, self.node.keys).to_dicts()
        )
        for pane in select_matches(done.matches, self.node.select, self.node.keys).iter_rows(named=True):
            key = tuple(pane[column] for column in self.node.keys)
            outcome.records.append(((key, (pane["window_start"], pane["window_end"])), pane))
            outcome.changes.append(Change(pane["op"], pane))


class ModelRules:
    """Rules over rows: each a pattern with courses of its own, from the moment it comes until another of its name does."""

    def __init__(self, node: graph.Operation, values: ComputeValues) -> None:  # noqa: ARG002 - a match has no aggregates
        assert isinstance(node, MatchRules)
        self.node = node
        self.waiting: list[Arrival] = []
        self.rules: dict[str, tuple[Matcher, dict[Key, PartialMatches]]] = {}

    def step(self, arrivals: Sequence[Arrival], time: float, now: int, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """A batch: as patterns take rows; a rule takes effect where it stands among them."""
        for arrival in release_rows(self.waiting, arrivals, time, outcome):
            if arrival.row[RULE_NAME] is not None:
                self.change_rule(arrival.row, outcome)
            else:
                for name in self.rules:
                    self.accept(
                        name,
                        [{column: arrival.row[column] for column in self.node.row_schema}],
                        arrival.row["event_time"],
                        outcome,
                    )
        if time > -END_OF_STREAM:
            for name in self.rules:
                self.accept(name, [], END_OF_STREAM if time >= END_OF_STREAM else int(time), outcome)

    def change_rule(self, row: dict[str, Any], outcome: OperatorOutcome) -> None:
        """A rule is new, takes another's place, or is withdrawn; one that is wrong changes nothing."""
        try:
            matcher = self.node.compile_rule(row[RULE_TEXT]) if row[RULE_TEXT] else None
        except DefinitionError:
            return
        if row[RULE_NAME] in self.rules:
            self.accept(row[RULE_NAME], [], row["event_time"], outcome)
            del self.rules[row[RULE_NAME]]
        if matcher is not None:
            self.rules[row[RULE_NAME]] = (matcher, {})

    def accept(self, name: str, rows: Sequence[dict[str, Any]], time: int, outcome: OperatorOutcome) -> None:
        """Rows for one rule, then time that passes."""
        matcher, courses = self.rules[name]
        done = matcher.step(courses, pl.DataFrame(rows, schema=self.node.row_schema), time)
        for key, course in done.changed.items():
            courses.pop(key, None)
            if course is not None:
                courses[key] = course
        for pane in collect_matches(done.matches, self.node, name).iter_rows(named=True):
            key = tuple(pane[column] for column in self.node.keys)
            outcome.records.append(((key, (pane["window_start"], pane["window_end"])), pane))
            outcome.changes.append(Change(pane["op"], pane))


class ModelMatchRecognize(ModelOrderedRows):
    """What a row pattern of SQL shows: all rows so far are searched again each time, and what was not shown before is new."""

    def __init__(self, node: graph.Operation, values: ComputeValues) -> None:  # noqa: ARG002 - a match has no aggregates
        from millrace.patterns.sql.streams import stream_matcher

        assert isinstance(node, graph.MatchRecognize)
        self.node = node
        self.schema = node.inputs[0].schema
        self.matcher = stream_matcher(node.row_pattern, self.schema, node.keys)
        self.waiting = []
        self.rows: dict[Key, list[tuple[object, ...]]] = {}
        self.shown_count: dict[Key, int] = {}

    def accept(self, rows: Sequence[dict[str, object]], time: int, outcome: OperatorOutcome) -> None:
        """Rows, then time that passes."""
        from millrace.patterns.sql.streams import to_panes

        if rows:
            for key, lane in self.matcher.rows_by_key(pl.DataFrame(rows, schema=self.schema)):
                self.rows.setdefault(key, []).extend(lane)
        for key, lane in self.rows.items():
            _, shown = self.matcher.match_partition(None, lane, time, is_ended=time >= END_OF_STREAM)
            for pane in to_panes(
                shown[self.shown_count.get(key, 0) :], self.matcher, self.node.schema
            ).iter_rows(named=True):
                outcome.records.append(((key, (pane["window_start"], pane["window_end"])), pane))
                outcome.changes.append(Change(pane["op"], pane))
            self.shown_count[key] = len(shown)


Recognizer = ModelMatch | ModelRules | ModelMatchRecognize
RECOGNIZERS: dict[type[graph.Operation], type[Recognizer]] = {
    graph.MatchPattern: ModelMatch,
    MatchRules: ModelRules,
    graph.MatchRecognize: ModelMatchRecognize,
}
"""What finds sequences, by the node that asks for it."""
