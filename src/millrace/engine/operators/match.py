"""Patterns over rows: what is kept of a key is the matches that have begun, as bytes, until the bound of the pattern gives them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import graph
from millrace.aggregates import ORDER
from millrace.engine.keyed_bytes import KeyedBytes
from millrace.engine.operators.emit import PAIR
from millrace.engine.progress import END_OF_STREAM
from millrace.engine.state import SlotState
from millrace.patterns.cep import encoding
from millrace.patterns.cep.matcher import Key, Matcher, MatcherResult
from millrace.patterns.cep.partial_matches import PartialMatches
from millrace.patterns.cep.select import select_matches


@dataclass(frozen=True, eq=False)
class MatchOperator(KeyedBytes):
    """The operator of a pattern: rows wait and are released in order, like those of windows that rows cut."""

    @cached_property
    def node(self) -> graph.MatchPattern:
        """What it is to find."""
        node = self.operator.node
        assert isinstance(node, graph.MatchPattern)
        return node

    @cached_property
    def matcher(self) -> Matcher:
        """What finds it."""
        timeouts = graph.TIMEOUTS in self.operator.side_outputs
        return Matcher(self.node.pattern, self.node.inputs[0].schema, self.node.keys, needs_timeouts=timeouts)

    def _process_ordered(
        self,
        state: SlotState,
        released: pl.DataFrame | None,
        version: int,
        interval: tuple[int, int],
        *,
        ended: bool,
    ) -> tuple[SlotState, pl.DataFrame, Mapping[str, pl.DataFrame]]:
        """Rows taken in order, time that has passed, and the matches found."""
        operator_id, (old_watermark, watermark) = self.operator.id, interval
        rows = self.matcher.prepare_rows(
            self.matcher.schema.to_frame() if released is None else released.sort(ORDER)
        )
        stored = self._load_values(state, rows, old_watermark, END_OF_STREAM if ended else watermark)
        if rows.is_empty() and stored.is_empty():
            return state.expire(operator_id, "courses", watermark), self.empty_panes, {}
        names = [*self.node.keys, "_until", "_course"]
        stored_by_key: dict[Key, tuple[int, bytes]] = {
            row[:-2]: (row[-2], row[-1]) for row in stored.select(names).iter_rows()
        }
        partial_matches = {
            key: encoding.decode_matches(data, self.matcher.states, list(self.matcher.schema))
            for key, (_, data) in stored_by_key.items()
        }
        result = self.matcher.match_prepared(partial_matches, rows, END_OF_STREAM if ended else watermark)
        layout = self._layout_since(old_watermark)
        state = state.append(
            operator_id,
            "courses",
            self._changed_partial_matches(
                result, {key: expiry for key, (expiry, _) in stored_by_key.items()}, version
            ),
            layout,
        )
        side_outputs = (
            {graph.TIMEOUTS: self._matches_to_panes(result.timeouts)} if self.matcher.needs_timeouts else {}
        )
        return (
            state.expire(operator_id, "courses", watermark),
            self._matches_to_panes(result.matches),
            side_outputs,
        )

    def _matches_to_panes(self, matches: pl.DataFrame) -> pl.DataFrame:
        panes = select_matches(matches, self.node.select, self.node.keys).with_columns(
            pl.int_range(pl.len(), dtype=pl.Int64).alias(PAIR)
        )
        return panes.select(*self.node.schema, PAIR)

    def _changed_partial_matches(
        self, result: MatcherResult, expiries: dict[Key, int], version: int
    ) -> pl.DataFrame:
        """What changed; a key of which nothing is left says so until what was kept of it would have ended anyway."""
        rows = [
            (
                *key,
                *self._due_and_expiry(key, matches, expiries),
                None if matches is None else encoding.encode_matches(matches),
                version,
            )
            for key, matches in result.changed.items()
        ]
        return pl.DataFrame(rows, schema=self._empty.schema, orient="row")

    def _due_and_expiry(
        self, key: Key, matches: PartialMatches | None, expiries: dict[Key, int]
    ) -> tuple[int, int]:
        if matches is None:
            return END_OF_STREAM, expiries[key]
        span, due = self.node.pattern.span, self.matcher.runner.next_deadline(matches)
        expiry = END_OF_STREAM if span is None else max(run.start.time for run in matches.running) + span
        return END_OF_STREAM if due is None else due, expiry
