"""Whether the jobs that write a topic can vouch for it: whether they know up to which time it is complete.

Jobs that run together are checked before they run. A topic that other runs write is not known here: if nobody
vouches for it, the watermark of its readers stands still, and the run says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import polars as pl

from millrace import graph
from millrace.errors import DefinitionError
from millrace.stream import Job
from millrace.watermarks import Upstream
from millrace.windows import Sliding, Unaligned

if TYPE_CHECKING:
    from millrace.engine.plan import Plan, Route

_TIME = "event_time"


def find_followed_topics(jobs: Iterable[Job]) -> frozenset[str]:
    """The topics of which some job follows the watermark of the writers."""
    nodes = (node for job in jobs for write in job.outputs for node in graph.walk(write, {}))
    return frozenset(
        node.topic.name
        for node in nodes
        if isinstance(node, graph.Read) and isinstance(node.watermark, Upstream)
    )


def check_followed(plan: Plan) -> None:
    """Refuses jobs that follow the watermark of a topic for which jobs beside them do not vouch."""
    deliveries = {job.name: job.delivery for job in plan.jobs}
    for route in plan.routes:
        if route.topic is None or route.topic.name not in plan.followed_topics:
            continue
        delivery = deliveries[route.jobs[0]]
        reason = (
            f"it delivers {delivery.replace('_', ' ')}, so results may be written once more later"
            if delivery != "exactly_once"
            else "rows go around through it, so its watermark would wait for itself"
            if route.topic.name in plan.loop_topics
            else find_obstacle(route)
        )
        if reason is not None:
            raise DefinitionError(
                f"read({route.topic.name}, watermark=upstream()): job {route.jobs[0]!r} cannot vouch for the "
                f"topic, as {reason}; use another watermark there, such as bounded('5s')"
            )


def find_obstacle(route: Route) -> str | None:
    """Why nobody can tell up to which time the rows of a route are complete; None if that is known."""
    edge, origin = route.edge, route.edge.origin
    if route.topic is not None and not route.topic.envelope:
        return "its records carry a time of their own, which is not that of the results"
    if edge.output == graph.LATE:
        return "it writes late rows at their own time, which is over"
    if any(_sets_time(step) for step in edge.steps):
        return "a step before write() sets event_time"
    has_windows = isinstance(origin, graph.Aggregation) and origin.is_bounded
    if not (edge.is_append_only or has_windows):
        return "its results may be corrected at any time"
    if isinstance(origin, graph.Aggregation):
        if origin.windowing.is_ordered:
            return "windows that rows cut are shown when a later row comes or the stream ends"
        if time_before_end(origin.windowing) is None:
            return "its results have the time of a row, and the window has no fixed size"
    return None


def _sets_time(step: graph.Stateless) -> bool:
    """Whether the expressions of a step give rows another time. Functions of users are taken to keep it."""
    names: Mapping[str | None, pl.Expr] = {
        expr.meta.output_name(raise_if_undetermined=False): expr for expr in step.exprs
    }
    changed = step.columns_changed is None or _TIME in step.columns_changed
    return changed and _TIME in names and not names[_TIME].meta.eq(pl.col(_TIME))


def time_before_end(windowing: graph.Windowing) -> int | None:
    """How far before the end of its window the time of a pane may be; None: any time before."""
    if windowing.time == "end":
        return 0
    window = windowing.window
    return window.size if isinstance(window, Sliding | Unaligned) else None
