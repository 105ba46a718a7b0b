"""The end of the query: results of a batch and its number go into the log in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.engine.exchange import Body
from millrace.engine.plan import Plan
from millrace.engine.sink import Results, gather
from millrace.log import fault_points
from millrace.runners.commit import Committer
from millrace.runners.spark.watermark_file import write_watermarks
from millrace.runners.state.quarantine import Quarantine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class _BatchMustRerun(Exception):
    """Ends a query whose batch must be run once more."""


class Sink:
    """Commits each batch; Spark calls it as `foreachBatch`.
    A batch that the log has already is not written again.
    """

    def __init__(
        self,
        plan: Plan,
        committer: Committer,
        report: Callable[[int, Results], None],
        folder: Path,
        quarantine: Quarantine,
        base: int = 0,
    ) -> None:
        """`base`: the number of batches before the checkpoint of this query."""
        self._base_batch = base
        self._plan = plan
        self._committer = committer
        self._report = report
        self._watermark_file = folder / "reaches.json"
        self._quarantine = quarantine
        self.must_rerun = False
        """Whether the batch must run again without jobs that were just put under quarantine."""
        self.error: Exception | None = None
        """The error of a batch, before Spark wraps it."""

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Collects the packets of a batch, and commits their results."""
        batch = self._base_batch + number
        try:
            results = self._committer.encode_outputs(gather(self._plan, collect_bodies(frame)))
            self._check_failures(batch, results)
            fault_points.at("computed")
            if batch > self._committer.last_batch:
                self._committer.commit(batch, results, time.time_ns() // 1_000_000)
            write_watermarks(self._watermark_file, results.partition_watermarks)
        except Exception as error:
            self.must_rerun = isinstance(error, _BatchMustRerun)
            self.error = error
            raise
        self._report(batch, replace(results, quarantined=self._quarantine.reasons))

    def _check_failures(self, batch: int, results: Results) -> None:
        """Ends the query before a batch in which a job failed is committed."""
        if results.failures:
            self._quarantine.commit_failures(
                max(batch, self._committer.last_batch + 1), results.now, results.failures
            )
            raise _BatchMustRerun

    def close(self) -> None:
        """Closes the committer."""
        self._committer.close()


def collect_bodies(frame: DataFrame) -> list[Body]:
    """The bodies of a frame's packets, by Arrow: Spark's pickling of bytes takes three times as long."""
    return [Body.decode(packet) for packet in frame.toArrow()["packet"].to_pylist()]
