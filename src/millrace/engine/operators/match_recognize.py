"""Row patterns of SQL over rows: of a key the rows are kept that a match may still take, as bytes, until the bound gives them up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import graph
from millrace.aggregates import ORDER
from millrace.engine.keyed_bytes import KeyedBytes
from millrace.engine.operators.emit import PAIR
from millrace.engine.progress import END_OF_STREAM
from millrace.engine.state import SlotState
from millrace.patterns.sql.matcher import Key, RowPatternMatcher, SqlPartition
from millrace.patterns.sql.streams import TIME, stream_matcher, to_panes


@dataclass(frozen=True, eq=False)
class MatchRecognizeOperator(KeyedBytes):
    """The operator of a row pattern: rows wait and are released in order, like those of windows that rows cut."""

    @cached_property
    def node(self) -> graph.MatchRecognize:
        """What it is to find."""
        node = self.operator.node
        assert isinstance(node, graph.MatchRecognize)
        return node

    @cached_property
    def matcher(self) -> RowPatternMatcher:
        """What finds it."""
        return stream_matcher(self.node.row_pattern, self.node.inputs[0].schema, self.node.keys)

    def _process_rows(
        self,
        state: SlotState,
        released: pl.DataFrame | None,
        version: int,
        interval: tuple[int, int],
        *,
        ended: bool,
    ) -> tuple[SlotState, pl.DataFrame]:
        """Rows taken in order, time that has passed, and what is shown of the matches found."""
        operator_id, (old_watermark, watermark) = self.operator.id, interval
        rows = self._empty.select(self.node.keys) if released is None else released.sort(ORDER)
        stored = self._load_values(state, rows, old_watermark, END_OF_STREAM if ended else watermark)
        if rows.is_empty() and stored.is_empty():
            return state.expire(operator_id, "courses", watermark), self.empty_panes
        stored_by_key: dict[Key, tuple[int, bytes]] = {
            row[:-2]: (row[-2], row[-1]) for row in stored.select(*self.node.keys, "_until", "_course").rows()
        }
        partitions = {
            key: SqlPartition.decode(data, list(self.matcher.compiled.schema))
            for key, (_, data) in stored_by_key.items()
        }
        schema = self.matcher.compiled.schema
        frame = rows.select(list(schema)) if released is not None else schema.to_frame()
        changed, emitted = self.matcher.step(partitions, frame, watermark, is_ended=ended)
        changed_rows = [
            (
                *key,
                *self._due_and_expiry(
                    partition, stored_by_key[key][0] if key in stored_by_key else END_OF_STREAM
                ),
                None if partition is None else partition.encode(),
                version,
            )
            for key, partition in changed.items()
        ]
        state = state.append(
            operator_id,
            "courses",
            pl.DataFrame(changed_rows, schema=self._empty.schema, orient="row"),
            self._layout_since(old_watermark),
        )
        panes = to_panes(emitted, self.matcher, self.node.schema).with_columns(
            pl.int_range(pl.len(), dtype=pl.Int64).alias(PAIR)
        )
        return state.expire(operator_id, "courses", watermark), panes.select(*self.node.schema, PAIR)

    def _due_and_expiry(self, partition: SqlPartition | None, expiry: int) -> tuple[int, int]:
        """When time decides about the row at which the search stands; all is over when the newest row is too old for any match."""
        if partition is None:
            return END_OF_STREAM, expiry
        time_index, span = list(self.matcher.compiled.schema).index(TIME), self.node.row_pattern.span or 0
        due = (
            partition.rows[partition.search_start][time_index] + span
            if partition.search_start < len(partition.rows)
            else END_OF_STREAM
        )
        return due, END_OF_STREAM if self.matcher.is_lasting or not partition.rows else partition.rows[-1][
            time_index
        ] + span
