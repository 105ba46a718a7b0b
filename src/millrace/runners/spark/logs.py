"""Logs held open by a process, so that a task finds the one it needs at once."""

import os

from millrace.log import Log, open_log

_OPEN: dict[tuple[int, str], Log] = {}


def opened(url: str, *, create: bool = False) -> Log:
    """The log at `url`, opened by this very process: a connection does not survive a fork. Workers never make one."""
    place = os.getpid(), url
    log = _OPEN.get(place)
    if log is None:
        log = _OPEN[place] = open_log(url, create=create)
    return log
