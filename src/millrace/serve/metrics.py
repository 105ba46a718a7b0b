"""The server's figures, as Prometheus reads them."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millrace.serve.context import State

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_JOB_FIGURES = (
    ("watermark", "job_watermark_timestamp_seconds", "How far the job's results are complete.", 0.001),
    ("last_batch_at", "job_last_batch_timestamp_seconds", "When the job's last batch was committed.", 0.001),
    ("lag_events", "job_lag_events", "Events that the job had not read yet, as of its last batch.", 1),
    ("events_per_s", "job_events_per_second", "Events that the job's run reads, over the last 10 s.", 1),
    ("results_per_s", "job_results_per_second", "Results that the job writes, over the last 10 s.", 1),
    (
        "latency_ms",
        "job_latency_seconds",
        "From the end of a window to its results, median of the last minute.",
        0.001,
    ),
)


class Figures(Collector):
    """Everything, read off the running server when somebody asks."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """The figures now."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Nothing is known before it is asked for."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One family after the other."""
        hub = self._state.hub
        yield GaugeMetricFamily(
            "millrace_serve_viewers", "Open connections of the live map.", len(hub.viewers)
        )
        yield CounterMetricFamily("millrace_serve_ticks", "Looks at what changed.", hub.ticks)
        yield CounterMetricFamily("millrace_serve_messages_sent", "Messages sent to viewers.", hub.sent)
        yield CounterMetricFamily(
            "millrace_serve_undecodable_results", "Results that could not be read.", self._state.reader.dead
        )
        yield from self._views()
        yield from self._jobs()

    def _views(self) -> Iterator[Metric]:
        size = GaugeMetricFamily("millrace_serve_view_results", "Results that a view shows.", labels=["view"])
        time = GaugeMetricFamily(
            "millrace_serve_view_timestamp_seconds", "The end of a view's newest window.", labels=["view"]
        )
        taken = CounterMetricFamily(
            "millrace_serve_view_results_read", "Results that a view has taken.", labels=["view"]
        )
        encoded = CounterMetricFamily(
            "millrace_serve_tiles_encoded", "Times that a tile was encoded.", labels=["view"]
        )
        problems = CounterMetricFamily(
            "millrace_serve_view_problems",
            "Results that a view cannot show as they are.",
            labels=["view", "cause"],
        )
        for name, cells in self._state.views.items():
            for cause, count in cells.omissions.counts.items():
                problems.add_metric([name, cause], count)
            snapshot = cells.snapshot()
            size.add_metric([name], len(snapshot.rows))
            if snapshot.time is not None:
                time.add_metric([name], snapshot.time / 1000)
            taken.add_metric([name], cells.taken)
            encoded.add_metric([name], self._state.hub.encoded[name])
        yield from (size, time, taken, encoded, problems)

    def _jobs(self) -> Iterator[Metric]:
        jobs = self._state.jobs.at(self._state.clock())
        for figure, name, meaning, unit in _JOB_FIGURES:
            family = GaugeMetricFamily(f"millrace_{name}", meaning, labels=["job", "run"])
            for job in jobs:
                if job[figure] is not None:
                    family.add_metric([job["job"], job["run"]], job[figure] * unit)
            yield family
