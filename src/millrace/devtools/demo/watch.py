"""How far the demo has come, as the log and the server tell it."""

import http.client
import json
from dataclasses import replace
from typing import Any

from millrace.devtools.demo.wishes import HOST, JOB
from millrace.errors import TopicMissing
from millrace.log import Log
from millrace.log.status import read_status, status_topic
from millrace.serve.jobs import Jobs
from millrace.transit.topics import ARRIVALS, CELL_COUNTS, DEPARTURES, DOOR_EVENTS, POSITIONS
from millrace.transit.views import VIEWS

QUIET = 10_000
"""Milliseconds without a batch after which figures would only mislead."""
KEPT = "1h"
"""How long the demo's log keeps events: a demo may run for days."""


class Watch:
    """Looks at the log from the moment it is made; what was there before does not count."""

    def __init__(self, log: Log, run: str, now: int) -> None:
        self._log, self._run, self._status, self._since = log, run, status_topic(run), now
        self._before = {name: self._end(name) for name in (POSITIONS.name, CELL_COUNTS.name, self._status)}
        self._read = self._before[self._status]
        self._jobs = Jobs()

    def events(self) -> int:
        """How many events the city has sent."""
        return self._new(POSITIONS.name)

    def results(self) -> int:
        """How many results the first job has written."""
        return self._new(CELL_COUNTS.name)

    def batches(self) -> int:
        """How many batches the job has completed."""
        return self._new(self._status)

    def figures(self, now: int) -> str:
        """One line, what matters most first."""
        end = self._end(self._status)
        if end > self._read:
            self._jobs.take(self._run, read_status(self._log.read(self._status, 0, self._read, end)))
            self._read = end
        found = self._jobs.at(now)
        quiet = now - (found[0]["last_batch_at"] if found else self._since)
        if quiet > QUIET or not found:
            return f"no batch for {quiet // 1000} s"
        job = next((job for job in found if job["job"] == JOB), found[0])
        return (
            f"{_count(job['events_per_s'])} events/s · watermark {_seconds(job['watermark'] and now - job['watermark'])} behind · "
            f"{_count(job['results_per_s'])} results/s · latency {_seconds(job['latency_ms'])}"
        )

    def forget_old_events(self) -> None:
        """The city and the jobs declare that these topics are kept for ever, each time they start; the demo does not need that."""
        for topic in (POSITIONS, ARRIVALS, DEPARTURES, DOOR_EVENTS, *(view.topic for view in VIEWS)):
            self._log.ensure(replace(topic, retention=KEPT))

    def _new(self, topic: str) -> int:
        return self._end(topic) - self._before[topic]

    def _end(self, topic: str) -> int:
        try:
            return sum(self._log.ends(topic).values())
        except TopicMissing:
            return 0


def ask(port: int, path: str) -> dict[str, Any] | None:
    """What the server answers; None while it does not."""
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        said: dict[str, Any] = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return said if answer.status == http.client.OK else None


def hexagons(port: int, since: int) -> int:
    """How many cells the map shows of windows that ended after `since`."""
    view = ask(port, f"/api/views/{JOB}")
    if view is None or (view.get("time") or 0) <= since:
        return 0
    return len(view["cells"])


def _seconds(millis: int | None) -> str:
    return "–" if millis is None else f"{millis / 1000:.1f} s"


def _count(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:,.0f}"
