"""Jobs that run together, cut into stages.

A graph is cut at each change of key. Stage n hosts the n-th keyed operator of every job, so ten jobs over one
topic decode it once, shuffle it once and keep one state store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

import polars as pl

from millrace import graph
from millrace.engine import fingerprints
from millrace.errors import DefinitionError
from millrace.graph.build.feedback import loop_topics, refuse_cycles
from millrace.stream import Job
from millrace.topics import Topic
from millrace.values.key_hash import KEY_GROUPS
from millrace.watermarks import Watermark


@dataclass(frozen=True, eq=False)
class Operator:
    """A keyed operator of a job."""

    id: str
    jobs: tuple[str, ...]
    """The jobs it belongs to: one, unless it is shared."""
    node: graph.Operation
    edges: tuple[graph.Edge, ...]
    depth: int
    horizon: int
    """How long after its end a window may still change: the greatest lateness on the way here."""
    upstream: tuple[str, ...] = ()
    """For each edge, the id of the operator it comes from; empty where rows come in."""
    shows: bool = True
    """Whether its panes go to a topic."""
    travels: bool = True
    """Whether its panes go to another operator."""
    side_outputs: frozenset[str] = frozenset()
    """What else is asked of it: the names of its further outputs that lead somewhere."""

    @property
    def aggregation(self) -> graph.Aggregation:
        """The node, of an operator that aggregates."""
        assert isinstance(self.node, graph.Aggregation)
        return self.node

    @property
    def over_rows(self) -> bool:
        """Whether rows come in, rather than panes that may still be refined."""
        return self.edges[0].read is not None

    @property
    def is_bounded_by_ingestion(self) -> bool:
        """Whether a row's own ingestion time tells that it cannot be late."""
        return all(
            edge.read is not None and edge.read.watermark.is_capped_by_ingestion for edge in self.edges
        )

    @property
    def grace(self) -> int:
        """How far behind ingestion a row cannot be refused yet: the least of all delays, as a partition that
        wakes up is judged by the others'.
        """
        return self.node.row_lateness + min(
            edge.read.watermark.delay for edge in self.edges if edge.read is not None
        )

    def input_index(self, channel: str) -> int:
        """The input of the node that a block comes to, by its channel."""
        return self._edge(channel).input_index

    def carries_watermarks(self, channel: str) -> bool:
        """Whether the rows of a block bring their watermark with them,
        as they come from an operator that knew it.
        """
        return isinstance(self._edge(channel).origin, graph.Operation)

    def _edge(self, channel: str) -> graph.Edge:
        return self.edges[int(channel.partition("/")[0])]

    @property
    def topics(self) -> list[str]:
        """The topics whose rows come in, in the order that decides between rows of equal time."""
        return sorted({edge.read.topic.name for edge in self.edges if edge.read is not None})


@dataclass(frozen=True, eq=False)
class Route:
    """Where rows go: along an edge into an operator, or out to a topic."""

    edge: graph.Edge
    edge_index: int
    """The place of the edge among those of its operator."""
    jobs: tuple[str, ...]
    operator: Operator | None
    topic: Topic | None
    clocks: tuple[str, ...] = ()
    """The clocks of the topic it reads, in the order of `Plan.clocks`."""
    born_at: int | None = None
    """Its job was born when time had come so far: rows that are not newer are not for it."""

    @property
    def target(self) -> str:
        """The name under which blocks find it."""
        return self.operator.id if self.operator else f"out/{self.topic.name if self.topic else ''}"


@dataclass(frozen=True, eq=False)
class Plan:
    """What runs: operators by stage, and the routes between them."""

    jobs: tuple[Job, ...]
    slots: int
    operators: tuple[Operator, ...]
    routes: tuple[Route, ...]
    isolates_jobs: bool = False
    """Whether an exception in one job's code stops that job alone,
    and travels with the batch instead of being raised.
    """
    paused: frozenset[str] = frozenset()
    """Jobs that are left out for now; their state is kept."""

    @classmethod
    def of(cls, jobs: Sequence[Job], *, slots: int) -> Plan:
        """The plan of jobs that run together; refuses what cannot be told apart or is not possible."""
        if not jobs:
            raise DefinitionError("there is no job to run")
        names = [job.name for job in jobs]
        for name in names:
            if names.count(name) > 1:
                raise DefinitionError(
                    f"two jobs are named {name!r}; their state could not be told "
                    "apart: give each its own name"
                )
        if not 1 <= slots <= KEY_GROUPS:
            raise DefinitionError(
                f"slots={slots} must be between 1 and {KEY_GROUPS}, the number of key groups"
            )
        operators = _merge_shared([operator for job in jobs for operator in _operators_of(job)])
        inner = (Route(edge, i, o.jobs, o, None) for o in operators for i, edge in enumerate(o.edges))
        routes = (*inner, *(route for job in jobs for route in _output_routes(job)))
        plan = cls(tuple(jobs), slots, operators, routes)
        plan._check()
        timed_routes = (
            replace(r, clocks=tuple(plan.clocks[r.edge.origin.topic.name]))
            if isinstance(r.edge.origin, graph.Read)
            else r
            for r in routes
        )
        return cls(plan.jobs, slots, operators, tuple(timed_routes))

    @cached_property
    def topics(self) -> tuple[Topic, ...]:
        """The topics read."""
        reads = (r.edge.origin.topic for r in self.routes if isinstance(r.edge.origin, graph.Read))
        return tuple({topic.name: topic for topic in reads}.values())

    @cached_property
    def outputs(self) -> tuple[Topic, ...]:
        """The topics written."""
        return tuple({r.topic.name: r.topic for r in self.routes if r.topic}.values())

    @cached_property
    def depth(self) -> int:
        """The number of stages."""
        return max((operator.depth for operator in self.operators), default=0)

    @cached_property
    def loop_topics(self) -> frozenset[str]:
        """The topics that rows go around through."""
        return loop_topics(self.jobs)

    @property
    def has_source_lookups(self) -> bool:
        """Whether somebody is asked about rows where they are read, whose answer depends on when."""
        reads = (route.edge for route in self.routes if isinstance(route.edge.origin, graph.Read))
        return any(isinstance(step, graph.Lookup) for edge in reads for step in edge.steps)

    @property
    def needs_ticks(self) -> bool:
        """Whether something waits for the clock, so that batches must come though no event does."""
        return self.needs_clock or any(watermark.idle is not None for watermark in self._watermarks())

    @property
    def needs_clock(self) -> bool:
        """Whether some window lies in processing time, or some trigger or timer may wait for it."""
        return any(operator.node.needs_clock for operator in self.operators)

    @cached_property
    def clocks(self) -> dict[str, dict[str, pl.Expr]]:
        """For each topic, the clocks that are read off its rows, by their id."""
        clocks: dict[str, dict[str, pl.Expr]] = {topic.name: {} for topic in self.topics}
        for route in self.routes:
            if isinstance(route.edge.origin, graph.Read):
                read = route.edge.origin
                if self._is_running(route.jobs):
                    clocks[read.topic.name][read.watermark.clock_id] = read.watermark.clock()
                else:
                    clocks[read.topic.name].setdefault(read.watermark.clock_id, pl.lit(None, pl.Int64))
        return clocks

    @cached_property
    def needed_columns(self) -> dict[str, frozenset[str] | None]:
        """Of each topic read, the columns that something looks at; None: all of them."""
        wanted: dict[str, frozenset[str] | None] = {}
        for topic in self.topics:
            needs = [self._columns_needed_by(route) for route in self.routes if _reads(route, topic)]
            known_needs = [columns for columns in needs if columns is not None]
            wanted[topic.name] = frozenset().union(*known_needs) if len(known_needs) == len(needs) else None
        return wanted

    def _columns_needed_by(self, route: Route) -> frozenset[str] | None:
        """The columns that one way of rows looks at;
        all where rows leave as they are, or wait to be looked at.
        """
        operator, read = route.operator, route.edge.read
        if (
            operator is None
            or read is None
            or any(r.edge.origin is operator.node and r.edge.output == "late" for r in self.routes)
        ):
            return None
        node, own = operator.node, operator.node.input_columns
        if own is None:
            return None
        onward = [
            self._columns_needed_by(r) for r in self.routes if node.forwards_rows and r.edge.origin is node
        ]
        needs = [
            graph.columns_used([read.watermark.clock()]),
            *(step.columns_read for step in route.edge.steps),
            *onward,
        ]
        known_needs = [columns for columns in needs if columns is not None]
        return own.union(*known_needs) if len(known_needs) == len(needs) else None

    @cached_property
    def learned_topics(self) -> dict[str, dict[str, Watermark]]:
        """The topics of which some reader learns its delay,
        with the watermarks by whose clocks lags are measured.
        """
        reads = (
            r.edge.origin
            for r in self.routes
            if isinstance(r.edge.origin, graph.Read) and self._is_running(r.jobs)
        )
        topics: dict[str, dict[str, Watermark]] = {}
        for read in reads:
            if read.watermark.is_learned:
                topics.setdefault(read.topic.name, {})[read.watermark.clock_id] = read.watermark
        return topics

    def stage(self, depth: int) -> list[Operator]:
        """The operators of a stage that run, 1 for the first."""
        return [
            operator
            for operator in self.operators
            if operator.depth == depth and self._is_running(operator.jobs)
        ]

    def routes_from(self, operator: Operator, output: str = "out") -> list[Route]:
        """Where the rows of an operator go."""
        routes = [
            route
            for route in self.routes
            if route.edge.origin is operator.node
            and route.edge.output == output
            and {*route.jobs} & {*operator.jobs}
        ]
        return [route for route in routes if self._is_running(route.jobs)]

    def routes_of_topic(self, topic: str) -> list[Route]:
        """Where the rows of a topic go."""
        reads = [
            r
            for r in self.routes
            if isinstance(r.edge.origin, graph.Read) and r.edge.origin.topic.name == topic
        ]
        return [r for r in reads if self._is_running(r.jobs)]

    def _is_running(self, jobs: Sequence[str]) -> bool:
        """Whether some of these jobs is not left out."""
        return not self.paused.issuperset(jobs)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with anything that stored state depends on: names, keys, windows, aggregates, slots."""
        whole = {
            "slots": self.slots,
            "operators": [[o.id, o.depth, o.node.identity()] for o in self.operators],
            "topics": [[topic.name, topic.type.__name__] for topic in (*self.topics, *self.outputs)],
        }
        return blake2b(json.dumps(whole, sort_keys=True).encode(), digest_size=8).hexdigest()

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """For each operator what its state depends on: keys, windows, aggregates, the steps before it, and
        whatever it says of itself.
        """
        return {operator.id: fingerprints.describe(operator) for operator in self.operators}

    def with_births(self, births: Mapping[str, int]) -> Plan:
        """With jobs that joined when time had come so far, in event time."""
        routes = []
        for route in self.routes:
            times = [births[job] for job in route.jobs if job in births]
            routes.append(replace(route, born_at=min(times)) if len(times) == len(route.jobs) else route)
        return replace(self, routes=tuple(routes))

    def _watermarks(self) -> list[Watermark]:
        return [r.edge.origin.watermark for r in self.routes if isinstance(r.edge.origin, graph.Read)]

    def _check(self) -> None:
        refuse_cycles(self.jobs)
        topics: dict[str, Topic] = {}
        reads = [
            route.edge.origin.topic for route in self.routes if isinstance(route.edge.origin, graph.Read)
        ]
        for topic in (*reads, *(route.topic for route in self.routes if route.topic)):
            other = topics.setdefault(topic.name, topic)
            if other.type is not topic.type:
                raise DefinitionError(
                    f"topic {topic.name!r} is said to be of {other.type.__name__} and of "
                    f"{topic.type.__name__}; say it once"
                )
        for operator in self.operators:
            if len({edge.read is None for edge in operator.edges}) > 1:
                raise DefinitionError(
                    f"{operator.id} takes rows of a topic and panes of an aggregation in one union; "
                    "aggregate the rows first"
                )
            if any(edge.output == "late" for edge in operator.edges):
                raise DefinitionError(
                    f"{operator.id} aggregates late rows, which have no watermark of their own; write them "
                    "to a topic and read that"
                )


def _operators_of(job: Job) -> list[Operator]:
    operators: list[Operator] = []
    ids = job.operator_ids
    written = {edge.origin for write in job.outputs for edge in graph.edges(write) if edge.output == "out"}
    consumed = {edge.origin for node in ids for edge in graph.edges(node)}
    outputs_read = [(edge.origin, edge.output) for node in (*ids, *job.outputs) for edge in graph.edges(node)]
    for node, id in ids.items():
        edges = tuple(graph.edges(node))
        upstream = tuple(
            ids[edge.origin]
            for edge in edges
            if isinstance(edge.origin, graph.Operation) and edge.read is None
        )
        side_outputs = frozenset(
            output for origin, output in outputs_read if origin is node and output not in ("out", "late")
        )
        fate = {"shows": node in written, "travels": node in consumed}
        operators.append(
            Operator(
                id,
                (job.name,),
                node,
                edges,
                graph.depth(node),
                _horizon(node),
                upstream,
                **fate,
                side_outputs=side_outputs,
            )
        )
    return operators


def _horizon(node: graph.Node) -> int:
    own = node.lateness if isinstance(node, graph.Operation) else 0
    return max([own, *map(_horizon, node.inputs)])


def _merge_shared(operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """Operators that several jobs use, and that are shared, once; in an order in which none comes before
    those it takes rows from.
    """
    found: dict[str, Operator] = {}
    for operator in operators:
        known = found.get(operator.id)
        if known is None:
            found[operator.id] = operator
        elif known.node is operator.node:
            found[operator.id] = replace(known, jobs=(*known.jobs, *operator.jobs))
        else:
            raise DefinitionError(
                f"jobs {known.jobs[0]!r} and {operator.jobs[0]!r} each have a deduplication named "
                f"{operator.node.name!r}; use the same stream in both, or name them differently"
            )
    for operator in operators:
        twin = next(other for other in operators if other.node is operator.node)
        if operator.node.forwards_rows and twin.id != operator.id:
            raise DefinitionError(
                f"jobs {twin.jobs[0]!r} and {operator.jobs[0]!r} share a deduplication that has no name, so "
                "its state could not be found again when one of them leaves; give it one: "
                ".deduplicate(...).named('...')"
            )
    return tuple(found.values())


def _output_routes(job: Job) -> list[Route]:
    return [
        Route(edge, i, (job.name,), None, write.topic)
        for write in job.outputs
        for i, edge in enumerate(graph.edges(write))
    ]


def _reads(route: Route, topic: Topic) -> bool:
    return isinstance(route.edge.origin, graph.Read) and route.edge.origin.topic.name == topic.name
