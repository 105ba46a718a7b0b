"""A stream grouped by key: aggregations, joins, patterns and processors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any

import polars as pl

from millrace import aggregates, durations, graph
from millrace.aggregates import Aggregate, Reduction
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.frames import FrameFunction
from millrace.graph.build import join, match, over
from millrace.graph.build import rules as rule_nodes
from millrace.graph.build.aggregate import build_aggregation
from millrace.graph.build.join import JoinSide, JoinType, TableSide
from millrace.graph.build.over import RowBounds, TimeBounds
from millrace.graph.build.regular_join import build_regular_join, is_regular
from millrace.graph.build.shorthands import AggregationMethods
from millrace.patterns import Pattern, RowPattern
from millrace.processors import Processor
from millrace.stream import Stream
from millrace.topics import SYSTEM_COLUMNS
from millrace.values import expressions
from millrace.values.calls import NoSuchMethod, explain_errors, require_type
from millrace.values.columns import RIGHT_SUFFIX
from millrace.values.missing_names import missing_name

if TYPE_CHECKING:
    from millrace.graph.build.table import Table


@explain_errors
@dataclass(frozen=True, eq=False)
class Keyed(AggregationMethods):
    """Rows grouped by the values of columns; each method makes a stream of results of them."""

    stream: Stream
    keys: tuple[str, ...]

    def __repr__(self) -> str:
        """The key and the columns."""
        return f"Keyed(by {', '.join(self.keys)}: {', '.join(self._value_columns)})"

    @property
    def _value_columns(self) -> list[str]:
        return [c for c in self.stream.columns if c not in SYSTEM_COLUMNS and c not in self.keys]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Names the remedy where a method of streams is called on grouped rows."""
            if not name.startswith("_") and hasattr(Stream, name):
                raise NoSuchMethod(
                    f"{name} is a method of streams, and these rows are grouped by a key; call it before "
                    ".group_by(), or behind .count() and the like"
                )
            raise missing_name("a keyed stream", name, dir(type(self)))

    def aggregate(self, *unnamed: object, **aggregates_by_name: Reduction | Aggregate) -> Stream:
        """One result per key and window, a column for each aggregate. Without a window, one per key of all
        rows so far: a changelog.
        """
        if unnamed:
            raise DefinitionError(
                f"aggregate({unnamed[0]!s:.80}) needs a name for its column; write "
                "aggregate(n=aggregates.count())"
            )
        windowing = self.stream.windowing or graph.UNWINDOWED
        if not aggregates_by_name:
            raise DefinitionError("aggregate() needs at least one aggregate, such as n=aggregates.count()")
        reductions = {
            name: aggregates.own(definition) if isinstance(definition, Aggregate) else definition
            for name, definition in aggregates_by_name.items()
        }
        return self._results(build_aggregation(self.stream.node, self.keys, reductions, windowing))

    def join(
        self,
        other: Keyed | Table,
        *,
        how: JoinType = "inner",
        within: tuple[Duration, Duration] | None = None,
        ttl: Duration | None = None,
        suffix: str = RIGHT_SUFFIX,
    ) -> Stream:
        """Pairs each row of this stream with each row of the other that has the same key.

        In a window set before, rows of the same window are partners. Without one, or with `ttl="1h"`, all
        rows are, or all that are less than an hour apart in event time: a regular join, over rows and
        changelogs. With `within=("-5s", "10s")` the other row is from 5 s before to less than 10 s after this
        one. With a table (`mr.table`), each row is paired with the row that the table held for its key at its
        event time. Key columns may have different names.

        `how` chooses which rows without a partner are kept, with null columns; in a regular join also `semi`
        and `anti`: the rows of this stream that have a partner, or none. Window joins and regular joins add
        (`op` `+`) and take back (`-`) single rows; the other two show every row once. Without a window and
        `ttl`, all rows are kept for ever.
        """
        require_type(
            "join",
            other,
            (Keyed, _table_type()),
            "a keyed stream or a table; group it by its key: other.group_by('key')",
        )
        left, right = self._as_join_side(), other._as_join_side()
        if within is None and not isinstance(right, TableSide) and is_regular(left, ttl):
            return self._results(build_regular_join(left, right, how, suffix, ttl))
        if ttl is not None:
            raise DefinitionError(
                "join(ttl=...) is for joins of two streams by key alone; with within= or a table, times "
                "decide by themselves what is kept; leave out ttl="
            )
        return self._results(join.build_join(left, right, within, how, suffix))

    def cogroup(self, other: Keyed, *, names: tuple[str, str] = ("left", "right")) -> Stream:
        """For each key and window, all rows of both streams as two lists of
        structs in order of event time.
        """
        require_type("cogroup", other, Keyed, "a keyed stream; group it by its key: other.group_by('key')")
        return self._results(join.build_cogroup(self._as_join_side(), other._as_join_side(), names))

    def _results(self, node: graph.Node) -> Stream:
        return Stream(node, self.stream.windowing)

    def _as_join_side(self) -> JoinSide:
        return JoinSide(self.stream.node, self.keys, self.stream.windowing)

    def match(self, pattern: Pattern, *, select: Mapping[str, pl.Expr]) -> Stream:
        """One result per match of a pattern in the rows of a key, a column for each of `select`."""
        return self._results(match.build_match(self.stream.node, self.keys, pattern, select))

    def process(self, processor: Processor, *, broadcast: Stream | None = None) -> Stream:
        """Runs a user's own code, with state and timers per key: see `millrace.processors`.

        Rows of `broadcast` (such as rules that change while the job runs) reach the processor in every slot,
        in order of event time with the others, and before rows of the same time. Time advances with the
        slower of the two watermarks: give a quiet stream one with `idle=`.
        """
        require_type("process(broadcast=...)", broadcast, (Stream, NoneType), "a stream")
        other = None if broadcast is None else broadcast.node
        return self._results(match.build_process(self.stream.node, self.keys, processor, other))

    def deduplicate(self, *columns: Any, within: Duration) -> Stream:
        """Keeps the first of rows with equal key and `columns`. They stay rows: whatever may follow a read
        may follow.

        With `"event_time"` among the columns, only rows of the same time are copies, and rows pass at once.
        Copies are known until the watermark of their partition has passed their time by `within`; later rows
        might be copies, and are refused. So choose `within` at least as long as the windows that follow and
        their lateness. Of copies that differ elsewhere, the first to arrive is kept. Without `"event_time"`,
        copies are rows less than `within` after the first in order of event time. To know that order, rows
        wait until the watermark has passed them, and rows behind it are refused. Jobs that run together can
        share one deduplication and its state: name it, and build each job on the same stream.
        """
        within_ms = durations.parse_positive(within, name="within")
        schema = self.stream.node.schema
        names = expressions.column_names("deduplicate", columns, schema, SYSTEM_COLUMNS)
        return self._results(match.build_deduplication(self.stream.node, self.keys, names, within_ms))

    def over(
        self,
        *unnamed: object,
        rows: RowBounds | None = None,
        range: TimeBounds | None = None,  # noqa: A002 - the word of SQL
        ttl: Duration | None = None,
        lateness: Duration | None = None,
        **columns: Reduction | Aggregate | FrameFunction,
    ) -> Stream:
        """Each row beside columns computed from the rows of its key around it, as in SQL's `OVER (PARTITION
        BY key ORDER BY event_time ROWS | RANGE BETWEEN ...)`. Rows are in order of event time (ties: topic,
        partition, offset); they wait until the watermark has passed them, and rows behind it are refused.

        Columns are `aggregates` over a frame, or functions of `millrace.frames`, such as `lag`. The frame is
        all rows of the key up to this one, unless bounded: `rows=3` is this row and the two before,
        `range="10m"` the rows of this time and of up to 10 min before, both ends included. With two bounds,
        as SQL's BETWEEN: `rows=(-3, -1)`, `range=("-10m", "0s")`, `(None, 0)`. Only frames by `range` hold
        rows of the same time that come after their row. `ttl`: a key begins anew after so long without a row,
        so that quiet keys leave the state; otherwise their last rows stay for ever. With `lateness`, rows
        that come so late are taken, and correct the rows around them: a row that changes is taken back (`op`
        `-`) and shown anew (`+`). `lead` then waits for nothing, and corrects, too.
        """
        if unnamed:
            raise DefinitionError(
                f"over({unnamed[0]!s:.80}) needs a name for its column; write "
                "over(before=frames.lag('speed'))"
            )
        return self._results(
            over.build_over(self.stream.node, self.keys, columns, rows, range, ttl, lateness)
        )

    def match_rules(self, rules: Stream, *, show: Sequence[str] = ()) -> Stream:
        """One result per match of any rule in the rows of a key: `rule`, `steps` and `times` of its events,
        and the columns `show` as lists.

        `rules` are rows of `name` and `pattern` (see `patterns.Rule`). A rule with a known name replaces the
        old one, and with an empty pattern it withdraws it; other rules keep their partial matches. A rule
        sees the rows after it in event time, so the watermark also waits for the topic of rules: give that
        read an `idle` time. An invalid rule goes to the dead letters of its topic, and the rule that it would
        replace stays.
        """
        require_type("match_rules", rules, Stream, "a stream of rules; read their topic")
        return self._results(rule_nodes.build_match_rules(self.stream.node, self.keys, rules.node, show))

    def match_recognize(self, clause: RowPattern | str) -> Stream:
        """MATCH_RECOGNIZE in the rows of a key: `mr.match_recognize(...)`,
        or the SQL between its brackets. Needs the extra `sql`.
        """
        return self._results(match.build_match_recognize(self.stream.node, self.keys, clause))


def _table_type() -> type:
    from millrace.graph.build.table import Table

    return Table
