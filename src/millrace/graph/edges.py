"""How rows reach an operator or a topic, and in which stage: the graph read backwards,
from a node to its origins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from millrace.errors import DefinitionError
from millrace.graph.nodes import LATE, Late, Node, PaneRows, Read, SideOutput, Stateless, Union, Write
from millrace.graph.operations import Aggregation, Operation


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
    def is_append_only(self) -> bool:
        """Whether what comes is never taken back: rows, and not a changelog."""
        return self.read is not None or (
            isinstance(self.origin, Operation) and (self.output != "out" or self.origin.is_append_only)
        )

    @property
    def is_judged(self) -> bool:
        """Whether rows come that may be late: those of a topic, or those that an operation refused."""
        return self.read is not None or self.output == LATE

    @property
    def has_panes(self) -> bool:
        """Whether panes of an aggregation come, which have a window of their own."""
        return isinstance(self.origin, Aggregation) and self.read is None and self.output == "out"

    @property
    def makes_pane_rows(self) -> bool:
        """Whether a pane becomes rows, which are added and withdrawn one by one."""
        return any(isinstance(step, PaneRows) for step in self.steps)

    @property
    def may_cancel(self) -> bool:
        """Whether rows come one by one, added and taken back, and the steps may have made some equal."""
        is_row_level = isinstance(self.origin, Operation) and self.origin.gives_single_rows
        return is_row_level and self.output == "out" and bool(self.steps)

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
        case Operation(forwards_rows=True):
            for input_edge, inner in enumerate(edges(node)):
                yield Edge(node, "out", steps, node.schema, input_index, inner.read, input_edge)
        case Read() | Operation():
            yield Edge(node, "out", steps, node.schema, input_index)
        case Late(inputs=(Operation() as late_origin,)):
            yield Edge(late_origin, LATE, steps, node.schema, input_index)
        case SideOutput(inputs=(Operation() as side_origin,), output=output):
            yield Edge(side_origin, output, steps, node.schema, input_index)
        case Stateless():
            yield from _edges(node.inputs[0], (node, *steps), input_index)
        case Union():
            for upstream in node.inputs:
                yield from _edges(upstream, steps, input_index)
        case _:
            raise DefinitionError(f"a stream cannot go on after {node.describe().title}")


def takes_rows(node: Operation) -> bool:
    """Whether an operation takes what comes as rows, each with its place in event time,
    rather than as a changelog.
    """
    return node.over_rows if isinstance(node, Aggregation) else not node.takes_changelog


def comes_as_rows(edge: Edge, node: Operation) -> bool:
    """The same for what comes to it by one edge: an aggregation may take rows beside panes."""
    if node.takes_both:
        return edge.is_append_only
    return takes_rows(node) or (edge.is_judged and isinstance(node, Aggregation))


def correction_time(node: Node) -> int:
    """How long after its time a result may still be corrected: the greatest lateness on the way to it."""
    own = node.lateness if isinstance(node, Operation) else 0
    if isinstance(node, Operation) and takes_rows(node):
        return own
    return max([own, *map(correction_time, node.inputs)])


def depth(node: Node) -> int:
    """The number of the stage that rows have passed when they leave `node`:
    how often they were dealt anew, by key.
    """
    if isinstance(node, Operation):
        return 1 + max((depth(edge.origin) - _keeps_key(edge, node) for edge in edges(node)), default=0)
    return max((depth(upstream) for upstream in node.inputs), default=0)


def _keeps_key(edge: Edge, node: Operation) -> bool:
    """Whether rows need not be dealt anew, as they were by the same key before."""
    has_same_keys = (
        isinstance(edge.origin, Operation)
        and edge.origin.forwards_rows
        and edge.output == "out"
        and edge.origin.keys == node.keys
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
    """Stable names of a job's operators: the given name,
    or the kind and its place among its kind, counted from the source.
    """
    seen: dict[int, Node] = {}
    ids: dict[Operation, str] = {}
    for output in outputs:
        for node in walk(output, seen):
            if isinstance(node, Operation):
                local_name = node.name or f"{node.kind}-{len(ids) + 1}"
                owner = SHARED if node.name and node.forwards_rows else job
                if f"{owner}/{local_name}" in ids.values():
                    raise DefinitionError(
                        f"two operators of job {job!r} are named {local_name!r}; give each its own name"
                    )
                ids[node] = f"{owner}/{local_name}"
    return ids
