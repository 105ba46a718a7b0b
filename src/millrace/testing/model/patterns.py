"""Patterns in the model: rows wait for the watermark, then all rows of their key are matched again.

What a pattern matches is defined in `pattern_definition.py`, when matches are shown in `pattern_stream.py`,
and both for row patterns of SQL in `row_pattern_definition.py`. Nothing of the matchers of `patterns/` takes
part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from millrace import graph, panes
from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.errors import DefinitionError
from millrace.graph.build.rules import MATCH_STEPS, MATCH_TIMES, RULE_NAME, RULE_TEXT, MatchRules
from millrace.patterns.builder import Pattern
from millrace.patterns.conditions import EarlierValue, earlier_values
from millrace.testing.model.outcome import (
    ArrivedRow,
    Change,
    ComputeValues,
    Key,
    OperatorOutcome,
    release_rows,
)
from millrace.testing.model.pattern_stream import PatternStream, ShownMatch
from millrace.testing.model.values import Row, clip_time

if TYPE_CHECKING:
    from millrace.testing.model.row_pattern_definition import ShownRow

SHOWN_ONCE = {"settled_index": 0, "timing": "on_time", "final": True, "op": panes.ADD}
"""The history of a pane that nothing refines."""


class ModelMatch:
    """The matches of one pattern over rows, each shown once, when it is certain."""

    def __init__(self, node: graph.Operation, values: ComputeValues) -> None:  # noqa: ARG002 - a match has no aggregates
        assert isinstance(node, graph.MatchPattern)
        self.node = node
        self.schema = node.inputs[0].schema
        self.waiting: list[ArrivedRow] = []
        self.streams: dict[Key, PatternStream] = {}

    def step(self, arrivals: Sequence[ArrivedRow], time: float, now: int, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """Refuses late rows, adds those before the new watermark in order, then lets time pass."""
        new_rows: dict[Key, list[Row]] = defaultdict(list)
        for arrival in release_rows(self.waiting, arrivals, time, outcome):
            key = key_of(self.node, arrival.row)
            self.streams.setdefault(key, PatternStream(self.node.pattern, self.schema))
            new_rows[key].append(arrival.row)
        for key, stream in self.streams.items() if time > BEFORE_ALL else ():
            matches, timeouts = stream.advance(new_rows[key], clip_time(time), is_ended=time >= END_OF_STREAM)
            outcome.side_outputs.setdefault(graph.TIMEOUTS, []).extend(map(self.to_pane, timeouts))
            for match in matches:
                emit_pane(key, self.to_pane(match), outcome)

    def to_pane(self, match: ShownMatch) -> Row:
        """From the first event of a match to its last, or to when it was certain."""
        events = pl.DataFrame([dict(row) for row in match.rows], schema=self.schema)
        questions = dict.fromkeys(
            question for expr in self.node.select.values() for question in earlier_values(expr)
        )
        answers = pl.DataFrame([answer_question(question, match, events) for question in questions])
        selected = answers.select(expr.alias(name) for name, expr in self.node.select.items())
        first, last = match.rows[0]["event_time"], match.rows[-1]["event_time"]
        at = last if match.known_at is None else match.known_at - 1
        return {
            **{key: match.rows[0][key] for key in self.node.keys},
            **selected.row(0, named=True),
            "event_time": at,
            "window_start": first,
            "window_end": at + 1,
            "index": 0,
            **SHOWN_ONCE,
        }


class ModelRules:
    """Rules over rows: each is a pattern that holds from its time until the next rule of its name."""

    def __init__(self, node: graph.Operation, values: ComputeValues) -> None:  # noqa: ARG002 - a match has no aggregates
        assert isinstance(node, MatchRules)
        self.node = node
        self.waiting: list[ArrivedRow] = []
        self.rules: dict[str, tuple[Pattern, dict[Key, PatternStream]]] = {}

    def step(self, arrivals: Sequence[ArrivedRow], time: float, now: int, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """As `ModelMatch`; a rule takes effect at its place among the rows."""
        for arrival in release_rows(self.waiting, arrivals, time, outcome):
            if arrival.row[RULE_NAME] is not None:
                self.change_rule(arrival.row, outcome)
                continue
            row = {column: arrival.row[column] for column in self.node.row_schema}
            for pattern, streams in self.rules.values():
                stream = streams.setdefault(
                    key_of(self.node, row), PatternStream(pattern, self.node.row_schema)
                )
                stream.add(row)
        for name in self.rules if time > BEFORE_ALL else ():
            self.pass_time(name, clip_time(time), outcome, is_ended=time >= END_OF_STREAM)

    @property
    def output_delay(self) -> int:
        """How far behind the watermark a match of the rules that hold may be."""
        return max((pattern.match_delay for pattern, _ in self.rules.values()), default=0)

    def change_rule(self, row: Row, outcome: OperatorOutcome) -> None:
        """A rule is new, takes another's place, or is withdrawn; one that is wrong changes nothing."""
        name, text = row[RULE_NAME], row[RULE_TEXT]
        try:
            pattern = self.node.compile_rule(text).pattern if text else None
        except DefinitionError:
            return
        if name in self.rules:
            self.pass_time(name, row["event_time"], outcome, is_ended=False)
            del self.rules[name]
        if pattern is not None:
            self.rules[name] = (pattern, {})

    def pass_time(self, name: str, time: int, outcome: OperatorOutcome, *, is_ended: bool) -> None:
        """What one rule shows of its rows up to a time."""
        for key, stream in self.rules[name][1].items():
            for match in stream.advance([], time, is_ended=is_ended)[0]:
                emit_pane(key, self.to_pane(name, match), outcome)

    def to_pane(self, name: str, match: ShownMatch) -> Row:
        """The events of a match as lists."""
        times = [row["event_time"] for row in match.rows]
        end = times[-1] + 1 if match.known_at is None else match.known_at
        values = {
            **{key: match.rows[0][key] for key in self.node.keys},
            **{column: [row[column] for row in match.rows] for column in self.node.show},
            RULE_NAME: name,
            MATCH_STEPS: match.steps,
            MATCH_TIMES: times,
            "event_time": end - 1,
            "window_start": times[0],
            "window_end": end,
            "index": 0,
            **SHOWN_ONCE,
        }
        return {column: values[column] for column in self.node.schema}


class ModelMatchRecognize:
    """The results of a row pattern of SQL: each batch searches all rows again and emits what is new."""

    def __init__(self, node: graph.Operation, values: ComputeValues) -> None:  # noqa: ARG002 - a match has no aggregates
        from millrace.testing.model.row_pattern_definition import RowPatternDefinition  # needs sqlglot

        assert isinstance(node, graph.MatchRecognize)
        self.node = node
        self.schema = node.inputs[0].schema
        self.definition = RowPatternDefinition(node.row_pattern, self.schema, "event_time")
        self.waiting: list[ArrivedRow] = []
        self.rows: dict[Key, list[tuple[Any, ...]]] = defaultdict(list)
        self.shown_count: dict[Key, int] = defaultdict(int)

    def step(self, arrivals: Sequence[ArrivedRow], time: float, now: int, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """Refuses late rows, adds those before the new watermark in order, then lets time pass."""
        for arrival in release_rows(self.waiting, arrivals, time, outcome):
            row = tuple(arrival.row[column] for column in self.schema)
            self.rows[key_of(self.node, arrival.row)].append(row)
        for key, rows in self.rows.items():
            shown = list(
                self.definition.match_partition(rows, clip_time(time), is_ended=time >= END_OF_STREAM)
            )
            new_panes = [self.to_pane(row) for row in shown[self.shown_count[key] :]]
            for pane in pl.DataFrame(new_panes, schema=self.node.schema).to_dicts():
                emit_pane(key, pane, outcome)
            self.shown_count[key] = len(shown)

    def to_pane(self, shown: ShownRow) -> Row:
        """From the first row of a match to its last; with all rows per match, each row at its own time."""
        place = list(self.schema).index("event_time")
        at = shown.row if self.node.row_pattern.all_rows else shown.last
        values = {
            **dict(zip(self.schema, shown.row, strict=True)),
            **dict(zip(self.definition.measures, shown.measures, strict=True)),
            "event_time": at[place],
            "window_start": shown.first[place],
            "window_end": shown.last[place] + 1,
            "index": shown.index,
            **SHOWN_ONCE,
            "settled_index": shown.index,
        }
        return {column: values[column] for column in self.node.schema}


def key_of(node: graph.Operation, row: Row) -> Key:
    """The key of a row."""
    return tuple(row[column] for column in node.keys)


def emit_pane(key: Key, pane: Row, outcome: OperatorOutcome) -> None:
    """A pane that is shown once."""
    outcome.records.append(((key, (pane["window_start"], pane["window_end"])), pane))
    outcome.changes.append(Change(pane["op"], pane))


def answer_question(question: EarlierValue, match: ShownMatch, events: pl.DataFrame) -> pl.Series:
    """What `select` asks of the events that one step took, as a column of one row."""
    took = pl.Series([step == question.step for step in match.steps], dtype=pl.Boolean)
    column = question.column or events.columns[0]
    answer = events.filter(took).select(question.aggregate(pl.col(column))).to_series()
    return answer.implode() if question.kind == "collect" else answer


Recognizer = ModelMatch | ModelRules | ModelMatchRecognize
RECOGNIZERS: dict[type[graph.Operation], type[Recognizer]] = {
    graph.MatchPattern: ModelMatch,
    MatchRules: ModelRules,
    graph.MatchRecognize: ModelMatchRecognize,
}
"""What finds sequences, by the node that asks for it."""
