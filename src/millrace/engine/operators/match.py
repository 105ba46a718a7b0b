"""Patterns over rows: what is kept of a key is the matches that have begun, as bytes, until the bound of the pattern gives them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import graph
from millrace.aggregates import ORDER
from millrace.engine.keyed_bytes import Courses
from millrace.engine.operators.emit import PAIR
from millrace.engine.progress import END
from millrace.engine.state import SlotState
from millrace.patterns.cep import encoding
from millrace.patterns.cep.matcher import Key, Matched, Matcher
from millrace.patterns.cep.partial_matches import Course
from millrace.patterns.cep.select import picked


@dataclass(frozen=True, eq=False)
class Matches(Courses):
    """The operator of a pattern: rows wait and are released in order, like those of windows that rows cut."""

    @cached_property
    def node(self) -> graph.Match:
        """What it is to find."""
        node = self.operator.node
        assert isinstance(node, graph.Match)
        return node

    @cached_property
    def matcher(self) -> Matcher:
        """What finds it."""
        timeouts = graph.TIMEOUTS in self.operator.ports
        return Matcher(self.node.pattern, self.node.inputs[0].schema, self.node.keys, timeouts=timeouts)

    def _said(
        self, state: SlotState, free: pl.DataFrame | None, seq: int, passed: tuple[int, int], *, ended: bool
    ) -> tuple[SlotState, pl.DataFrame, Mapping[str, pl.DataFrame]]:
        """Rows taken in order, time that has passed, and the matches found."""
        id, (since, time) = self.operator.id, passed
        rows = self.matcher.ready(self.matcher.schema.to_frame() if free is None else free.sort(ORDER))
        known = self._known(state, rows, since, END if ended else time)
        if rows.is_empty() and known.is_empty():
            return state.expire(id, "courses", time), self.no_shown, {}
        names = [*self.node.keys, "_until", "_course"]
        before: dict[Key, tuple[int, bytes]] = {
            row[:-2]: (row[-2], row[-1]) for row in known.select(names).iter_rows()
        }
        courses = {
            key: encoding.load(data, self.matcher.states, list(self.matcher.schema))
            for key, (_, data) in before.items()
        }
        done = self.matcher.follow(courses, rows, END if ended else time)
        layout = self._layout_since(since)
        state = state.append(
            id,
            "courses",
            self._written(done, {key: until for key, (until, _) in before.items()}, seq),
            layout,
        )
        sides = {graph.TIMEOUTS: self._panes_of(done.timeouts)} if self.matcher.timeouts else {}
        return state.expire(id, "courses", time), self._panes_of(done.matches), sides

    def _panes_of(self, found: pl.DataFrame) -> pl.DataFrame:
        panes = picked(found, self.node.select, self.node.keys).with_columns(
            pl.int_range(pl.len(), dtype=pl.Int64).alias(PAIR)
        )
        return panes.select(*self.node.schema, PAIR)

    def _written(self, done: Matched, untils: dict[Key, int], seq: int) -> pl.DataFrame:
        """What changed; a key of which nothing is left says so until what was kept of it would have ended anyway."""
        rows = [
            (*key, *self._times(key, course, untils), None if course is None else encoding.dump(course), seq)
            for key, course in done.courses.items()
        ]
        return pl.DataFrame(rows, schema=self._nothing.schema, orient="row")

    def _times(self, key: Key, course: Course | None, untils: dict[Key, int]) -> tuple[int, int]:
        if course is None:
            return END, untils[key]
        span, due = self.node.pattern.span, self.matcher.rules.due(course)
        until = END if span is None else max(run.start.time for run in course.runs) + span
        return END if due is None else due, until
