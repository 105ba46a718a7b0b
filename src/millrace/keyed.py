"""A stream grouped by key: aggregations, joins, patterns and processors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any

import polars as pl

from millrace import aggregates, durations
from millrace.aggregates import Aggregate, Reduction
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.graph.build import join, match
from millrace.graph.build import rules as rule_nodes
from millrace.graph.build.aggregate import build_aggregation
from millrace.graph.build.join import JoinSide, JoinType
from millrace.graph.build.shorthands import AggregationMethods
from millrace.patterns import Pattern, RowPattern
from millrace.processors import Processor
from millrace.stream import Stream
from millrace.topics import SYSTEM_COLUMNS
from millrace.values import expressions
from millrace.values.calls import NoSuchMethod, explain_errors, require_type

if TYPE_CHECKING:
    from millrace.graph.build.table import Table


@explain_errors
@dataclass(frozen=True, eq=False)
class Keyed(AggregationMethods):
    """Rows grouped by the values of columns; each method makes a stream of results of them."""

    stream: Stream
    keys: tuple[str, ...]

    @property
    def _value_columns(self) -> list[str]:
        return [c for c in self.stream.columns if c not in SYSTEM_COLUMNS and c not in self.keys]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Names the remedy where a method of streams is called on grouped rows."""
            if not name.startswith("_") and hasattr(Stream, name):
                raise NoSuchMethod(
                    f"{name} is of streams, and these rows are grouped by a key; say it before .group_by(), or behind .count() and the like"
                )
            raise AttributeError(f"a keyed stream has no {name!r}", name=name, obj=self)

    def aggregate(self, *unnamed: object, **aggregates_by_name: Reduction | Aggregate) -> Stream:
        """One result per key and window, a column for each aggregate."""
        if unnamed:
            raise DefinitionError(
                f"aggregate({unnamed[0]!s:.80}) needs a name for its column; write aggregate(n=aggregates.count())"
            )
        windowing = self.stream.windowing
        if windowing is None:
            raise DefinitionError(
                "aggregate() follows no window, so no result would ever be complete; say .window(...) first"
            )
        if not aggregates_by_name:
            raise DefinitionError("aggregate() needs at least one aggregate, such as n=aggregates.count()")
        reductions = {
            name: aggregates.own(definition) if isinstance(definition, Aggregate) else definition
            for name, definition in aggregates_by_name.items()
        }
        node = build_aggregation(self.stream.node, self.keys, reductions, windowing)
        return Stream(node, windowing)

    def join(
        self,
        other: Keyed | Table,
        *,
        how: JoinType = "inner",
        within: tuple[Duration, Duration] | None = None,
        suffix: str = "_right",
    ) -> Stream:
        """Each row of this stream beside each of the other with the same key in the same window; key columns may be called differently.
        With `within=("-5s", "10s")` times decide instead: the other row is from 5 s before to less than 10 s after this one. With a table
        (`mr.table`), each row is beside what that held for its key at its event time. `how` says which rows without a partner are kept, with
        null columns. A correction of a window adds (`op` `+`) or withdraws (`-`) single rows; the other two say everything once.
        """
        require_type(
            "join",
            other,
            (Keyed, _table_type()),
            "a keyed stream or a table; group it by its key: other.group_by('key')",
        )
        return Stream(
            join.build_join(self._as_join_side(), other._as_join_side(), within, how, suffix),
            self.stream.windowing,
        )

    def cogroup(self, other: Keyed, *, names: tuple[str, str] = ("left", "right")) -> Stream:
        """For each key and window all rows of both streams, as two lists of structs in order of event time."""
        require_type("cogroup", other, Keyed, "a keyed stream; group it by its key: other.group_by('key')")
        return Stream(
            join.build_cogroup(self._as_join_side(), other._as_join_side(), names), self.stream.windowing
        )

    def _as_join_side(self) -> JoinSide:
        return JoinSide(self.stream.node, self.keys, self.stream.windowing)

    def match(self, pattern: Pattern, *, select: Mapping[str, pl.Expr]) -> Stream:
        """One result per match of a pattern in the rows of a key, a column for each of `select`."""
        return Stream(match.build_match(self.stream.node, self.keys, pattern, select), self.stream.windowing)

    def process(self, processor: Processor, *, broadcast: Stream | None = None) -> Stream:
        """A user's own code, with state and timers per key: see `millrace.processors`.

        Rows of `broadcast` (rules that change while the job runs) come to the processor in every slot, in order of event time with the others, and before
        rows of the same time. Time passes only as far as both streams vouch: give a quiet one a watermark with `idle=`.
        """
        require_type("process(broadcast=...)", broadcast, (Stream, NoneType), "a stream")
        other = None if broadcast is None else broadcast.node
        return Stream(
            match.build_process(self.stream.node, self.keys, processor, other), self.stream.windowing
        )

    def deduplicate(self, *columns: Any, within: Duration) -> Stream:
        """Of rows with equal key and `columns` only the first; they stay rows, for whatever follows a read.

        With `"event_time"` among the columns, copies are those of the same time: rows go on at once, and copies are known until the
        watermark of their partition has passed their time by `within`; a row that comes after that might be one, and is refused. So let it be no shorter than
        what follows still takes: the size of its windows and their lateness. Of copies that differ elsewhere, the first to come is kept (of one partition: the first in it).
        Without it, copies are those less than `within` after the first in order of event time. To know which that is, rows wait until the watermark has passed
        them, and rows behind it are refused.
        Several jobs that run together can share one deduplication and its state: give it a name, and end each job's chain with the same stream.
        """
        within_ms = durations.parse_positive(within, name="within")
        names = expressions.column_names("deduplicate", columns)
        return Stream(
            match.build_deduplication(self.stream.node, self.keys, names, within_ms), self.stream.windowing
        )

    def match_rules(self, rules: Stream, *, show: Sequence[str] = ()) -> Stream:
        """One result per match of any rule in the rows of a key: `rule`, `steps` and `times` of its events, and the columns `show` as lists.

        `rules` are rows of `name` and `pattern` (see `patterns.Rule`). One of a known name replaces it, with an empty pattern it withdraws it;
        the others keep what they have begun. A rule sees the rows after it in event time, so the watermark waits for the topic of rules, too:
        give that read an `idle` time. A rule that cannot be understood goes to the dead letters of its topic; the one it would replace stays.
        """
        require_type("match_rules", rules, Stream, "a stream of rules; read their topic")
        return Stream(
            rule_nodes.build_match_rules(self.stream.node, self.keys, rules.node, show), self.stream.windowing
        )

    def match_recognize(self, rows: RowPattern | str) -> Stream:
        """MATCH_RECOGNIZE (`patterns.match_recognize`, or what stands in its brackets in SQL) in the rows of a key; needs the extra `sql`."""
        return Stream(match.build_match_recognize(self.stream.node, self.keys, rows), self.stream.windowing)


def _table_type() -> type:
    from millrace.graph.build.table import Table

    return Table
