"""Row patterns of SQL over rows: of a key the rows are kept that a match may still take, as bytes, until the bound gives them up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import graph
from millrace.aggregates import ORDER
from millrace.engine.keyed_bytes import Courses
from millrace.engine.operators.emit import PAIR
from millrace.engine.progress import END
from millrace.engine.state import SlotState
from millrace.patterns.sql.matcher import Course, Key, RowMatcher
from millrace.patterns.sql.streams import TIME, as_panes, stream_matcher


@dataclass(frozen=True, eq=False)
class RowMatches(Courses):
    """The operator of a row pattern: rows wait and are released in order, like those of windows that rows cut."""

    @cached_property
    def node(self) -> graph.MatchRows:
        """What it is to find."""
        node = self.operator.node
        assert isinstance(node, graph.MatchRows)
        return node

    @cached_property
    def matcher(self) -> RowMatcher:
        """What finds it."""
        return stream_matcher(self.node.rows, self.node.inputs[0].schema, self.node.keys)

    def _taken(
        self, state: SlotState, free: pl.DataFrame | None, seq: int, passed: tuple[int, int], *, ended: bool
    ) -> tuple[SlotState, pl.DataFrame]:
        """Rows taken in order, time that has passed, and what is shown of the matches found."""
        id, (since, time) = self.operator.id, passed
        rows = self._nothing.select(self.node.keys) if free is None else free.sort(ORDER)
        known = self._known(state, rows, since, END if ended else time)
        if rows.is_empty() and known.is_empty():
            return state.expire(id, "courses", time), self.no_shown
        before: dict[Key, tuple[int, bytes]] = {
            row[:-2]: (row[-2], row[-1]) for row in known.select(*self.node.keys, "_until", "_course").rows()
        }
        courses = {
            key: Course.load(data, list(self.matcher.looking.schema)) for key, (_, data) in before.items()
        }
        schema = self.matcher.looking.schema
        frame = rows.select(list(schema)) if free is not None else schema.to_frame()
        changed, shown = self.matcher.step(courses, frame, time, ended=ended)
        written = [
            (
                *key,
                *self._times(course, before[key][0] if key in before else END),
                None if course is None else course.dump(),
                seq,
            )
            for key, course in changed.items()
        ]
        state = state.append(
            id,
            "courses",
            pl.DataFrame(written, schema=self._nothing.schema, orient="row"),
            self._layout_since(since),
        )
        panes = as_panes(shown, self.matcher, self.node.schema).with_columns(
            pl.int_range(pl.len(), dtype=pl.Int64).alias(PAIR)
        )
        return state.expire(id, "courses", time), panes.select(*self.node.schema, PAIR)

    def _times(self, course: Course | None, until: int) -> tuple[int, int]:
        """When time decides about the row at which the search stands; all is over when the newest row is too old for any match."""
        if course is None:
            return END, until
        time, span = list(self.matcher.looking.schema).index(TIME), self.node.rows.span or 0
        due = course.rows[course.start][time] + span if course.start < len(course.rows) else END
        return due, END if self.matcher.lasting or not course.rows else course.rows[-1][time] + span
