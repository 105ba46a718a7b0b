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
from millrace.engine.followed_topics import check_followed, find_followed_topics
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
    """How long after its end a window may still change: the greatest lateness of this and all earlier
    operators.
    """
    upstream: tuple[str | None, ...] = ()
    """For each edge the id of the operator whose results it reads; null where it reads a topic."""
    shows: bool = True
    """Whether its panes go to a topic."""
    travels: bool = True
    """Whether its panes go to another operator."""
    side_outputs: frozenset[str] = frozenset()
    """The names of its further outputs that something reads."""
    hands_on_late: bool = False
    """Whether another operator takes the rows that it refuses, so that all of them must be whole."""
    shows_late: bool = False
    """Whether anything reads the rows that it refuses."""

    @property
    def aggregation(self) -> graph.Aggregation:
        """The node; only of an operator that aggregates."""
        assert isinstance(self.node, graph.Aggregation)
        return self.node

    @cached_property
    def over_rows(self) -> bool:
        """Whether it reads rows, rather than panes that may still be refined."""
        return graph.takes_rows(self.node)

    def takes_as_rows(self, edge: graph.Edge) -> bool:
        """Whether it takes what comes by an edge as rows, rather than as changes."""
        return graph.comes_as_rows(edge, self.node)

    @cached_property
    def takes_rows_beside_panes(self) -> bool:
        """Whether it aggregates rows that may be late, and panes that may be refined."""
        return not self.over_rows and any(self.takes_as_rows(edge) for edge in self.edges if edge.is_judged)

    @property
    def waits_for_others(self) -> bool:
        """Whether it reads several things, so that it may have gone on without one that was idle."""
        return len({edge.read or edge.origin for edge in self.edges}) > 1

    @property
    def is_bounded_by_ingestion(self) -> bool:
        """Whether the ingestion time of a row alone can show that it is not late."""
        return all(
            edge.read is not None and edge.read.watermark.is_capped_by_ingestion for edge in self.edges
        )

    @property
    def grace(self) -> int:
        """How far a row may lag behind its ingestion and certainly be accepted.

        The least of all delays counts: a partition that wakes up is judged by the watermark of the others.
        """
        return self.node.row_lateness + min(
            edge.read.watermark.delay for edge in self.edges if edge.read is not None
        )

    def input_index(self, channel: str) -> int:
        """The index of the node's input to which the blocks of a channel belong."""
        return self._edge(channel).input_index

    def carries_watermarks(self, channel: str) -> bool:
        """Whether each row of a block carries its watermark, as it comes from an operator, not a topic."""
        return isinstance(self._edge(channel).origin, graph.Operation)

    def topic_of(self, channel: str) -> str | None:
        """The topic from which the rows of a channel come; null where an operator made them."""
        read = self._edge(channel).read
        return None if read is None else read.topic.name

    def _edge(self, channel: str) -> graph.Edge:
        return self.edges[int(channel.partition("/")[0])]

    @property
    def topics(self) -> list[str]:
        """The topics it reads, in the order that decides between rows of equal time."""
        return sorted({edge.read.topic.name for edge in self.edges if edge.read is not None})


@dataclass(frozen=True, eq=False)
class Route:
    """Where rows go: along an edge into an operator, or out to a topic."""

    edge: graph.Edge
    edge_index: int
    """The index of the edge among those of its operator."""
    jobs: tuple[str, ...]
    operator: Operator | None
    topic: Topic | None
    clocks: tuple[str, ...] = ()
    """The clocks of the topic it reads, in the order of `Plan.clocks`."""
    born_at: int | None = None
    """The event time at which its job joined: only newer rows are for it."""

    @property
    def target(self) -> str:
        """The name to which blocks are addressed."""
        return self.operator.id if self.operator else f"out/{self.topic.name if self.topic else ''}"


@dataclass(frozen=True, eq=False)
class Plan:
    """The operators that run, by stage, and the routes between them."""

    jobs: tuple[Job, ...]
    slots: int
    operators: tuple[Operator, ...]
    routes: tuple[Route, ...]
    isolates_jobs: bool = False
    """Whether an exception in a job's code stops that job alone.

    It is then reported with the results of the batch instead of raised.
    """
    paused: frozenset[str] = frozenset()
    """Jobs that are left out for now; their state is kept."""

    @classmethod
    def of(cls, jobs: Sequence[Job], *, slots: int) -> Plan:
        """The plan of jobs that run together; refuses jobs that cannot."""
        if not jobs:
            raise DefinitionError("there is no job to run")
        names = [job.name for job in jobs]
        for name in names:
            if names.count(name) > 1:
                raise DefinitionError(
                    f"two jobs are named {name!r}, so their state would be mixed up; give each its own name"
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
        """The topics through which jobs feed rows back to their own input."""
        return loop_topics(self.jobs)

    @cached_property
    def followed_topics(self) -> frozenset[str]:
        """The topics of which some job follows the watermark of the writers."""
        return find_followed_topics(self.jobs)

    @property
    def can_be_read_ahead(self) -> bool:
        """Whether reading a range of the log gives the same whenever it is read.

        Lookups may answer otherwise later, and how far writers vouch for a topic is known with its batch.
        """
        return not self.followed_topics and not self._has_source_lookups

    @property
    def _has_source_lookups(self) -> bool:
        reads = (route.edge for route in self.routes if isinstance(route.edge.origin, graph.Read))
        return any(isinstance(step, graph.Lookup) for edge in reads for step in edge.steps)

    @property
    def needs_ticks(self) -> bool:
        """Whether something waits for the clock, so that batches are needed even without events."""
        return self.needs_clock or any(watermark.idle is not None for watermark in self._watermarks())

    @property
    def needs_clock(self) -> bool:
        """Whether some window lies in processing time, or some trigger or timer may wait for it."""
        return any(operator.node.needs_clock for operator in self.operators)

    @cached_property
    def clocks(self) -> dict[str, dict[str, pl.Expr]]:
        """For each topic, the clocks that are computed from its rows, by their id."""
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
        """For each topic read, the columns that are needed; None: all of them."""
        wanted: dict[str, frozenset[str] | None] = {}
        for topic in self.topics:
            needs = [self._columns_needed_by(route) for route in self.routes if _reads(route, topic)]
            known_needs = [columns for columns in needs if columns is not None]
            wanted[topic.name] = frozenset().union(*known_needs) if len(known_needs) == len(needs) else None
        return wanted

    def _columns_needed_by(self, route: Route) -> frozenset[str] | None:
        """The columns that a route needs; None (all) where rows leave unchanged or are kept whole."""
        operator, read = route.operator, route.edge.read
        if (
            operator is None
            or read is None
            or any(r.edge.origin is operator.node and r.edge.output == graph.LATE for r in self.routes)
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
        """The topics with a learned delay; for each, the watermarks whose clocks measure its lags."""
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
        """The operators of a stage that run; the first stage is 1."""
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
        """Whether any of these jobs is not paused."""
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
        """For each operator, all that its state depends on: keys, windows, aggregates, its other settings,
        and the steps before it.
        """
        return {operator.id: fingerprints.describe(operator) for operator in self.operators}

    def with_births(self, births: Mapping[str, int]) -> Plan:
        """The plan with the event times at which later jobs joined."""
        routes = []
        for route in self.routes:
            times = [births[job] for job in route.jobs if job in births]
            routes.append(replace(route, born_at=min(times)) if len(times) == len(route.jobs) else route)
        return replace(self, routes=tuple(routes))

    def _watermarks(self) -> list[Watermark]:
        return [r.edge.origin.watermark for r in self.routes if isinstance(r.edge.origin, graph.Read)]

    def _check(self) -> None:
        refuse_cycles(self.jobs)
        check_followed(self)
        topics: dict[str, Topic] = {}
        reads = [
            route.edge.origin.topic for route in self.routes if isinstance(route.edge.origin, graph.Read)
        ]
        for topic in (*reads, *(route.topic for route in self.routes if route.topic)):
            other = topics.setdefault(topic.name, topic)
            if other.type is not topic.type:
                raise DefinitionError(
                    f"topic {topic.name!r} is declared with the types {other.type.__name__} and "
                    f"{topic.type.__name__}; declare it once"
                )
        for operator in self.operators:
            for edge in operator.edges:
                origin = edge.origin
                if not isinstance(origin, graph.Operation) or not origin.forwards_rows:
                    continue
                if graph.depth(origin) == operator.depth and origin.parallelism != operator.node.parallelism:
                    raise DefinitionError(
                        f"{operator.id} takes rows in the slots of the deduplication before it, but one has "
                        f"parallelism {operator.node.parallelism} and the other {origin.parallelism}; give "
                        "both the same"
                    )


def _operators_of(job: Job) -> list[Operator]:
    operators: list[Operator] = []
    ids = job.operator_ids
    written = {edge.origin for write in job.outputs for edge in graph.edges(write) if edge.output == "out"}
    inner_edges = [edge for node in ids for edge in graph.edges(node)]
    consumed = {edge.origin for edge in inner_edges}
    outputs_read = [(edge.origin, edge.output) for node in (*ids, *job.outputs) for edge in graph.edges(node)]
    for node, id in ids.items():
        edges = tuple(graph.edges(node))
        upstream = tuple(
            ids[edge.origin] if isinstance(edge.origin, graph.Operation) and edge.read is None else None
            for edge in edges
        )
        side_outputs = frozenset(
            output for origin, output in outputs_read if origin is node and output not in ("out", graph.LATE)
        )
        operators.append(
            Operator(
                id,
                (job.name,),
                node,
                edges,
                graph.depth(node),
                graph.correction_time(node),
                upstream,
                shows=node in written,
                travels=node in consumed,
                side_outputs=side_outputs,
                hands_on_late=any(edge.origin is node and edge.output == graph.LATE for edge in inner_edges),
                shows_late=(node, graph.LATE) in outputs_read,
            )
        )
    return operators


def _merge_shared(operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """Each operator once, with all the jobs that share it, behind the operators from which it takes rows."""
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
