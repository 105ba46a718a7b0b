"""What the user chains. It only records a graph; running it is a runner's business."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Unpack, get_args

import polars as pl

from millrace import aggregates, durations, graph, lookups, panes
from millrace.aggregates import Aggregate, Reduction
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.graph.build import join, match
from millrace.graph.build import rules as ruling
from millrace.graph.build.aggregate import (
    build_aggregation,
    check_lookup_last,
    check_lookup_once,
    make_windowing,
)
from millrace.graph.build.join import JoinSide, JoinType
from millrace.graph.build.shorthands import AggregationMethods
from millrace.patterns import Pattern, RowPattern
from millrace.processors import Processor
from millrace.topics import SYSTEM_COLUMNS, Topic
from millrace.triggers import Trigger, at_watermark
from millrace.triggers import check_trigger as checked_trigger
from millrace.values import event_types, event_values, expressions, function_results
from millrace.values.calls import (
    NoSuchMethod,
    explain_errors,
    explain_errors_of,
    require_choice,
    require_type,
)
from millrace.watermarks import IngestionTime, Punctuation, Watermark, bounded
from millrace.windows import WindowFn

if TYPE_CHECKING:
    from millrace.graph.build.table import Table

IntoExpr = expressions.IntoExpr
_CARRIED_COLUMNS = SYSTEM_COLUMNS | graph.INTERNAL_COLUMNS.keys()


def read(topic: Topic, *, watermark: Watermark | None = None) -> Stream:
    """The rows of a topic: the fields of its type, `event_time` and `ingestion_time` (whole milliseconds)."""
    require_type("read", topic, Topic, "a topic; say Topic('name', Type)")
    require_type(
        f"read({topic.name}, watermark=...)",
        watermark,
        (Watermark, NoneType),
        "a watermark; use one of watermarks, such as bounded('5s')",
    )
    schema = pl.Schema({**topic.schema, **graph.TIME_COLUMNS})
    if isinstance(watermark, Punctuation):
        description = f"read({topic.name}, watermark={watermark})"
        expr = watermark.expr
        watermark = watermark.with_dtype(
            graph.apply_to_no_rows(lambda frame: frame.select(said=expr), schema, description).schema["said"]
        )
        clock = watermark.clock()
        graph.apply_to_no_rows(lambda frame: frame.select(clock), schema, description)
        expressions.check_elementwise(description, [watermark.expr], schema)
    rows = Stream(graph.Read((), schema, topic, watermark or bounded("5s")), None)
    return (
        rows.with_columns(event_time=pl.col("ingestion_time"))
        if isinstance(watermark, IngestionTime)
        else rows
    )


@explain_errors
@dataclass(frozen=True, eq=False)
class Stream:
    """A sequence of rows, or of panes once aggregated. Each method returns a new stream."""

    node: graph.Node
    windowing: graph.Windowing | None

    @property
    def columns(self) -> list[str]:
        """The columns rows have at this point."""
        return list(self.node.schema)

    def named(self, name: str) -> Stream:
        """Names the last step, so that its state is found again even when steps are added before it."""
        require_type("named", name, str, "a name; use letters, digits, '-', '_' and '.'")
        return replace(self, node=replace(self.node, name=name))

    def filter(self, *conditions: Any, **equal: Any) -> Stream:
        """Keeps the rows for which all conditions hold: expressions, names of boolean columns, or `column=value`."""
        predicates = expressions.to_conditions("filter", conditions, equal)
        text = f"filter({graph.format_expressions(predicates)})"
        filtered = self._append_stateless(
            lambda frame: frame.filter(*predicates),
            text,
            graph.columns_used(predicates),
            changes=frozenset(),
            exprs=predicates,
        )
        expressions.check_elementwise(text, predicates, self.node.schema)
        return filtered

    def select(self, *columns: Any, **named: Any) -> Stream:
        """Keeps only these columns (names, expressions, or lists of them); the times, and those of the pane, stay."""
        exprs = expressions.to_expressions("select", columns, named)
        text = f"select({graph.format_expressions(expressions.flatten(columns), named)})"
        preview = graph.apply_to_no_rows(lambda frame: frame.select(exprs), self.node.schema, text)
        expressions.check_elementwise(text, exprs, self.node.schema)
        return self._append_stateless(
            expressions.build_select(
                exprs, frozenset(preview.columns), _CARRIED_COLUMNS, graph.INTERNAL_COLUMNS
            ),
            text,
            graph.columns_used(exprs),
            exprs=exprs,
        )

    def with_columns(self, *columns: Any, **named: Any) -> Stream:
        """Adds or replaces columns, each by an expression on the row alone."""
        exprs = expressions.to_expressions("with_columns", columns, named)
        text = f"with_columns({graph.format_expressions(expressions.flatten(columns), named)})"
        graph.apply_to_no_rows(lambda frame: frame.with_columns(exprs), self.node.schema, text)
        expressions.check_elementwise(text, exprs, self.node.schema)
        return self._append_stateless(
            expressions.build_with_columns(exprs, graph.INTERNAL_COLUMNS),
            text,
            graph.columns_used(exprs),
            changes=graph.output_columns(exprs),
            exprs=exprs,
        )

    def explode(self, *columns: Any) -> Stream:
        """One row for each element of list columns."""
        names = expressions.column_names("explode", columns)
        return self._append_stateless(
            lambda frame: frame.explode(*names), f"explode({', '.join(names)})", frozenset(names)
        )

    def map_batches(self, fn: Callable[[pl.DataFrame], pl.DataFrame]) -> Stream:
        """Any function of columns that looks at each row by itself: how rows are cut into frames is not defined."""
        return self._append_stateless(fn, f"map_batches({getattr(fn, '__name__', 'fn')})")

    def flat_map(
        self, fn: Callable[[dict[str, Any]], Iterable[dict[str, Any]]], *, schema: dict[str, Any]
    ) -> Stream:
        """Any number of rows for each row, by a Python function; `schema` names the columns it makes."""
        dtypes = pl.Schema(schema)

        def apply(frame: pl.DataFrame) -> pl.DataFrame:
            outputs = [
                (index, output) for index, row in enumerate(frame.iter_rows(named=True)) for output in fn(row)
            ]
            rows = [output for _, output in outputs]
            columns = {
                name: function_results.to_series(name, (row.get(name) for row in rows), dtype)
                for name, dtype in dtypes.items()
            }
            origin = frame.select(
                pl.col(name).gather([index for index, _ in outputs])
                for name in frame.columns
                if name in _CARRIED_COLUMNS
            )
            for original in origin:
                name = original.name
                if any(name in row for row in rows):
                    columns[name] = function_results.to_series(
                        name,
                        (
                            row.get(name, original_value)
                            for row, original_value in zip(rows, original, strict=True)
                        ),
                        original.dtype,
                    )
                else:
                    columns[name] = original
            return pl.DataFrame(list(columns.values()))

        return self._append_stateless(apply, f"flat_map({getattr(fn, '__name__', 'fn')})")

    def lookup(self, fn: Callable[..., Any], *keys: str, **options: Unpack[lookups.LookupOptions]) -> Stream:
        """Adds columns that `fn` answers: given the values of `keys`, it returns a dict, a dataclass or None, and may be `async`.

        Each different key of a batch is asked for once, several at the same time; the order of rows is kept. The columns are null where there
        is no answer. The options, each with its default, are in `millrace.lookups.Options`.
        """
        spec = lookups.make_lookup(fn, keys, options, self.node.schema)
        enriched = self._append_stateless(
            lambda frame: lookups.add_answers(spec, frame), str(spec), frozenset(keys), graph.Lookup
        )
        check_lookup_once(enriched.node, self.windowing)
        return enriched

    def union(self, *others: Any) -> Stream:
        """The rows of this stream and of others, or of lists of others, that have the same columns."""
        others = tuple(expressions.flatten(others))
        for other in others:
            if not isinstance(other, Stream):
                raise DefinitionError(f"union({other!r}) is not a stream; read a topic with mr.read(topic)")
            if other.node.schema != self.node.schema:
                raise DefinitionError(
                    f"union needs equal columns, but one stream has {dict(self.node.schema)} and the other {dict(other.node.schema)}; select() the same columns of both"
                )
        nodes = (self.node, *(other.node for other in others))
        return Stream(graph.Union(nodes, self.node.schema), self.windowing)

    def window(
        self,
        window: WindowFn,
        *,
        trigger: Trigger | None = None,
        lateness: Duration = 0,
        accumulation: panes.Accumulation = "accumulating",
        on_time: panes.OnTime = "always",
        closing: panes.Closing = "if_new",
        time: panes.PaneTime = "end",
    ) -> Stream:
        """Sets where, when and how for all aggregations that follow, until set again.

        `accumulation`: what a pane holds; `on_time`: whether the pane on time comes though nothing is new since an early one; `closing`: whether
        a last pane comes when the window is dropped, by default if it has rows that no pane has shown; `time`: the event time of panes (later aggregations in the window: its end).
        """
        firing = at_watermark() if trigger is None else checked_trigger(trigger, "trigger")
        return replace(
            self, windowing=make_windowing(window, firing, lateness, accumulation, on_time, closing, time)
        )

    def group_by(self, *columns: Any) -> Keyed:
        """Groups rows by the values of these columns: names, `pl.col(name)`, or lists of these."""
        keys = expressions.column_names("group_by", columns)
        for column in keys:
            if column not in self.node.schema:
                raise DefinitionError(
                    f"group_by({column!r}): there is no such column; there are {', '.join(self.columns)}"
                )
            if column in SYSTEM_COLUMNS:
                raise DefinitionError(
                    f"group_by({column!r}): results have a column {column!r} of their own; copy it first: with_columns(my_{column}=pl.col({column!r}))"
                )
        if not keys:
            raise DefinitionError(
                "group_by() names no column, so there would be no key; name one, or leave group_by() out: "
                ".count(), .sum(column) and .aggregate(...) on the stream itself give one result per window"
            )
        if len(set(keys)) < len(keys):
            raise DefinitionError(
                f"group_by({', '.join(map(repr, keys))}) names a column twice; name each once"
            )
        check_lookup_last(self.node)
        return Keyed(self, keys)

    def shuffle(self, buckets: int = 64) -> Keyed:
        """Deals rows to so many `bucket`s by their times alone, whatever they hold: work that knows no key, spread evenly over all slots."""
        if type(buckets) is not int or not 1 <= buckets <= 10_000:
            raise DefinitionError(
                f"shuffle({buckets!r}): use a whole number of buckets, between 1 and 10,000"
            )
        return self.with_columns(
            bucket=(
                expressions.mix_bits(pl.col("event_time") * 31 + pl.col("ingestion_time")) % buckets
            ).cast(pl.Int64)
        ).group_by("bucket")

    def together(self) -> Keyed:
        """All rows under one key, `all` = 0, so in one slot: for what must see everything, at the speed of one core."""
        return self.with_columns(all=pl.lit(0, pl.Int64)).group_by("all")

    def late(self) -> Stream:
        """The rows that the last aggregation refused as too late, with the `reason`."""
        node = self.node.inputs[0] if isinstance(self.node, graph.JoinRows) else self.node
        if not isinstance(node, graph.Operation):
            raise DefinitionError("late() follows an aggregation: it is what that aggregation refused")
        if any(edge.read is None for edge in graph.edges(node)):
            raise DefinitionError(
                "late() of a later aggregation is always empty: panes between stages are never dropped; ask the first one"
            )
        schema = pl.Schema({**node.inputs[0].schema, "reason": pl.String(), "missed": pl.Int64()})
        return Stream(graph.Late((node,), schema), None)

    def timeouts(self) -> Stream:
        """The partial matches of the last pattern whose time was over before they were whole, in the columns of its matches.

        What a step has not taken is null (a count or a sum: 0, a collect: empty). `window_end` is when the time was over.
        """
        return Stream(match.build_timeouts(self.node), self.windowing)

    def side(self, name: str) -> Stream:
        """What the processor before this emits to one of its `sides`."""
        return Stream(graph.side_output(self.node, name), self.windowing)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Says what a stream lacks until it is grouped by a key."""
            if not name.startswith("_") and hasattr(Keyed, name):
                raise NoSuchMethod(
                    f"{name} needs rows that are grouped by a key; say .group_by('key').{name}(...)"
                )
            raise AttributeError(f"a stream has no {name!r}", name=name, obj=self)

    def write(self, topic: Topic) -> Output:
        """Ends the stream in a topic; its columns must be the fields of the topic's type."""
        require_type("write", topic, Topic, "a topic; say Topic('name', Type)")
        if topic.is_read_only:
            raise DefinitionError(
                f"write({topic.name}): millrace reads Avro and Confluent's header, and writes neither; write binary or json"
            )
        present = {c for c in self.node.schema if c not in SYSTEM_COLUMNS}
        missing, extra = (
            [c for c in topic.schema if c not in self.node.schema],
            sorted(present - set(topic.schema)),
        )
        if missing or extra:
            difference = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(extra)} besides"
            raise DefinitionError(
                f"write({topic.name}): the stream {difference}; {topic.type.__name__} has {', '.join(topic.schema)}. Use select() to name the columns alike"
            )
        for name, field_type in topic.schema.items():
            column_type = self.node.schema[name]
            if column_type == pl.Null:
                if event_values.is_required(event_types.descriptor(topic.type).fields_by_name[name]):
                    raise DefinitionError(
                        f"write({topic.name}): {name} is always null, and the field must have a value; declare it optional (`... | None`), or fill it"
                    )
            elif column_type.is_nested() != field_type.is_nested() and pl.Object not in (
                column_type,
                field_type,
            ):
                raise DefinitionError(
                    f"write({topic.name}): {name} is {column_type}, and the field is {field_type}; convert it before"
                )
        return Output(graph.Write((self.node,), self.node.schema, topic))

    def _append_stateless(
        self,
        fn: Callable[[pl.DataFrame], pl.DataFrame],
        text: str,
        reads: frozenset[str] | None = None,
        kind: type[graph.Stateless] = graph.Stateless,
        changes: frozenset[str] | None = None,
        exprs: Iterable[pl.Expr] = (),
    ) -> Stream:
        if changes is None or "event_time" in changes:
            fn = expressions.check_event_times(fn, text)
        schema = graph.derive_schema(fn, self.node.schema, text)
        if schema["event_time"] != pl.Int64:
            raise DefinitionError(
                f"{text} makes event_time {schema['event_time']}, and it counts whole milliseconds; say event_time=....dt.epoch('ms') for a "
                "datetime or a date, and .cast(pl.Int64) for a number"
            )
        lost = [c for c in self.node.schema if c in panes.COLUMNS and c not in schema]
        if lost:
            raise DefinitionError(
                f"{text} loses {', '.join(lost)}, without which a pane cannot be told from others; keep it"
            )
        return replace(self, node=kind((self.node,), schema, fn, text, reads, changes, tuple(exprs)))


@explain_errors
@dataclass(frozen=True, eq=False)
class Keyed(AggregationMethods):
    """A stream grouped by key, waiting to be told what to compute."""

    stream: Stream
    keys: tuple[str, ...]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Says what rows that are grouped lack until something is made of them."""
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
                f"group_by({', '.join(map(repr, self.keys))}) is aggregated without a window, so no result would ever be complete; say .window(...) first"
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
            ruling.build_match_rules(self.stream.node, self.keys, rules.node, show), self.stream.windowing
        )

    def match_recognize(self, rows: RowPattern | str) -> Stream:
        """MATCH_RECOGNIZE (`patterns.match_recognize`, or what stands in its brackets in SQL) in the rows of a key; needs the extra `sql`."""
        return Stream(match.build_match_recognize(self.stream.node, self.keys, rows), self.stream.windowing)


@dataclass(frozen=True, eq=False)
class Output:
    """A stream that ends in a topic: what a job is made of."""

    node: graph.Write


@explain_errors
@dataclass(frozen=True, eq=False, init=False)
class Job:
    """A name and one or more outputs. The name is part of the identity of its state: keep it."""

    name: str
    outputs: tuple[graph.Write, ...]
    delivery: panes.Delivery

    def __init__(self, name: str, *outputs: Output, delivery: panes.Delivery = "exactly_once") -> None:
        """Checks that the job can be told apart and has somewhere to write. `delivery`: what a crash may do to its results."""
        require_type("Job", name, str, "the name of a job")
        require_choice("delivery", delivery, get_args(panes.Delivery))
        if not name or not all(c.isalnum() or c in "-_." for c in name):
            raise DefinitionError(
                f"job name {name!r}: use letters, digits, '-', '_' and '.'; it becomes part of topic and state names"
            )
        if not outputs:
            raise DefinitionError(f"job {name!r} has no output; end its stream with .write(topic)")
        for output in outputs:
            if not isinstance(output, Output):
                raise DefinitionError(
                    f"job {name!r}: {output!r} is not the end of a stream; call .write(topic) on it"
                )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "outputs", tuple(output.node for output in outputs))
        object.__setattr__(self, "delivery", delivery)

    @property
    def operator_ids(self) -> dict[graph.Operation, str]:
        """The stable name of each operator that keeps state."""
        return graph.operator_ids(self.name, self.outputs)

    def to_dataframe(
        self, spark: Any, *, log: str | None = None, topic: str | None = None, streaming: bool = False
    ) -> Any:
        """The results in `log` as a DataFrame of Spark; a streaming one goes on with those that come. The job itself is run by `mr.run`."""
        from millrace.runners.spark.dataframes import to_dataframe

        return to_dataframe(self, spark, log=log, topic=topic, streaming=streaming)

    def __str__(self) -> str:
        """The graph, its stages, and what, where, when and how."""
        from millrace.graph.explain import explain

        return explain([self])


def _table_type() -> type:
    from millrace.graph.build.table import Table

    return Table


explain_errors_of(globals(), "read")
