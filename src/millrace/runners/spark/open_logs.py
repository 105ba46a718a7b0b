"""Logs held open by a process, so that a task finds the one it needs at once."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # where a source is only unpacked, nothing is opened
    from millrace.config import Settings
    from millrace.log import Log

_OPEN: dict[tuple[int, LogPlace], Log] = {}


@dataclass(frozen=True)
class LogPlace:
    """A log on its way to the workers: its URL, and how clients of Kafka are set up, as bytes without secrets."""

    url: str
    kafka: bytes | None = None

    @staticmethod
    def of(settings: Settings) -> LogPlace:
        """Where the settings say."""
        return LogPlace(
            settings.log.url, pickle.dumps(settings.kafka) if settings.log.url.startswith("kafka:") else None
        )


def opened(place: LogPlace, *, create: bool = False) -> Log:
    """The log, opened by this very process: a connection does not survive a fork. Workers never make one."""
    log = _OPEN.get((os.getpid(), place))
    if log is None:
        from millrace.log import open_log

        kafka = None if place.kafka is None else pickle.loads(place.kafka)  # noqa: S301 - our own bytes, sent by our own driver
        log = _OPEN[os.getpid(), place] = open_log(place.url, create=create, kafka=kafka)
    return log
