"""Conditions of patterns, evaluated for one event at a time, with values of earlier events as literals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from millrace.patterns import conditions
from millrace.patterns.conditions import Condition, EarlierValue
from millrace.testing.model.pattern_choices import MatchPath
from millrace.values.columns import HOLDS

EventRow = Mapping[str, Any]


@dataclass
class ConditionAnswers:
    """Evaluates conditions on the events of one key, given the events that a choice took before."""

    schema: pl.Schema
    rows: Sequence[EventRow]
    _answers: dict[Any, bool] = field(default_factory=dict)
    _answers_without_history: dict[int, list[Any]] = field(default_factory=dict)

    def holds(self, condition: Condition | None, event: int, path: MatchPath) -> bool:
        """Whether an event fulfils a condition after the events of `path`."""
        if condition is None:
            return True
        question = (id(condition), event, path)
        if question not in self._answers:
            self._answers[question] = self._evaluate(condition, event, path)
        return self._answers[question]

    def _evaluate(self, condition: Condition, event: int, path: MatchPath) -> bool:
        answers = [self._evaluate_term(term, event, path) for term in condition.terms]
        return any(answers) if condition.is_any else all(answers)

    def _evaluate_term(self, term: Any, event: int, path: MatchPath) -> bool:
        if isinstance(term, Condition):
            return self._evaluate(term, event, path)
        if not isinstance(term, pl.Expr):
            match: dict[str, list[Any]] = {}
            for step, number in path:
                match.setdefault(step, []).append(self.rows[number])
            return bool(term(self.rows[event], match))
        lookups = conditions.earlier_values(term)
        if not lookups:
            return self._answers_by_row(term)[event] is True
        literals = [pl.lit(self._look_back(lookup, path)).alias(lookup.name) for lookup in lookups]
        return self._frame[event : event + 1].with_columns(literals).select(term)[:, 0].to_list() == [True]

    def _answers_by_row(self, term: pl.Expr) -> list[Any]:
        if id(term) not in self._answers_without_history:
            answers = self._frame.with_columns(term.alias(HOLDS))[HOLDS]
            self._answers_without_history[id(term)] = answers.to_list()
        return self._answers_without_history[id(term)]

    @cached_property
    def _frame(self) -> pl.DataFrame:
        return pl.DataFrame([dict(row) for row in self.rows], schema=self.schema)

    def _look_back(self, lookup: EarlierValue, path: MatchPath) -> Any:
        if lookup.kind == "previous":
            return self.rows[path[-1][1]][lookup.column or ""] if path else None
        events = [event for step, event in path if step == lookup.step]
        if lookup.kind == "count":
            return len(events)
        values = [self.rows[event][lookup.column or ""] for event in events]
        if lookup.kind in ("first", "last"):
            return values[0 if lookup.kind == "first" else -1] if values else None
        series = pl.Series(values, dtype=self.schema[lookup.column or ""])
        return {"sum": series.sum, "avg": series.mean, "min": series.min, "max": series.max}[lookup.kind]()
