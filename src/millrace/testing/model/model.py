"""The executable specification: one row at a time, obviously right, slow; the oracle of the tests.

It computes what the semantics say, not how the engine does it: it keeps every row that a window ever took,
and computes every pane anew from all of them. Jobs share nothing here, and operators of one job only what
travels between them.

It shares no code with the engine, nor with the matchers of `patterns/`: it has its own trigger machine
(`triggers.py`), its own patterns (`pattern_definition.py`, `pattern_stream.py`) and row patterns
(`row_pattern_definition.py`). `tests/test_architecture.py` checks it. What both still share is the language
in which jobs are written, so the model cannot catch a fault there:

- how windows assign times and merge (`windows.py`), and how a delay follows from lags (`watermarks.py`);
- the graph that a stream records, and its stateless steps as polars expressions;
- a user's own code: aggregates, processors and the calls to them (`processors.py`), and the parser of rules;
- the grammar of row patterns, and what their SQL expressions mean for a row.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from millrace import graph, panes
from millrace.graph.build.join import IntervalJoin, TableJoin
from millrace.graph.build.over import Over
from millrace.graph.build.regular_join import RegularJoin
from millrace.stream import Job
from millrace.testing.model.chained import ModelChainedOperator, ModelRowsBesidePanes
from millrace.testing.model.deduplicate import ModelDeduplicate
from millrace.testing.model.final import ModelFinal
from millrace.testing.model.interval_join import ModelIntervalJoin
from millrace.testing.model.operators import ModelOperator, ModelRowOperator, apply_steps, compute_values
from millrace.testing.model.ordered_windows import ModelOrderedWindows
from millrace.testing.model.outcome import OperatorOutcome, RowModel, net_changes
from millrace.testing.model.over import model_over
from millrace.testing.model.patterns import RECOGNIZERS
from millrace.testing.model.process import ModelProcess
from millrace.testing.model.regular_join import ModelRegularJoin, ModelRegularJoinOperator
from millrace.testing.model.source import SourceEvent, source_row
from millrace.testing.model.table_join import ModelTableJoin
from millrace.testing.model.values import Row
from millrace.testing.model.windows import ModelWindows


def _model_aggregation(node: graph.Aggregation, values: Any) -> RowModel:
    return (ModelOrderedWindows if node.windowing.is_ordered else ModelWindows)(node, values)


MODELS: dict[type[graph.Operation], Callable[[Any, Any], RowModel]] = {
    graph.Aggregation: _model_aggregation,
    **RECOGNIZERS,
    IntervalJoin: ModelIntervalJoin,
    RegularJoin: ModelRegularJoin,
    TableJoin: ModelTableJoin,
    Over: model_over,
    graph.Deduplication: ModelDeduplicate,
    graph.Process: ModelProcess,
}
"""For each kind of node, what models it over rows of topics.

`ModelChainedOperator` models aggregations over panes.
"""


def model_of(node: graph.Operation) -> RowModel:
    """What models a node over rows. Aggregations also get the function that computes their values."""
    values = partial(compute_values, node) if isinstance(node, graph.Aggregation) else None
    return MODELS[type(node)](node, values)


def takes_rows_beside_panes(node: graph.Aggregation) -> bool:
    """Whether rows that may be late come in, besides panes."""
    return not node.over_rows and any(graph.comes_as_rows(edge, node) for edge in graph.edges(node))


class JobModel:
    """One job by itself."""

    def __init__(self, job: Job, partitions: Mapping[str, int]) -> None:
        """`partitions`: how many each topic has."""
        self.job, self.partitions = job, partitions
        self.operators: dict[graph.Operation, ModelOperator] = {}
        for node, name in job.operator_ids.items():
            if isinstance(node, graph.FinalValues):
                self.operators[node] = ModelFinal(node, name, self.operators)
            elif isinstance(node, graph.Aggregation) and takes_rows_beside_panes(node):
                self.operators[node] = ModelRowsBesidePanes(node, name, partitions, self.operators)
            elif isinstance(node, graph.Aggregation) and not node.over_rows:
                self.operators[node] = ModelChainedOperator(node, name, self.operators)
            else:
                kind = ModelRegularJoinOperator if isinstance(node, RegularJoin) else ModelRowOperator
                self.operators[node] = kind(node, name, model_of(node), partitions, self.operators)

    def step(
        self, batch: Sequence[SourceEvent], now: int, end: bool
    ) -> tuple[dict[str, list[Row]], list[Row]]:
        """What the job writes to each topic, and what it refused."""
        for operator in self.operators.values():
            operator.outcome = OperatorOutcome()
            if isinstance(operator, ModelRowOperator):
                operator.step(batch, now, end)
            elif isinstance(operator, ModelChainedOperator | ModelFinal):
                operator.step()
        written: dict[str, list[Row]] = defaultdict(list)
        for write in self.job.outputs:
            for edge in graph.edges(write):
                written[write.topic.name] += self.written_rows(edge, batch)
        return written, [
            report for operator in self.operators.values() for report in operator.outcome.reports
        ]

    def written_rows(self, edge: graph.Edge, batch: Sequence[SourceEvent]) -> list[Row]:
        """The rows that reach a topic by one edge."""
        origin = edge.origin
        if isinstance(origin, graph.Read):  # without windows no row is too late or too early
            events = [event for event in batch if event.topic == origin.topic.name]
            return [result for event in events for result in apply_steps(edge, source_row(event))]
        outcome = self.operators[origin].outcome
        if origin.forwards_rows and edge.output == "out":
            return [
                result
                for arrival in outcome.forwarded
                if arrival.row_order[2] == edge.input_edge
                for result in apply_steps(edge, arrival.row)
            ]
        if edge.output == graph.LATE:
            refused = self.operators[origin].refused_rows(edge)
            return [result for arrival in refused for result in apply_steps(edge, arrival.row)]
        if edge.output != "out":
            return [
                result
                for row in outcome.side_outputs.get(edge.output, [])
                for result in apply_steps(edge, row)
            ]
        records = [(pane_id, result) for pane_id, row in outcome.records for result in apply_steps(edge, row)]
        if edge.may_cancel:
            return list(net_changes([(None, row) for _, row in records]))
        if edge.makes_pane_rows:
            return list(net_changes(records))
        if origin.accumulation != "accumulating":
            return [row for _, row in records]
        added = [pane_id for pane_id, row in records if row["op"] == panes.ADD]
        withdrawn = [result for row in outcome.withdrawn for result in apply_steps(edge, row)]
        return withdrawn + [row for pane_id, row in records if row["op"] == panes.ADD or pane_id not in added]


class Model:
    """Jobs, and the streams they read, a batch at a time."""

    def __init__(self, jobs: Sequence[Job], partitions: Mapping[str, int]) -> None:
        """`partitions`: how many partitions each topic has that the jobs read."""
        self.jobs = [JobModel(job, partitions) for job in jobs]

    def step(
        self, batch: Sequence[SourceEvent], now: int, *, end: bool = False
    ) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """The rows written to each topic, and for each job the reports of what it refused.

        `end`: nothing follows this batch.
        """
        written: dict[str, list[Row]] = defaultdict(list)
        late: dict[str, list[Row]] = {}
        for model in self.jobs:
            rows, late[model.job.name] = model.step(batch, now, end)
            for topic, job_rows in rows.items():
                written[topic] += job_rows
        return dict(written), late

    def follow(self, watermarks: Mapping[tuple[str, int], int]) -> None:
        """From the next batch on, the writers of these partitions vouch for what follows it."""
        for model in self.jobs:
            for operator in model.operators.values():
                for partition in operator.partitions if isinstance(operator, ModelRowOperator) else ():
                    partition.upstream_watermark = watermarks.get(
                        (partition.read.topic.name, partition.partition)
                    )

    @property
    def watermarks(self) -> dict[str, int | None]:
        """The low watermark of each operator, None where there is none yet."""
        operators = [operator for model in self.jobs for operator in model.operators.values()]
        return {
            operator.name: None if operator.time == -math.inf else int(operator.time)
            for operator in operators
        }
