"""Patterns over rows: what is kept of a key is the matches that have begun, as bytes, until the bound of the pattern gives them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import graph
from millrace.aggregates import ORDER
from millrace.engine.assigning import PLACE
from millrace.engine.firing import PAIR
from millrace.engine.progress import END
from millrace.engine.sequences import SequenceWindows
from millrace.engine.state import Layout, SlotState
from millrace.patterns import stored
from millrace.patterns.courses import Course
from millrace.patterns.matcher import Key, Matched, Matcher
from millrace.patterns.picking import picked


@dataclass(frozen=True, eq=False)
class Matches(SequenceWindows):
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

    @cached_property
    def _kept(self) -> list[str]:
        return [c for c in dict.fromkeys([*self.node.inputs[0].schema, *ORDER, PLACE]) if c not in self.node.keys]

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        """No courses: `_due`, when time alone changes something, and `_until`, when the bound has ended all of it."""
        schema = self.node.inputs[0].schema
        numbers = {"_due": pl.Int64(), "_until": pl.Int64(), "_course": pl.Binary(), "_seq": pl.Int64()}
        return pl.Schema({**{key: schema[key] for key in self.node.keys}, **numbers}).to_frame()

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
        before: dict[Key, tuple[int, bytes]] = {row[:-2]: (row[-2], row[-1]) for row in known.select(names).iter_rows()}
        courses = {key: stored.load(data, self.matcher.states) for key, (_, data) in before.items()}
        done = self.matcher.follow(courses, rows, END if ended else time)
        layout = Layout(pl.col("_due"), pl.col("_until"), lambda frame: self._newest(frame).filter(pl.col("_until") > since))
        state = state.append(id, "courses", self._written(done, {key: until for key, (until, _) in before.items()}, seq), layout)
        sides = {graph.TIMEOUTS: self._panes_of(done.timeouts)} if self.matcher.timeouts else {}
        return state.expire(id, "courses", time), self._panes_of(done.matches), sides

    def _panes_of(self, found: pl.DataFrame) -> pl.DataFrame:
        panes = picked(found, self.node.select, self.node.keys).with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(PAIR))
        return panes.select(*self.node.schema, PAIR)

    def _known(self, state: SlotState, rows: pl.DataFrame, since: int, time: int) -> pl.DataFrame:
        """The courses of the keys that rows came for, or that time moves."""
        keys = list(self.node.keys)
        chunks = [chunk for chunk in state.table(self.operator.id, "courses").chunks if chunk.high > since]
        moved = [chunk.frame.filter(pl.col("_due") <= time).select(keys) for chunk in chunks if chunk.low <= time]
        wanted = pl.concat([rows.select(keys), *moved]).unique()
        found = [chunk.frame.join(wanted, on=keys, how="semi", nulls_equal=True) for chunk in chunks]
        newest = self._newest(pl.concat([self._nothing, *found]))
        return newest.filter(pl.col("_course").is_not_null() & (pl.col("_until") > since))

    def _newest(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.sort("_seq").unique(self.node.keys, keep="last", maintain_order=True)

    def _written(self, done: Matched, untils: dict[Key, int], seq: int) -> pl.DataFrame:
        """What changed; a key of which nothing is left says so until what was kept of it would have ended anyway."""
        rows = [
            (*key, *self._times(key, course, untils), None if course is None else stored.dump(course), seq)
            for key, course in done.courses.items()
        ]
        return pl.DataFrame(rows, schema=self._nothing.schema, orient="row")

    def _times(self, key: Key, course: Course | None, untils: dict[Key, int]) -> tuple[int, int]:
        if course is None:
            return END, untils[key]
        span, due = self.node.pattern.span, self.matcher.rules.due(course)
        until = END if span is None else max(run.start.time for run in course.runs) + span
        return END if due is None else due, until
