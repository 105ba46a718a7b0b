"""The status of a run: a JSON record in `status.<run>` with every batch, committed with its results."""

import msgspec
import pyarrow as pa

from millrace.log.contract import OutgoingRecords, Records

STATUS_RETENTION = 3_600_000
"""How long status records are kept, in milliseconds."""

_PREFIX = "status."


class LaggingPartition(msgspec.Struct, frozen=True):
    """The partition that holds an operator's watermark back."""

    topic: str
    partition: int
    behind: int | None
    """By how much, in milliseconds; null: it has brought no event yet."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of one run. Times are milliseconds since the epoch."""

    at: int
    """When it was committed."""
    batch: int
    jobs: list[str]
    read: int
    """How many events it read."""
    results: dict[str, int]
    """How many results it wrote, by topic."""
    watermarks: dict[str, int | None]
    """The low watermark of each operator, `<job>/<operator>`; null: not known yet."""
    lag: dict[str, int]
    """How many offsets of each topic were still to be read; on Kafka the ends of transactions count, too."""
    took_ms: int | None
    """From the moment its range was fixed until its commit; null where an earlier process had fixed it."""
    latency: dict[str, int]
    """By topic: how long after the end of the newest window its on-time results were committed."""
    reads: dict[str, list[str]]
    """The topics that each job reads."""
    writes: dict[str, list[str]]
    """The topics that each job writes."""
    quarantined: dict[str, str] = {}
    """Jobs that were stopped by their own code, and why; the others go on."""
    lookups: dict[str, dict[str, int]] = {}
    """Of each lookup: how many keys were `asked`, `cached`, `missing`, `failed`, `refused`; no zeros."""
    reached: dict[str, int] = {}
    """How far each topic was read: the sum of the next offsets of its partitions."""
    holds: dict[str, LaggingPartition] = {}
    """What holds the watermark of an operator back; those that nothing holds back are left out."""
    ended: list[str] = []
    """The topics that have ended, sorted: no row of them follows, and what waited for them is complete."""

    def to_records(self) -> OutgoingRecords:
        """The record for the log."""
        return OutgoingRecords(pa.array([msgspec.json.encode(self)], pa.binary()))

    def has_ended(self, job: str) -> bool:
        """Whether all topics that a job reads have ended."""
        return bool(self.ended) and {*self.ended}.issuperset(self.reads.get(job, []))

    def watermark_of(self, job: str) -> int | None:
        """Up to when a job's results are complete: its operators' lowest watermark, if all are known."""
        known = [
            watermark for operator, watermark in self.watermarks.items() if operator.partition("/")[0] == job
        ]
        return (
            None
            if None in known
            else min((watermark for watermark in known if watermark is not None), default=None)
        )


def status_topic(run: str) -> str:
    """The topic to which a run reports its status."""
    return f"{_PREFIX}{run}"


def run_of_topic(topic: str) -> str | None:
    """The run that reports to `topic`; None: it is another kind of topic."""
    return topic.removeprefix(_PREFIX) if topic.startswith(_PREFIX) else None


def parse_statuses(records: Records) -> list[Status]:
    """The statuses of records; records that hold none, such as a later version's, are skipped."""
    statuses = []
    for value in records.values.to_pylist():
        try:
            statuses.append(_decode(value or b""))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
    return statuses


_decode = msgspec.json.Decoder(Status).decode
