"""What a job will do, as text: the graph, the stages it is cut into, and what, where, when and how of each aggregation."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from millrace import durations, graph
from millrace.graph.build.join import IntervalJoin, TableJoin
from millrace.graph.build.rules import MatchRules
from millrace.stream import Job

_WIDTH = 100
"""Expressions longer than this are shortened."""


def explain(jobs: Sequence[Job]) -> str:
    """The graph of each job, then the stages of all of them together."""
    return "\n\n".join([*map(_explain_job, jobs), _explain_stages(jobs)])


def _explain_job(job: Job) -> str:
    ids = job.operator_ids
    numbers: dict[graph.Node, int] = {}
    lines = [
        f"job {job.name}{'' if job.delivery == 'exactly_once' else ', delivered ' + job.delivery.replace('_', ' ')}"
    ]
    seen: dict[int, graph.Node] = {}
    for output in job.outputs:
        for node in graph.walk(output, seen):
            numbers[node] = len(numbers) + 1
            sources = ", ".join(str(numbers[source]) for source in node.inputs)
            lines.append(
                f"  {numbers[node]:>2}  {_explain_step(node, ids)}{f'  ← {sources}' if sources else ''}"
            )
            if isinstance(node, graph.Operation):
                lines += [f"        {question:<8}  {answer}" for question, answer in _explain_operation(node)]
    return "\n".join(lines)


_VERBS: dict[type[graph.Operation], str] = {
    graph.Deduplication: "deduplicate",
    graph.Process: "process",
    graph.MatchPattern: "match",
    graph.MatchRecognize: "match",
    MatchRules: "match",
    IntervalJoin: "join",
    TableJoin: "join",
}


def _explain_step(node: graph.Node, ids: dict[graph.Operation, str]) -> str:
    match node:
        case graph.Read(topic=topic, watermark=watermark):
            return f"read {topic.name} ({topic.type.__name__}), watermark {watermark}"
        case graph.Stateless(text=text):
            return _shorten(text)
        case graph.Union():
            return "union"
        case graph.Operation():
            return f"{_VERBS.get(type(node), 'aggregate')} {ids[node]}"
        case graph.Late():
            return "late: what the aggregation refused"
        case graph.SideOutput(output=graph.TIMEOUTS):
            return "timeouts: partial matches whose time was over"
        case graph.SideOutput(output=output):
            return f"{output}: what the operator says besides its results"
        case graph.Write(topic=topic, rounds=rounds):
            return f"write {topic.name} ({topic.type.__name__}){'' if rounds is None else f', at most {rounds} times around'}"
        case _:
            return node.kind


def _explain_operation(node: graph.Operation) -> Iterator[tuple[str, str]]:
    windowing = node.windowing
    if isinstance(node, MatchRules):
        yield "what", f"{', '.join(['steps', 'times', *node.show])} by {', '.join(node.keys)}"
        yield "where", "sequences of events that the rules say, each from its own event time on"
        yield "when", "rows are taken in order of event time, as the watermark releases them"
        yield "lateness", "a row or a rule behind the watermark is refused"
        return
    if isinstance(node, graph.MatchPattern | graph.MatchRecognize):
        shown = node.select if isinstance(node, graph.MatchPattern) else node.row_pattern.measures
        yield (
            "what",
            f"{', '.join(f'{name} = {expr}' for name, expr in shown.items())} by {', '.join(node.keys)}",
        )
        yield "where", str(node.pattern) if isinstance(node, graph.MatchPattern) else str(node.row_pattern)
        yield "when", "rows are taken in order of event time, as the watermark releases them"
        yield "lateness", "a row behind the watermark is refused"
        return
    if isinstance(node, graph.Process):
        yield "what", f"{node.processor} by {', '.join(node.keys)}"
        yield (
            "when",
            "rows are taken in order of event time, as the watermark releases them; timers and alarms when they are due",
        )
        yield "lateness", "a row behind the watermark is refused"
        return
    if isinstance(node, graph.Deduplication):
        within = durations.format_millis(node.within)
        yield "what", f"the first of rows with equal {', '.join(node.identity_columns)}"
        yield (
            "when",
            "at once"
            if node.is_immediate
            else f"{within} apart, in order of event time, as the watermark releases them",
        )
        yield (
            "lateness",
            f"a row is refused {within} behind the watermark"
            if node.is_immediate
            else "a row behind the watermark is refused",
        )
        return
    if isinstance(node, TableJoin):
        yield (
            "what",
            f"{', '.join(name for names in node.column_names for name in names.values())} by {', '.join(node.keys)}",
        )
        yield "where", str(windowing.window)
        yield "when", "rows are taken in order of event time, as the watermark releases them"
        yield "lateness", "a row behind the watermark is refused"
        return
    if isinstance(node, IntervalJoin):
        yield (
            "what",
            f"{', '.join(name for names in node.column_names for name in names.values())} by {', '.join(node.keys)}",
        )
        yield "where", str(windowing.window)
        yield (
            "when",
            "as soon as both rows are there"
            + ("; a row without a partner, when none can come" if node.is_outer else ""),
        )
        yield "lateness", "a row behind the watermark is refused"
        return
    aggregates = ", ".join(f"{name} = {aggregate}" for name, aggregate in node.aggregates.items())
    yield "what", f"{aggregates} by {', '.join(node.keys)}"
    kept_window = "the window that the panes come in, " if node.same_window else ""
    yield "where", f"{kept_window}{windowing.window}"
    yield "when", f"{windowing.trigger}{', with the panes that come in' if node.same_window else ''}"
    yield "how", ", ".join([f"{windowing.accumulation} panes", *_non_default_settings(windowing)])
    reads_rows = all(edge.read is not None for edge in graph.edges(node))
    lateness = f"a row is refused {durations.format_millis(windowing.lateness)} after its window's end"
    yield (
        "lateness",
        lateness if reads_rows else "panes are never refused: they correct those that came before",
    )


def _non_default_settings(windowing: graph.Windowing) -> Iterator[str]:
    """What was not left as it usually is."""
    if windowing.on_time != "always":
        yield "on time only if something is new"
    if windowing.closing == "none" and windowing.sliced_window is None and not windowing.is_ordered:
        yield "no last pane when the window is dropped, though something is new"
    if windowing.closing == "always":
        yield "a last pane when the window is dropped"
    if windowing.time != "end":
        yield f"at the time of the {windowing.time} new row"


def _explain_stages(jobs: Sequence[Job]) -> str:
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    stages: dict[int, list[str]] = defaultdict(list)
    for job in jobs:
        seen: dict[int, graph.Node] = {}
        for node in (node for output in job.outputs for node in graph.walk(output, seen)):
            if isinstance(node, graph.Read):
                reads[node.topic.name] = None
            elif isinstance(node, graph.Write):
                writes[node.topic.name] = None
        for operator, name in job.operator_ids.items():
            stages[graph.depth(operator)].append(f"{name} by {', '.join(operator.keys)}")
    lines = [
        "stages" if len(jobs) == 1 else f"stages of the {len(jobs)} jobs run together",
        f"  source   {', '.join(reads)}",
    ]
    lines += [f"  stage {depth:<2} {'; '.join(stages[depth])}" for depth in sorted(stages)]
    return "\n".join([*lines, f"  sink     {', '.join(writes)}"])


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
