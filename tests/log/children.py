"""What the processes do that the tests start, and kill."""

import os
import signal
import sqlite3
from typing import Any

import pyarrow as pa

from millrace.log import OutgoingRecords, open_log


def texts(*values: str) -> OutgoingRecords:
    """Records without keys."""
    return OutgoingRecords(pa.array(values, pa.string()).cast(pa.binary()))


def append_many(url: str, topic: str, who: int, times: int, each: int) -> None:
    """Appends records `who/number`, keyed by `who`."""
    log = open_log(url)
    for turn in range(times):
        values = pa.array([f"{who}/{turn * each + i}" for i in range(each)]).cast(pa.binary())
        log.append(topic, OutgoingRecords(values, pa.array([str(who)] * each).cast(pa.binary())))
    log.close()


def commit_for_ever(url: str, name: str, sizes: dict[str, int]) -> None:
    """Commits one marker after the other, so many records to each topic, until it is killed."""
    writer = open_log(url).writer(name)
    while True:
        commit_next(writer, sizes)


def commit_until(url: str, name: str, sizes: dict[str, int], fault: str) -> None:
    """Commits for ever, and dies at the place that `fault` names."""
    os.environ["MILLRACE_FAULT"] = fault
    commit_for_ever(url, name, sizes)


def commit_next(writer: Any, sizes: dict[str, int]) -> None:
    """The next marker, with records and watermarks that name it."""
    marker = writer.last_marker + 1
    records = {topic: texts(*(f"{marker}.{i}" for i in range(size))) for topic, size in sizes.items()}
    writer.commit(marker, records, watermarks=dict.fromkeys(sizes, marker))


def die_at_statement(url: str, name: str, sizes: dict[str, int], number: int) -> None:
    """Commits once, and kills itself just before the SQL statement of that number;
    returns if there are fewer.
    """
    log = open_log(url)
    writer = log.writer(name)
    connection: sqlite3.Connection = log._results.connection()  # type: ignore[attr-defined]  # the test knows what it breaks
    seen = 0

    def trace(_: str) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    connection.set_trace_callback(trace)
    commit_next(writer, sizes)


def create_and_append(url: str, who: int) -> None:
    """Opens a log that may not exist yet, and a topic likewise."""
    log = open_log(url)
    log.ensure_raw("t")
    log.append("t", texts(str(who)))
