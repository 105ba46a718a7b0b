"""The progress of the demo, from the log and the server."""

import http.client
import json
from dataclasses import replace
from typing import Any

from millrace.devtools.demo.options import HOST, WATCHED_JOB
from millrace.errors import TopicMissing
from millrace.log import Log
from millrace.log.status import parse_statuses, status_topic
from millrace.serve.jobs import Jobs
from millrace.transit.topics import ARRIVALS, CELL_COUNTS, DEPARTURES, DOOR_EVENTS, POSITIONS
from millrace.transit.views import VIEWS

SILENT_AFTER = 10_000
"""Milliseconds without a batch after which figures would mislead."""
EVENT_RETENTION = "1h"
"""The retention of events in the demo's log: a demo may run for days."""


class DemoProgress:
    """Counts what the log receives after this object is created."""

    def __init__(self, log: Log, run: str, now: int) -> None:
        self._log, self._run, self._status, self._since = log, run, status_topic(run), now
        self._start_ends = {
            name: self._end_of(name) for name in (POSITIONS.name, CELL_COUNTS.name, self._status)
        }
        self._read_until = self._start_ends[self._status]
        self._jobs = Jobs()

    def events(self) -> int:
        """The number of events that the city has sent."""
        return self._count_new(POSITIONS.name)

    def results(self) -> int:
        """The number of results of the first job."""
        return self._count_new(CELL_COUNTS.name)

    def batches(self) -> int:
        """The number of completed batches."""
        return self._count_new(self._status)

    def figures(self, now: int) -> str:
        """A line of figures, the most important first."""
        end = self._end_of(self._status)
        if end > self._read_until:
            self._jobs.add(self._run, parse_statuses(self._log.read(self._status, 0, self._read_until, end)))
            self._read_until = end
        statuses = self._jobs.summaries(now)
        silence = now - (statuses[0]["last_batch_at"] if statuses else self._since)
        if silence > SILENT_AFTER or not statuses:
            return f"no batch for {silence // 1000} s"
        job = next((job for job in statuses if job["job"] == WATCHED_JOB), statuses[0])
        return (
            f"{_format_rate(job['events_per_s'])} events/s · watermark "
            f"{_format_seconds(job['watermark'] and now - job['watermark'])} behind · "
            f"{_format_rate(job['results_per_s'])} results/s · latency {_format_seconds(job['latency_ms'])}"
        )

    def forget_old_events(self) -> None:
        """Sets a retention: the city and the jobs declare at each start that these topics are kept for
        ever.
        """
        for topic in (POSITIONS, ARRIVALS, DEPARTURES, DOOR_EVENTS, *(view.topic for view in VIEWS)):
            self._log.ensure(replace(topic, retention=EVENT_RETENTION))

    def _count_new(self, topic: str) -> int:
        return self._end_of(topic) - self._start_ends[topic]

    def _end_of(self, topic: str) -> int:
        try:
            return sum(self._log.end_offsets(topic).values())
        except TopicMissing:
            return 0


def fetch_json(port: int, path: str) -> dict[str, Any] | None:
    """The answer of the server; None while it does not answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body: dict[str, Any] = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return body if response.status == http.client.OK else None


def count_hexagons(port: int, since: int) -> int:
    """The number of cells on the map, of windows that ended after `since`."""
    view = fetch_json(port, f"/api/views/{WATCHED_JOB}")
    if view is None or (view.get("time") or 0) <= since:
        return 0
    return len(view["cells"])


def _format_seconds(millis: int | None) -> str:
    return "–" if millis is None else f"{millis / 1000:.1f} s"


def _format_rate(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:,.0f}"
