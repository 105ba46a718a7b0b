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
    aggregation,
    check_asked_last,
    check_asked_once,
    one_of,
    windowing_of,
)
from millrace.graph.build.join import How, Sided
from millrace.graph.build.shorthands import Shorthands
from millrace.patterns import Pattern, RowPattern
from millrace.processors import Processor
from millrace.topics import SYSTEM, Topic
from millrace.triggers import Trigger, at_watermark
from millrace.triggers import checked as checked_trigger
from millrace.values import event_types, event_values, expressions, function_results
from millrace.values.calls import NoSuchMethod, clear, clear_functions, need
from millrace.watermarks import IngestionTime, Punctuation, Watermark, bounded
from millrace.windows import WindowFn

if TYPE_CHECKING:
    from millrace.graph.build.table import Table

IntoExpr = expressions.IntoExpr
_RIDE_ALONG = SYSTEM | graph.INTERNAL.keys()


def read(topic: Topic, *, watermark: Watermark | None = None) -> Stream:
    """The rows of a topic: the fields of its type, `event_time` and `ingestion_time` (whole milliseconds)."""
    need("read", topic, Topic, "a topic; say Topic('name', Type)")
    need(
        f"read({topic.name}, watermark=...)",
        watermark,
        (Watermark, NoneType),
        "a watermark; use one of watermarks, such as bounded('5s')",
    )
    schema = pl.Schema({**topic.schema, **graph.TIMES})
    if isinstance(watermark, Punctuation):
        text = f"read({topic.name}, watermark={watermark})"
        expr = watermark.expr
        watermark = watermark.of(
            graph.tried(lambda frame: frame.select(said=expr), schema, text).schema["said"]
        )
        clock = watermark.clock()
        graph.tried(lambda frame: frame.select(clock), schema, text)
        expressions.check_elementwise(text, [watermark.expr], schema)
    rows = Stream(graph.Read((), schema, topic, watermark or bounded("5s")), None)
    return (
        rows.with_columns(event_time=pl.col("ingestion_time"))
        if isinstance(watermark, IngestionTime)
        else rows
    )


@clear
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
        need("named", name, str, "a name; use letters, digits, '-', '_' and '.'")
        return replace(self, node=replace(self.node, name=name))

    def filter(self, *conditions: Any, **equal: Any) -> Stream:
        """Keeps the rows for which all conditions hold: expressions, names of boolean columns, or `column=value`."""
        wanted = expressions.conditions("filter", conditions, equal)
        text = f"filter({graph.said(wanted)})"
        kept = self._stateless(
            lambda frame: frame.filter(*wanted), text, graph.roots(wanted), changes=frozenset(), exprs=wanted
        )
        expressions.check_elementwise(text, wanted, self.node.schema)
        return kept

    def select(self, *columns: Any, **named: Any) -> Stream:
        """Keeps only these columns (names, expressions, or lists of them); the times, and those of the pane, stay."""
        made = expressions.expressions("select", columns, named)
        text = f"select({graph.said(expressions.flatten(columns), named)})"
        tried = graph.tried(lambda frame: frame.select(made), self.node.schema, text)
        expressions.check_elementwise(text, made, self.node.schema)
        return self._stateless(
            expressions.selecting(made, frozenset(tried.columns), _RIDE_ALONG, graph.INTERNAL),
            text,
            graph.roots(made),
            exprs=made,
        )

    def with_columns(self, *columns: Any, **named: Any) -> Stream:
        """Adds or replaces columns, each by an expression on the row alone."""
        made = expressions.expressions("with_columns", columns, named)
        text = f"with_columns({graph.said(expressions.flatten(columns), named)})"
        graph.tried(lambda frame: frame.with_columns(made), self.node.schema, text)
        expressions.check_elementwise(text, made, self.node.schema)
        return self._stateless(
            expressions.adding(made, graph.INTERNAL),
            text,
            graph.roots(made),
            changes=graph.made(made),
            exprs=made,
        )

    def explode(self, *columns: Any) -> Stream:
        """One row for each element of list columns."""
        names = expressions.names("explode", columns)
        return self._stateless(
            lambda frame: frame.explode(*names), f"explode({', '.join(names)})", frozenset(names)
        )

    def map_batches(self, fn: Callable[[pl.DataFrame], pl.DataFrame]) -> Stream:
        """Any function of columns that looks at each row by itself: how rows are cut into frames is not defined."""
        return self._stateless(fn, f"map_batches({getattr(fn, '__name__', 'fn')})")

    def flat_map(
        self, fn: Callable[[dict[str, Any]], Iterable[dict[str, Any]]], *, schema: dict[str, Any]
    ) -> Stream:
        """Any number of rows for each row, by a Python function; `schema` names the columns it makes."""
        wanted = pl.Schema(schema)

        def each(frame: pl.DataFrame) -> pl.DataFrame:
            found = [
                (place, made) for place, row in enumerate(frame.iter_rows(named=True)) for made in fn(row)
            ]
            rows = [made for _, made in found]
            columns = {
                name: function_results.series(name, (row.get(name) for row in rows), dtype)
                for name, dtype in wanted.items()
            }
            origin = frame.select(
                pl.col(name).gather([place for place, _ in found])
                for name in frame.columns
                if name in _RIDE_ALONG
            )
            for before in origin:
                name = before.name
                if any(name in row for row in rows):
                    columns[name] = function_results.series(
                        name,
                        (row.get(name, old) for row, old in zip(rows, before, strict=True)),
                        before.dtype,
                    )
                else:
                    columns[name] = before
            return pl.DataFrame(list(columns.values()))

        return self._stateless(each, f"flat_map({getattr(fn, '__name__', 'fn')})")

    def lookup(self, fn: Callable[..., Any], *keys: str, **options: Unpack[lookups.Options]) -> Stream:
        """Adds columns that `fn` answers: given the values of `keys`, it returns a dict, a dataclass or None, and may be `async`.

        Each different key of a batch is asked for once, several at the same time; the order of rows is kept. The columns are null where there
        is no answer. The options, each with its default, are in `millrace.lookups.Options`.
        """
        made = lookups.lookup_of(fn, keys, options, self.node.schema)
        asked = self._stateless(
            lambda frame: lookups.answered(made, frame), str(made), frozenset(keys), graph.Asked
        )
        check_asked_once(asked.node, self.windowing)
        return asked

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
        output: panes.Output = "value",
        on_time: panes.OnTime = "always",
        closing: panes.Closing = "if_new",
        time: panes.PaneTime = "end",
    ) -> Stream:
        """Sets where, when and how for all aggregations that follow, until set again.

        `output`: what a pane holds; `on_time`: whether the pane on time comes though nothing is new since an early one; `closing`: whether
        a last pane comes when the window is dropped, by default if it has rows that no pane has shown; `time`: the event time of panes (later aggregations in the window: its end).
        """
        chosen = at_watermark() if trigger is None else checked_trigger(trigger, "trigger")
        return replace(self, windowing=windowing_of(window, chosen, lateness, output, on_time, closing, time))

    def by(self, *columns: Any) -> Keyed:
        """Groups rows by the values of these columns: names, `pl.col(name)`, or lists of these."""
        keys = expressions.names("by", columns)
        for column in keys:
            if column not in self.node.schema:
                raise DefinitionError(
                    f"by({column!r}): there is no such column; there are {', '.join(self.columns)}"
                )
            if column in SYSTEM:
                raise DefinitionError(
                    f"by({column!r}): results have a column {column!r} of their own; copy it first: with_columns(my_{column}=pl.col({column!r}))"
                )
        if not keys:
            raise DefinitionError("by() needs at least one column")
        if len(set(keys)) < len(keys):
            raise DefinitionError(f"by({', '.join(map(repr, keys))}) names a column twice; name each once")
        check_asked_last(self.node)
        return Keyed(self, keys)

    def shuffle(self, buckets: int = 64) -> Keyed:
        """Deals rows to so many `bucket`s by their times alone, whatever they hold: work that knows no key, spread evenly over all slots."""
        if type(buckets) is not int or not 1 <= buckets <= 10_000:
            raise DefinitionError(
                f"shuffle({buckets!r}): use a whole number of buckets, between 1 and 10,000"
            )
        return self.with_columns(
            bucket=(expressions.mixed(pl.col("event_time") * 31 + pl.col("ingestion_time")) % buckets).cast(
                pl.Int64
            )
        ).by("bucket")

    def together(self) -> Keyed:
        """All rows under one key, `all` = 0, so in one slot: for what must see everything, at the speed of one core."""
        return self.with_columns(all=pl.lit(0, pl.Int64)).by("all")

    def late(self) -> Stream:
        """The rows that the last aggregation refused as too late, with the `reason`."""
        node = self.node.inputs[0] if isinstance(self.node, graph.Pairs) else self.node
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
        return Stream(match.timeouts(self.node), self.windowing)

    def side(self, name: str) -> Stream:
        """What the processor before this emits to one of its `sides`."""
        return Stream(graph.side(self.node, name), self.windowing)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Says what a stream lacks until it is grouped by a key."""
            if not name.startswith("_") and hasattr(Keyed, name):
                raise NoSuchMethod(f"{name} needs rows that are grouped by a key; say .by('key').{name}(...)")
            raise AttributeError(f"a stream has no {name!r}", name=name, obj=self)

    def write(self, topic: Topic) -> Output:
        """Ends the stream in a topic; its columns must be the fields of the topic's type."""
        need("write", topic, Topic, "a topic; say Topic('name', Type)")
        if topic.readable_only:
            raise DefinitionError(
                f"write({topic.name}): millrace reads Avro and Confluent's header, and writes neither; write binary or json"
            )
        present = {c for c in self.node.schema if c not in SYSTEM}
        missing, extra = (
            [c for c in topic.schema if c not in self.node.schema],
            sorted(present - set(topic.schema)),
        )
        if missing or extra:
            said = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(extra)} besides"
            raise DefinitionError(
                f"write({topic.name}): the stream {said}; {topic.type.__name__} has {', '.join(topic.schema)}. Use select() to name the columns alike"
            )
        for name, wanted in topic.schema.items():
            had = self.node.schema[name]
            if had == pl.Null:
                if event_values.is_required(event_types.descriptor(topic.type).fields_by_name[name]):
                    raise DefinitionError(
                        f"write({topic.name}): {name} is always null, and the field must have a value; declare it optional (`... | None`), or fill it"
                    )
            elif had.is_nested() != wanted.is_nested() and pl.Object not in (had, wanted):
                raise DefinitionError(
                    f"write({topic.name}): {name} is {had}, and the field is {wanted}; convert it before"
                )
        return Output(graph.Write((self.node,), self.node.schema, topic))

    def _stateless(
        self,
        fn: Callable[[pl.DataFrame], pl.DataFrame],
        text: str,
        reads: frozenset[str] | None = None,
        kind: type[graph.Stateless] = graph.Stateless,
        changes: frozenset[str] | None = None,
        exprs: Iterable[pl.Expr] = (),
    ) -> Stream:
        if changes is None or "event_time" in changes:
            fn = expressions.timed(fn, text)
        schema = graph.applied(fn, self.node.schema, text)
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


@clear
@dataclass(frozen=True, eq=False)
class Keyed(Shorthands):
    """A stream grouped by key, waiting to be told what to compute."""

    stream: Stream
    keys: tuple[str, ...]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Says what rows that are grouped lack until something is made of them."""
            if not name.startswith("_") and hasattr(Stream, name):
                raise NoSuchMethod(
                    f"{name} is of streams, and these rows are grouped by a key; say it before .by(), or behind .count() and the like"
                )
            raise AttributeError(f"a keyed stream has no {name!r}", name=name, obj=self)

    def aggregate(self, *unnamed: object, **given: Reduction | Aggregate) -> Stream:
        """One result per key and window, a column for each aggregate."""
        if unnamed:
            raise DefinitionError(
                f"aggregate({unnamed[0]!s:.80}) needs a name for its column; write aggregate(n=aggregates.count())"
            )
        windowing = self.stream.windowing
        if windowing is None:
            raise DefinitionError(
                f"by({', '.join(map(repr, self.keys))}) is aggregated without a window, so no result would ever be complete; say .window(...) first"
            )
        if not given:
            raise DefinitionError("aggregate() needs at least one aggregate, such as n=aggregates.count()")
        named = {
            name: aggregates.own(one) if isinstance(one, Aggregate) else one for name, one in given.items()
        }
        node = aggregation(self.stream.node, self.keys, named, windowing)
        return Stream(node, windowing)

    def join(
        self,
        other: Keyed | Table,
        *,
        how: How = "inner",
        within: tuple[Duration, Duration] | None = None,
        suffix: str = "_right",
    ) -> Stream:
        """Each row of this stream beside each of the other with the same key in the same window; key columns may be called differently.
        With `within=("-5s", "10s")` times decide instead: the other row is from 5 s before to less than 10 s after this one. With a table
        (`mr.table`), each row is beside what that held for its key at its event time. `how` says which rows without a partner are kept, with
        null columns. A correction of a window adds (`op` `+`) or withdraws (`-`) single rows; the other two say everything once.
        """
        need(
            "join",
            other,
            (Keyed, _table()),
            "a keyed stream or a table; group it by its key: other.by('key')",
        )
        return Stream(join.join(self._side(), other._side(), within, how, suffix), self.stream.windowing)

    def cogroup(self, other: Keyed, *, names: tuple[str, str] = ("left", "right")) -> Stream:
        """For each key and window all rows of both streams, as two lists of structs in order of event time."""
        need("cogroup", other, Keyed, "a keyed stream; group it by its key: other.by('key')")
        return Stream(join.cogrouped(self._side(), other._side(), names), self.stream.windowing)

    def _side(self) -> Sided:
        return Sided(self.stream.node, self.keys, self.stream.windowing)

    def match(self, pattern: Pattern, *, select: Mapping[str, pl.Expr]) -> Stream:
        """One result per match of a pattern in the rows of a key, a column for each of `select`."""
        return Stream(match.match(self.stream.node, self.keys, pattern, select), self.stream.windowing)

    def process(self, processor: Processor, *, broadcast: Stream | None = None) -> Stream:
        """A user's own code, with state and timers per key: see `millrace.processors`.

        Rows of `broadcast` (rules that change while the job runs) come to the processor in every slot, in order of event time with the others, and before
        rows of the same time. Time passes only as far as both streams vouch: give a quiet one a watermark with `idle=`.
        """
        need("process(broadcast=...)", broadcast, (Stream, NoneType), "a stream")
        other = None if broadcast is None else broadcast.node
        return Stream(match.process(self.stream.node, self.keys, processor, other), self.stream.windowing)

    def deduplicate(self, *columns: Any, within: Duration) -> Stream:
        """Of rows with equal key and `columns` only the first; they stay rows, for whatever follows a read.

        With `"event_time"` among the columns, copies are those of the same time: rows go on at once, and copies are known until the
        watermark of their partition has passed their time by `within`; a row that comes after that might be one, and is refused. So let it be no shorter than
        what follows still takes: the size of its windows and their lateness. Of copies that differ elsewhere, the first to come is kept (of one partition: the first in it).
        Without it, copies are those less than `within` after the first in order of event time. To know which that is, rows wait until the watermark has passed
        them, and rows behind it are refused.
        Several jobs that run together can share one deduplication and its state: give it a name, and end each job's chain with the same stream.
        """
        length = durations.positive(within, name="within")
        names = expressions.names("deduplicate", columns)
        return Stream(match.deduplication(self.stream.node, self.keys, names, length), self.stream.windowing)

    def match_rules(self, rules: Stream, *, show: Sequence[str] = ()) -> Stream:
        """One result per match of any rule in the rows of a key: `rule`, `steps` and `times` of its events, and the columns `show` as lists.

        `rules` are rows of `name` and `pattern` (see `patterns.Rule`). One of a known name replaces it, with an empty pattern it withdraws it;
        the others keep what they have begun. A rule sees the rows after it in event time, so the watermark waits for the topic of rules, too:
        give that read an `idle` time. A rule that cannot be understood goes to the dead letters of its topic; the one it would replace stays.
        """
        need("match_rules", rules, Stream, "a stream of rules; read their topic")
        return Stream(ruling.ruled(self.stream.node, self.keys, rules.node, show), self.stream.windowing)

    def match_recognize(self, rows: RowPattern | str) -> Stream:
        """MATCH_RECOGNIZE (`patterns.match_recognize`, or what stands in its brackets in SQL) in the rows of a key; needs the extra `sql`."""
        return Stream(match.match_recognize(self.stream.node, self.keys, rows), self.stream.windowing)


@dataclass(frozen=True, eq=False)
class Output:
    """A stream that ends in a topic: what a job is made of."""

    node: graph.Write


@clear
@dataclass(frozen=True, eq=False, init=False)
class Job:
    """A name and one or more outputs. The name is part of the identity of its state: keep it."""

    name: str
    outputs: tuple[graph.Write, ...]
    delivery: panes.Delivery

    def __init__(self, name: str, *outputs: Output, delivery: panes.Delivery = "exactly_once") -> None:
        """Checks that the job can be told apart and has somewhere to write. `delivery`: what a crash may do to its results."""
        need("Job", name, str, "the name of a job")
        one_of("delivery", delivery, get_args(panes.Delivery))
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


def _table() -> type:
    from millrace.graph.build.table import Table

    return Table


clear_functions(globals(), "read")
