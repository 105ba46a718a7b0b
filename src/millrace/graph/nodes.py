"""The graph that a stream records: nodes, and the cut into stages. It knows no engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from millrace import panes
from millrace.aggregates import Reduction
from millrace.errors import DefinitionError
from millrace.patterns.builder import Pattern
from millrace.patterns.sql.clause import RowPattern
from millrace.processors import Processor
from millrace.triggers import AtWatermark, Trigger
from millrace.values.calls import ordinary_errors
from millrace.watermarks import Watermark
from millrace.windows import Ordered, ProcessingTime, Sliding, WindowFn

if TYPE_CHECKING:
    from millrace.topics import Topic

TIME_COLUMNS = {"event_time": pl.Int64(), "ingestion_time": pl.Int64()}
"""Columns every row has besides those of its type; a pane's event time is `window_end - 1`."""


@dataclass(frozen=True)
class Windowing:
    """Where, when and how: what `Stream.window` sets for all that follows."""

    window: WindowFn
    trigger: Trigger = field(default_factory=AtWatermark)
    lateness: int = 0
    accumulation: panes.Accumulation = "accumulating"
    on_time: panes.OnTime = "always"
    closing: panes.Closing = "none"
    time: panes.PaneTime = "end"

    @property
    def fires_once(self) -> bool:
        """Whether a window shows one pane after its end and none after that, so that later rows are refused."""
        return isinstance(self.trigger, AtWatermark) and self.trigger.has_single_pane

    @property
    def is_processing_time(self) -> bool:
        """Whether windows lie in processing time."""
        return isinstance(self.window, ProcessingTime)

    @property
    def assigner(self) -> WindowFn:
        """The windows, whatever time they lie in."""
        return self.window.window if isinstance(self.window, ProcessingTime) else self.window

    @property
    def is_ordered(self) -> bool:
        """Whether rows are taken one after the other, and decide themselves where windows end."""
        return isinstance(self.assigner, Ordered)

    @property
    def sliced_window(self) -> Sliding | None:
        """The windows, where slices suffice to compute them: sliding ones that show each pane when the watermark or a late row says so."""
        is_plain_trigger = (
            isinstance(self.trigger, AtWatermark)
            and self.trigger.early is None
            and (self.trigger.late is None or (self.fires_once and not self.lateness))
        )
        is_default_output = (
            self.accumulation != "discarding" and self.closing != "always" and self.time == "end"
        )
        return (
            self.window
            if is_plain_trigger and is_default_output and isinstance(self.window, Sliding)
            else None
        )


@dataclass(frozen=True, eq=False)
class Node:
    """A step of a stream. Nodes are shared, never changed, and compared by identity."""

    inputs: tuple[Node, ...]
    schema: pl.Schema
    name: str | None = field(default=None, kw_only=True)

    @property
    def kind(self) -> str:
        """What operators of this node are called by default."""
        return type(self).__name__.lower()


@dataclass(frozen=True, eq=False)
class Read(Node):
    """Rows of a topic."""

    topic: Topic
    watermark: Watermark


@dataclass(frozen=True, eq=False)
class Stateless(Node):
    """A function of columns: filter, select, and the like."""

    apply: Callable[[pl.DataFrame], pl.DataFrame]
    text: str
    columns_read: frozenset[str] | None = None
    """The columns that it looks at; None: any."""
    columns_changed: frozenset[str] | None = None
    """The columns that it may give other values; None: any."""
    exprs: tuple[pl.Expr, ...] = ()
    """The expressions in it, of which `text` may leave out a part."""


@dataclass(frozen=True, eq=False)
class Lookup(Stateless):
    """Columns that somebody is asked for. The answer may change, so it cannot be computed again to be taken back."""


@dataclass(frozen=True, eq=False)
class JoinRows(Stateless):
    """The rows of a join, made of panes that hold both sides. What they say is told row by row: what is new, and what no longer holds."""


@dataclass(frozen=True, eq=False)
class Union(Node):
    """The rows of several streams with the same columns."""


@dataclass(frozen=True, eq=False)
class Operation(Node):
    """Whatever keeps something per key: rows or panes come in by key, panes go out. Each kind has a machine in the engine and one in the model."""

    keys: tuple[str, ...]
    aggregates: Mapping[str, Reduction]
    windowing: Windowing
    same_window: bool
    """Whether the input is panes of this very windowing, which keep their window."""

    @property
    def broadcast_input(self) -> int | None:
        """The input whose rows concern all keys, if there is one."""
        return None


@dataclass(frozen=True, eq=False)
class Aggregation(Operation):
    """Aggregates per key and window."""


@dataclass(frozen=True)
class Sequences(Ordered):
    """Rows in order, in which a pattern is looked for; `said` is the pattern and what is shown of a match."""

    said: str

    def __str__(self) -> str:
        """As it is read."""
        return self.said


TIMEOUTS = "timeouts"
"""The output of a pattern for partial matches whose time is over."""


@dataclass(frozen=True, eq=False)
class MatchPattern(Operation):
    """Sequences of events per key: the windows are matches, each shown once."""

    pattern: Pattern
    select: Mapping[str, pl.Expr]


@dataclass(frozen=True, eq=False)
class Deduplication(Operation):
    """Rows without their copies. They stay rows: whatever follows judges them by the partitions that they come from."""

    columns: tuple[str, ...]
    within: int

    @property
    def identity_columns(self) -> list[str]:
        """What copies have in common."""
        return list(dict.fromkeys([*self.keys, *self.columns]))

    @property
    def is_immediate(self) -> bool:
        """Whether copies have the same event time, so that the first to come is the first there is."""
        return "event_time" in self.columns


@dataclass(frozen=True, eq=False)
class Process(Operation):
    """A user's own code per key, with state and timers; the second input, where there is one, goes to every slot."""

    processor: Processor
    side_schemas: Mapping[str, pl.Schema]
    """The columns of its further outputs."""

    @property
    def broadcast_input(self) -> int | None:
        """A broadcast concerns all keys."""
        return 1


@dataclass(frozen=True, eq=False)
class MatchRecognize(Operation):
    """Row patterns of SQL per key: the windows are matches, each shown once."""

    row_pattern: RowPattern


@dataclass(frozen=True, eq=False)
class Late(Node):
    """The rows that an operation refused."""


@dataclass(frozen=True, eq=False)
class SideOutput(Node):
    """What an operation says besides its results, under the name of a port: panes, each shown once and never taken back."""

    output: str


@dataclass(frozen=True, eq=False)
class Write(Node):
    """The end of a stream: a topic."""

    topic: Topic
    rounds: int | None = None
    """How often rows may go around, where the job itself reads the topic."""


@dataclass(frozen=True, eq=False)
class Edge:
    """How rows reach an operator or a topic: from a read or an operator, through stateless steps."""

    origin: Read | Operation
    output: str
    """Which of the origin's outputs: `out`, `late`, or that of a `Side`."""
    steps: tuple[Stateless, ...]
    schema: pl.Schema
    """The columns of the rows before the steps."""
    input_index: int = 0
    """Which input of the node they come to, where it tells them apart."""
    upstream_read: Read | None = None
    """Where the origin hands on rows as rows: the topic that they come from."""
    input_edge: int = 0
    """And which of the origin's own edges they came by."""

    @property
    def read(self) -> Read | None:
        """The topic whose rows come; null where panes do."""
        return self.origin if isinstance(self.origin, Read) else self.upstream_read

    @property
    def makes_join_rows(self) -> bool:
        """Whether a pane becomes the rows of a join, which are told one by one."""
        return any(isinstance(step, JoinRows) for step in self.steps)

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The stateless steps, one after the other."""
        for step in self.steps:
            try:
                frame = step.apply(frame)
            except BaseException as error:
                error.add_note(f"in {step.text}")
                raise
        return frame


def edges(node: Node) -> Iterator[Edge]:
    """Every way in which rows reach the input of `node`, through unions and stateless steps."""
    for input_index, upstream in enumerate(node.inputs):
        yield from _edges(upstream, (), input_index)


def _edges(node: Node, steps: tuple[Stateless, ...], input_index: int) -> Iterator[Edge]:
    match node:
        case Deduplication():
            for input_edge, inner in enumerate(edges(node)):
                yield Edge(node, "out", steps, node.schema, input_index, inner.read, input_edge)
        case Read() | Operation():
            yield Edge(node, "out", steps, node.schema, input_index)
        case Late(inputs=(Operation() as late_origin,)):
            yield Edge(late_origin, "late", steps, node.schema, input_index)
        case SideOutput(inputs=(Operation() as side_origin,), output=output):
            yield Edge(side_origin, output, steps, node.schema, input_index)
        case Stateless():
            yield from _edges(node.inputs[0], (node, *steps), input_index)
        case Union():
            for upstream in node.inputs:
                yield from _edges(upstream, steps, input_index)
        case _:
            raise DefinitionError(f"a stream cannot go on after {node.kind}")


def columns_used(exprs: Iterable[object]) -> frozenset[str] | None:
    """The columns that expressions look at; None where that depends on which there are."""
    found: set[str] = set()
    for value in exprs:
        expr = pl.col(value) if isinstance(value, str) else value
        if not isinstance(expr, pl.Expr) or expr.meta.has_multiple_outputs():
            return None
        found.update(expr.meta.root_names())
    return frozenset(found)


def output_columns(columns: Iterable[pl.Expr]) -> frozenset[str] | None:
    """The names of the columns that expressions make; None where only the rows can tell."""
    names = [
        None if expr.meta.has_multiple_outputs() else expr.meta.output_name(raise_if_undetermined=False)
        for expr in columns
    ]
    return None if None in names else frozenset(name for name in names if name is not None)


def depth(node: Node) -> int:
    """The number of the stage that rows have passed when they leave `node`: how often they were dealt anew, by key."""
    if isinstance(node, Operation):
        return 1 + max((depth(edge.origin) - _keeps_key(edge, node) for edge in edges(node)), default=0)
    return max((depth(upstream) for upstream in node.inputs), default=0)


def _keeps_key(edge: Edge, node: Operation) -> bool:
    """Whether rows need not be dealt anew, as they were by the same key before."""
    has_same_keys = (
        isinstance(edge.origin, Deduplication) and edge.output == "out" and edge.origin.keys == node.keys
    )
    return has_same_keys and not any(
        step.columns_changed is None or step.columns_changed & {*node.keys} for step in edge.steps
    )


def walk(node: Node, seen: dict[int, Node]) -> Iterator[Node]:
    """Every node up to `node`, inputs first, each once."""
    if id(node) in seen:
        return
    seen[id(node)] = node
    for upstream in node.inputs:
        yield from walk(upstream, seen)
    yield node


SHARED = "*"
"""In place of a job's name: what belongs to all jobs that use it."""


def operator_ids(job: str, outputs: tuple[Write, ...]) -> dict[Operation, str]:
    """Stable names of a job's operators: the given name, or the kind and its place among its kind, counted from the source."""
    seen: dict[int, Node] = {}
    ids: dict[Operation, str] = {}
    for output in outputs:
        for node in walk(output, seen):
            if isinstance(node, Operation):
                local_name = node.name or f"{node.kind}-{len(ids) + 1}"
                owner = SHARED if node.name and isinstance(node, Deduplication) else job
                if f"{owner}/{local_name}" in ids.values():
                    raise DefinitionError(
                        f"two operators of job {job!r} are named {local_name!r}; give each its own name"
                    )
                ids[node] = f"{owner}/{local_name}"
    return ids


def side_output(node: Node, name: str) -> SideOutput:
    """A further output of a processor; refuses what has none of this name."""
    if not isinstance(node, Process):
        raise DefinitionError(
            f"side({name!r}) follows process(): it is what that processor emits besides its results"
        )
    if name not in node.side_schemas:
        raise DefinitionError(
            f"side({name!r}): {node.processor} has {', '.join(map(repr, node.side_schemas)) or 'no sides'}"
        )
    return SideOutput((node,), node.side_schemas[name], name)


def format_expressions(columns: Iterable[Any], named: Mapping[str, Any] | None = None) -> str:
    """Expressions as their user wrote them, for `explain`."""
    return ", ".join([*map(str, columns), *(f"{name}={value}" for name, value in (named or {}).items())])


INTERNAL_COLUMNS = {
    "_part": pl.Int64(),
    "_clock": pl.Int64(),
    "_src": pl.Int64(),
    "_off": pl.Int64(),
    "_ingested": pl.Int64(),
    "_ahead": pl.Boolean(),
    "_key": pl.Binary(),
    "_value": pl.Binary(),
}
"""Columns that ride along with rows until they reach an operator."""


def apply_to_no_rows(
    fn: Callable[[pl.DataFrame], pl.DataFrame], schema: pl.Schema, step_text: str
) -> pl.DataFrame:
    """What `fn` makes of no rows of the columns that a user sees."""
    try:
        with ordinary_errors():
            return fn(schema.to_frame())
    except Exception as error:
        raise DefinitionError(
            f"{step_text} does not fit the columns {', '.join(schema)}: {first_line(error)}"
        ) from error


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def derive_schema(fn: Callable[[pl.DataFrame], pl.DataFrame], schema: pl.Schema, step_text: str) -> pl.Schema:
    """The columns that `fn` makes of `schema`, found by trying it on no rows."""
    try:
        with ordinary_errors():
            result: Any = fn(pl.Schema({**schema, **INTERNAL_COLUMNS}).to_frame())
    except Exception as error:
        raise DefinitionError(
            f"{step_text} does not fit the columns {', '.join(schema)}: {first_line(error)}"
        ) from error
    if not isinstance(result, pl.DataFrame):
        raise DefinitionError(f"{step_text} must return a polars DataFrame, not {type(result).__name__}")
    missing = [
        column
        for column in (*INTERNAL_COLUMNS, *schema)
        if column not in result.columns and (column in INTERNAL_COLUMNS or column == "event_time")
    ]
    if missing:
        raise DefinitionError(
            f"{step_text} loses {', '.join(missing)}, without which a row has no place in time; keep the columns you do not know"
        )
    return pl.Schema({name: dtype for name, dtype in result.schema.items() if name not in INTERNAL_COLUMNS})
