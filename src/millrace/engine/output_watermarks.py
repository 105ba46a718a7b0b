"""How far the jobs of a run vouch for the topics that they write: the time before which they write nothing
any more. Readers of a topic may follow that (`watermarks.upstream`).

A topic is vouched for by the least of all routes that lead to it:

    rows come from                       vouched for up to
    windows in event time                the operator's watermark less the greatest lateness up to there: so
                                         far back a pane may be corrected
    windows in processing time           the batch's clock
    deduplication by equal times         the operator's watermark less `within`: copies are known so long
    other operators                      the operator's watermark
    a topic, through steps alone         the least watermark of the partitions that are read

Example, windows of 10 s with a lateness of 5 s:

    watermark   pane that is written                      vouched for up to
    12:00:20    [12:00:10, 12:00:20), at 12:00:19.999     12:00:15
    12:00:22    [12:00:10, 12:00:20) once more: a row     12:00:17
                came late, and the window is open
                until 12:00:25

What is late for a job stays late for those that follow it: a row that a job only hands on may be behind the
watermark, as it was there.
"""

from __future__ import annotations

from collections.abc import Collection

from millrace import graph
from millrace.durations import END_OF_STREAM, MIN_TIME
from millrace.engine.arrivals import report_partition
from millrace.engine.followed_topics import find_obstacle, time_before_end
from millrace.engine.plan import Plan, Route
from millrace.engine.progress import Progress
from millrace.engine.sink import Results


class OutputWatermarks:
    """How far each topic is vouched for, batch after batch."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._routes: dict[str, list[Route]] = {}
        """The routes to each topic that can be vouched for."""
        obstructed = {route.topic.name for route in plan.routes if route.topic and find_obstacle(route)}
        for route in plan.routes:
            if route.topic is not None and route.topic.name not in obstructed:
                self._routes.setdefault(route.topic.name, []).append(route)
        self._reads: dict[graph.Read, Progress] = {}
        """Progress of topics whose rows are written without an operator. It begins anew with each run."""

    def update(self, results: Results, paused: Collection[str]) -> dict[str, int]:
        """After a batch, without the paused jobs: the topics that are vouched for, and up to when."""
        least: dict[str, int] = {}
        for topic, routes in self._routes.items():
            watermarks = [
                None if {*paused}.issuperset(route.jobs) else self._route_watermark(route, results)
                for route in routes
            ]
            known = [watermark for watermark in watermarks if watermark is not None]
            if len(known) == len(watermarks) and min(known) >= MIN_TIME:
                least[topic] = min(known)
        return least

    def _route_watermark(self, route: Route, results: Results) -> int | None:
        origin = route.edge.origin
        if isinstance(origin, graph.Read):
            return self._read_watermark(origin, results)
        operator = next(o for o in self._plan.operators if o.node is origin and {*o.jobs} & {*route.jobs})
        watermark = results.watermarks.get(operator.id)
        if watermark is not None and watermark >= END_OF_STREAM:
            return watermark
        if isinstance(origin, graph.Aggregation) and origin.windowing.is_processing_time:
            return results.now
        if watermark is None:
            return None
        match origin:
            case graph.Aggregation(windowing=windowing):
                return watermark - operator.horizon - (time_before_end(windowing) or 0)
            case graph.Deduplication(is_immediate=True, within=within):
                return watermark - within
        return watermark

    def _read_watermark(self, read: graph.Read, results: Results) -> int | None:
        """The least watermark of the partitions of a topic, by what this run has read of them."""
        if read.topic.name in results.ended:
            return END_OF_STREAM
        reports = {
            f"0/{source.topic}/{source.partition}": report_partition(read.watermark, source)
            for source in results.sources
            if source.topic == read.topic.name
        }
        progress = self._reads.get(read, Progress()).wake(reports, results.now)
        at_end = read.topic.name in results.ended
        self._reads[read] = progress.advance(reports, results.now, at_end=at_end)
        return self._reads[read].low_watermark
