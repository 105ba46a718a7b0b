"""Streams, and jobs that are made of them. They only record a graph; a runner runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Unpack, get_args

import polars as pl

from millrace import graph, lookups, panes
from millrace.aggregates import Aggregate, Reduction
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.evictors import Evictor
from millrace.graph.build import match, stateless
from millrace.graph.build.aggregate import (
    check_lookup_last,
    check_lookup_once,
    make_windowing,
)
from millrace.graph.build.final import build_final
from millrace.graph.build.keys import build_keys
from millrace.graph.build.late import PARTS_OF_OPERATIONS, build_late
from millrace.graph.build.regular_join import build_scalar_join
from millrace.graph.build.shorthands import AggregationMethods
from millrace.graph.build.union import UnionHow, build_union
from millrace.graph.build.write import build_write
from millrace.topics import SYSTEM_COLUMNS, Topic
from millrace.triggers import Trigger, at_watermark
from millrace.triggers import check_trigger as checked_trigger
from millrace.values import expressions
from millrace.values.calls import (
    NoSuchMethod,
    explain_errors,
    explain_errors_of,
    require_choice,
    require_type,
)
from millrace.values.columns import ALL_ROWS, RIGHT_SUFFIX
from millrace.values.missing_names import missing_name
from millrace.watermarks import IngestionTime, Punctuation, Watermark, bounded
from millrace.windows import WindowFn

if TYPE_CHECKING:
    from millrace.keyed import Keyed

IntoExpr = expressions.IntoExpr


def read(topic: Topic, *, watermark: Watermark | None = None) -> Stream:
    """The rows of a topic: the fields of its type, `event_time` and `ingestion_time` (whole milliseconds)."""
    require_type("read", topic, Topic, "a topic; say Topic('name', Type)")
    topic = topic.typed()
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
            graph.apply_to_no_rows(lambda frame: frame.select(watermark=expr), schema, description).schema[
                "watermark"
            ]
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
class Stream(AggregationMethods):
    """A sequence of rows, or of panes once aggregated. Each method returns a new stream."""

    node: graph.Node
    windowing: graph.Windowing | None

    @property
    def columns(self) -> list[str]:
        """The columns that rows have after this step."""
        return list(self.node.schema)

    def __repr__(self) -> str:
        """The columns."""
        return f"Stream({', '.join(column for column in self.columns if not column.startswith('_'))})"

    def named(self, name: str) -> Stream:
        """Names the last step, so that its state is found again when steps are added before it."""
        require_type("named", name, str, "a name; use letters, digits, '-', '_' and '.'")
        return self._with_node(_rename(self.node, name))

    def parallelism(self, n: int) -> Stream:
        """Spreads the keys of the last operation over at most `n` of the run's slots (`run.slots`).

        A change moves the state of the operation with the next run.
        """
        from millrace.values.key_hash import KEY_GROUPS

        if type(n) is not int or not 1 <= n <= KEY_GROUPS:
            raise DefinitionError(f"parallelism({n!r}): use a whole number between 1 and {KEY_GROUPS}")
        return self._with_node(_limit_slots(self.node, n))

    def filter(self, *conditions: Any, **equal: Any) -> Stream:
        """Keeps the rows for which all conditions hold: expressions,
        names of boolean columns, or `column=value`.
        """
        return self._with_node(stateless.build_filter(self.node, conditions, equal))

    def select(self, *columns: Any, **named: Any) -> Stream:
        """Keeps only these columns (names, expressions, or lists of them); the times,
        and those of the pane, stay.
        """
        return self._with_node(stateless.build_select(self.node, columns, named))

    def with_columns(self, *columns: Any, **named: Any) -> Stream:
        """Adds or replaces columns, each by an expression on the row alone."""
        return self._with_node(stateless.build_with_columns(self.node, columns, named))

    def drop(self, *columns: Any) -> Stream:
        """All columns but these: names, selectors, or lists of them."""
        return self._with_node(stateless.build_drop(self.node, columns))

    def rename(self, names: Mapping[str, str]) -> Stream:
        """Other names for columns: `{"old": "new"}`."""
        return self._with_node(stateless.build_rename(self.node, names))

    def explode(self, *columns: Any) -> Stream:
        """One row for each element of list columns."""
        return self._with_node(stateless.build_explode(self.node, columns))

    def map_batches(self, fn: Callable[[pl.DataFrame], pl.DataFrame]) -> Stream:
        """Any function of columns that looks at each row by itself:
        how rows are cut into frames is not defined.
        """
        if not callable(fn):
            raise DefinitionError(f"map_batches({fn!r}): give a function that takes and returns a DataFrame")
        text = f"map_batches({getattr(fn, '__name__', 'fn')})"
        return self._with_node(stateless.build_stateless(self.node, fn, text))

    def flat_map(
        self,
        fn: Callable[[dict[str, Any]], Iterable[dict[str, Any]]],
        *,
        schema: Mapping[str, expressions.DType],
    ) -> Stream:
        """Any number of rows for each row, by a Python function; `schema` names the columns it makes."""
        return self._with_node(stateless.build_flat_map(self.node, fn, schema))

    def lookup(self, fn: Callable[..., Any], *keys: str, **options: Unpack[lookups.LookupOptions]) -> Stream:
        """Adds columns that `fn` answers: given the values of `keys`, it returns a dict, a dataclass or None,
        and may be `async`.

        Each different key of a batch is asked for once, several at the same time; the order of rows is kept.
        Keys without an answer get null columns. The options, each with its default, are in
        `millrace.lookups.LookupOptions`.
        """
        spec = lookups.make_lookup(fn, keys, options, self.node.schema)
        node = stateless.build_stateless(
            self.node,
            lambda frame: lookups.add_answers(spec, frame),
            str(spec),
            frozenset(keys),
            graph.Lookup,
        )
        check_lookup_once(node, self.windowing)
        return self._with_node(node)

    def union(self, *others: Stream | Iterable[Stream], how: UnionHow = "vertical") -> Stream:
        """The rows of this stream and of others, or of lists of others, that have the same columns.

        The order of columns does not matter. With `how="diagonal"`, columns that a stream lacks are null.
        """
        streams: list[Any] = expressions.flatten(others)
        for other in streams:
            if not isinstance(other, Stream):
                raise DefinitionError(f"union({other!r}) is not a stream; read a topic with mr.read(topic)")
        return Stream(build_union((self.node, *(other.node for other in streams)), how), self.windowing)

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
        evict: Evictor | None = None,
    ) -> Stream:
        """Sets where, when and how results are computed, for all aggregations that follow, until it is set
        again.

        `lateness`: how long after its end a window accepts rows. `accumulation`: what a later pane holds.
        `on_time="if_new"` leaves out the pane on time where nothing is new since an early one. `closing`:
        whether a last pane is shown when the window is dropped; by default if it has rows that no pane has
        shown. `time`: the event time of panes; for later aggregations in the window, its end. `evict`: which
        rows the first aggregation leaves out of a pane.
        """
        firing = at_watermark() if trigger is None else checked_trigger(trigger, "trigger")
        return replace(
            self,
            windowing=make_windowing(window, firing, lateness, accumulation, on_time, closing, time, evict),
        )

    def group_by(self, *columns: Any, **named: Any) -> Keyed:
        """Groups rows by the values of columns (names, or lists of these) and of expressions on the row.

        An expression becomes a column under its alias or keyword, as by `with_columns`: rows and results
        have it. `group_by("line", hour=pl.col("event_time") // 3_600_000)`
        """
        from millrace.keyed import Keyed

        node, keys = build_keys(self.node, columns, named)
        check_lookup_last(node)
        return Keyed(self._with_node(node), keys)

    def spread(self, n: int = 64) -> Keyed:
        """Groups rows evenly into `n` buckets by their times alone (column `bucket`):
        work that knows no key, for all slots.
        """
        if type(n) is not int or not 1 <= n <= 10_000:
            raise DefinitionError(f"spread({n!r}): use a whole number of buckets, between 1 and 10,000")
        times = pl.col("event_time") * 31 + pl.col("ingestion_time")
        return self.with_columns(bucket=(expressions.mix_bits(times) % n).cast(pl.Int64)).group_by("bucket")

    def aggregate(self, *unnamed: object, **aggregates_by_name: Reduction | Aggregate) -> Stream:
        """One result per window over all rows as one group, a column for each aggregate; without a window one
        of all rows so far. For one per key: `.group_by(...).aggregate(...)`.

        All partial results come to one slot; what an aggregate keeps must fit there.
        """
        rows = self._with_node(stateless.group_all_rows(self.node)).group_by(ALL_ROWS)
        results = rows.aggregate(*unnamed, **aggregates_by_name)
        return results._with_node(stateless.drop_constant_key(results.node))

    def join_scalar(self, other: Stream, *, suffix: str = RIGHT_SUFFIX) -> Stream:
        """Every row beside the one value that an aggregation without a window and without a key has, such as
        `payments.count()`; null while there is none. Rows are taken back and shown anew when it changes, but
        not those that `filter` and `select` behind it make equal.

        All rows are kept for ever, in one slot, and each change of the value computes all of them again, so
        aggregate or filter the rows first.
        """
        require_type("join_scalar", other, Stream, "a stream of one value, such as payments.count()")
        check_lookup_last(self.node)
        check_lookup_last(other.node)
        return Stream(build_scalar_join(self.node, other.node, suffix), self.windowing)

    def final(self) -> Stream:
        """The values that hold in the end: each once, when its window and the lateness are over.

        Patterns, processors and joins by time take rows in order, and could not take back what they made of a
        value that is corrected later: `final()` lets them follow an aggregation. Results come later by the
        lateness, at the last millisecond of their window. Rows that are never corrected stay as they are.
        """
        return self._with_node(build_final(self.node))

    def late(self) -> Stream:
        """The rows that the last operation refused, with the `reason` and how many windows they `missed`, at
        their own event time. Of a join the rows of both sides, told apart by `side`.

        Anything may follow. Their own time is over, so what follows takes them at the watermark that refused
        them, and never as late: keep their own time with `with_columns(own_time="event_time")`.
        """
        return Stream(build_late(self.node), None)

    def timeouts(self) -> Stream:
        """The partial matches of the last pattern whose time ran out before they were complete, with the
        columns of its matches.

        A step that took no event has null (a count or a sum: 0, a collect: an empty list). `window_end` is
        when the time ran out.
        """
        return Stream(match.build_timeouts(self.node), self.windowing)

    def side_output(self, name: str) -> Stream:
        """The rows that the processor before this emits to one of its `side_outputs`."""
        return Stream(graph.side_output(self.node, name), self.windowing)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Names the remedy where a method of grouped rows is called before they are grouped."""
            from millrace.keyed import Keyed

            if not name.startswith("_") and hasattr(Keyed, name):
                raise NoSuchMethod(
                    f"{name} needs rows that are grouped by a key; say .group_by('key').{name}(...)"
                )
            raise missing_name("a stream", name, dir(type(self)))

    def write(self, topic: Topic | str) -> Output:
        """Ends the stream in a topic; its columns must be the fields of the topic's type.

        A name, or a topic without a type, takes the columns of the stream; `Output.topic` has the type.
        """
        return Output(build_write(self.node, topic))

    def _with_node(self, node: graph.Node) -> Stream:
        return replace(self, node=node)

    @property
    def _value_columns(self) -> list[str]:
        return [column for column in self.columns if column not in SYSTEM_COLUMNS]


def _rename(node: graph.Node, name: str) -> graph.Node:
    if isinstance(node, PARTS_OF_OPERATIONS):
        return replace(node, inputs=(_rename(node.inputs[0], name),))
    return replace(node, name=name)


def _limit_slots(node: graph.Node, n: int) -> graph.Node:
    if isinstance(node, PARTS_OF_OPERATIONS):
        return replace(node, inputs=(_limit_slots(node.inputs[0], n),))
    if not isinstance(node, graph.Operation):
        raise DefinitionError(
            f"parallelism({n}) follows an operation that keeps something per key, such as an aggregation; "
            "other steps run where rows are read"
        )
    return replace(node, parallelism=n)


@dataclass(frozen=True, eq=False)
class Output:
    """A stream that ends in a topic. Jobs are made of outputs."""

    node: graph.Write

    @property
    def topic(self) -> Topic:
        """The topic, which other jobs can read."""
        return self.node.topic

    def __repr__(self) -> str:
        """The topic and its columns."""
        return f"Output({self.topic.name!r}: {', '.join(self.topic.schema)})"


@explain_errors
@dataclass(frozen=True, eq=False, init=False)
class Job:
    """A name and one or more outputs. The name is part of the identity of its state: keep it."""

    name: str
    outputs: tuple[graph.Write, ...]
    delivery: panes.Delivery

    def __init__(self, name: str, *outputs: Output, delivery: panes.Delivery = "exactly_once") -> None:
        """Checks that the job can be told apart and has somewhere to write.
        `delivery`: what a crash may do to its results.
        """
        require_type("Job", name, str, "the name of a job")
        require_choice("delivery", delivery, get_args(panes.Delivery))
        if not name or not all(c.isalnum() or c in "-_." for c in name):
            raise DefinitionError(
                f"job name {name!r}: use letters, digits, '-', '_' and '.'; it becomes part "
                "of topic and state names"
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
        self,
        spark: Any,
        *,
        log: str | None = None,
        topic: str | None = None,
        streaming: bool = False,
    ) -> Any:
        """The results in `log` as a DataFrame of Spark; a streaming one continues with new results.
        `mr.run` runs the job itself.
        """
        from millrace.runners.spark.dataframes import to_dataframe

        return to_dataframe(self, spark, log=log, topic=topic, streaming=streaming)

    def __repr__(self) -> str:
        """The name."""
        return f"Job({self.name!r})"

    def __str__(self) -> str:
        """The graph, its stages, and what, where, when and how."""
        from millrace.graph.explain import explain

        return explain([self])


explain_errors_of(globals(), "read")
