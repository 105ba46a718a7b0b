"""What a job will do, as text: the graph, the stages it is cut into, and what, where,
when and how of each aggregation.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from millrace import graph
from millrace.stream import Job

_WIDTH = 100
"""Expressions longer than this are shortened."""


class SlotLayout(NamedTuple):
    """How a run divides its work."""

    slots: int
    """Into how many slots the keys of each stage are divided."""
    tasks: int
    """How many tasks work on the slots of a stage."""
    readers: int
    """How many tasks read partitions, if there are so many."""


def explain(jobs: Sequence[Job], layout: SlotLayout | None = None) -> str:
    """The graph of each job, then the stages of all of them together, and how a run would divide them."""
    return "\n\n".join([*map(_explain_job, jobs), _explain_stages(jobs, layout)])


def _explain_job(job: Job) -> str:
    ids = job.operator_ids
    numbers: dict[graph.Node, int] = {}
    delivery = "" if job.delivery == "exactly_once" else ", delivered " + job.delivery.replace("_", " ")
    lines = [f"job {job.name}{delivery}"]
    seen: dict[int, graph.Node] = {}
    for output in job.outputs:
        for node in graph.walk(output, seen):
            if isinstance(node, graph.Arguments):  # the aggregation after it quotes them
                numbers[node] = numbers[node.inputs[0]]
                continue
            numbers[node] = len({*numbers.values()}) + 1
            sources = ", ".join(str(numbers[source]) for source in node.inputs)
            lines.append(
                f"  {numbers[node]:>2}  {_explain_step(node, ids)}{f'  ← {sources}' if sources else ''}"
            )
            lines += [f"        {question:<8}  {answer}" for question, answer in node.describe().answers]
    return "\n".join(lines)


def _explain_step(node: graph.Node, ids: dict[graph.Operation, str]) -> str:
    title = _shorten(node.describe().title)
    return f"{title} {ids[node]}" if isinstance(node, graph.Operation) else title


def _explain_stages(jobs: Sequence[Job], layout: SlotLayout | None) -> str:
    reads: dict[str, int] = {}
    writes: dict[str, None] = {}
    stages: dict[int, list[str]] = defaultdict(list)
    for job in jobs:
        seen: dict[int, graph.Node] = {}
        for node in (node for output in job.outputs for node in graph.walk(output, seen)):
            if isinstance(node, graph.Read):
                reads[node.topic.name] = node.topic.partitions
            elif isinstance(node, graph.Write):
                writes[node.topic.name] = None
        for operator, name in job.operator_ids.items():
            stages[graph.depth(operator)].append(f"{name} {operator.by}{_explain_slots(operator, layout)}")
    lines = [
        "stages" if len(jobs) == 1 else f"stages of the {len(jobs)} jobs run together",
        f"  source   {', '.join(reads)}",
    ]
    if layout is not None and reads:
        partitions = sum(reads.values())
        tasks = min(partitions, layout.readers)
        lines.append(f"           {_count(partitions, 'partition')}, read by {_count(tasks, 'task')}")
    for depth in sorted(stages):
        lines.append(f"  stage {depth:<2} {'; '.join(stages[depth])}")
        if layout is not None:
            lines.append(f"           {_count(layout.slots, 'slot')} in {_count(layout.tasks, 'task')}")
    return "\n".join([*lines, f"  sink     {', '.join(writes)}"])


def _explain_slots(operator: graph.Operation, layout: SlotLayout | None) -> str:
    """In how many slots its keys are, where it does not use all of them."""
    if operator.parallelism is None:
        return ""
    slots = operator.parallelism if layout is None else operator.count_slots(layout.slots)
    return f" in {'at most ' if layout is None else ''}{_count(slots, 'slot')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
