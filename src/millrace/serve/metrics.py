"""The server's metrics for Prometheus."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millrace.serve.context import ServerContext

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_JOB_METRICS = (
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


class ServerMetrics(Collector):
    """Collects all metrics from the running server at each request."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """The metrics as text."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Empty: the metrics are only known when they are collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metric families."""
        hub = self._context.hub
        yield GaugeMetricFamily(
            "millrace_serve_viewers", "Open connections of the live map.", len(hub.viewers)
        )
        yield CounterMetricFamily("millrace_serve_ticks", "Looks at what changed.", hub.ticks)
        yield CounterMetricFamily("millrace_serve_messages_sent", "Messages sent to viewers.", hub.sent)
        yield CounterMetricFamily(
            "millrace_serve_undecodable_results",
            "Results that could not be read.",
            self._context.reader.undecodable,
        )
        yield from self._views()
        yield from self._jobs()

    def _views(self) -> Iterator[Metric]:
        size = GaugeMetricFamily("millrace_serve_view_results", "Results that a view shows.", labels=["view"])
        time = GaugeMetricFamily(
            "millrace_serve_view_timestamp_seconds", "The end of a view's newest window.", labels=["view"]
        )
        read = CounterMetricFamily(
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
        for name, view_state in self._context.views.items():
            for cause, count in view_state.omissions.counts.items():
                problems.add_metric([name, cause], count)
            snapshot = view_state.snapshot()
            size.add_metric([name], len(snapshot.rows))
            if snapshot.time is not None:
                time.add_metric([name], snapshot.time / 1000)
            read.add_metric([name], view_state.result_count)
            encoded.add_metric([name], self._context.hub.encoded[name])
        yield from (size, time, read, encoded, problems)

    def _jobs(self) -> Iterator[Metric]:
        jobs = self._context.jobs.summaries(self._context.clock())
        for column, name, meaning, unit in _JOB_METRICS:
            family = GaugeMetricFamily(f"millrace_{name}", meaning, labels=["job", "run"])
            for job in jobs:
                if job[column] is not None:
                    family.add_metric([job["job"], job["run"]], job[column] * unit)
            yield family
