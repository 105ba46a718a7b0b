"""Logs held open by a process, so that a task finds the one it needs at once."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # where a source is only unpacked, nothing is opened
    from millrace.config import Settings
    from millrace.log import Log

_OPEN_LOGS: dict[tuple[int, LogLocation], Log] = {}


@dataclass(frozen=True)
class LogLocation:
    """A log on its way to the workers: its URL, and how clients of Kafka are set up,
    as bytes without secrets.
    """

    url: str
    kafka: bytes | None = None

    @staticmethod
    def of(settings: Settings) -> LogLocation:
        """The location in the settings."""
        return LogLocation(
            settings.log.url, pickle.dumps(settings.kafka) if settings.log.url.startswith("kafka:") else None
        )


def get_log(location: LogLocation, *, create: bool = False) -> Log:
    """The log, opened by this very process: a connection does not survive a fork. Workers never make one."""
    log = _OPEN_LOGS.get((os.getpid(), location))
    if log is None:
        from millrace.log import open_log

        kafka = None if location.kafka is None else pickle.loads(location.kafka)  # noqa: S301 - our own bytes, sent by our own driver
        log = _OPEN_LOGS[os.getpid(), location] = open_log(location.url, create=create, kafka=kafka)
    return log
