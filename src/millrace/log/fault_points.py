"""Fault points: places in the code at which tests kill the process, because random kills rarely hit the
moments that matter.

`MILLRACE_FAULT=produced:3` kills the process, as `kill -9` would, when it passes `produced` for the third
time; `produced:3:stop` freezes it there until it gets SIGCONT. Without it nothing happens. The places that a
batch passes, in order: `planned` (its range is stored), `computed`, `delivered` (what is not committed is
appended), `begun` (a transaction), `produced` (all records are sent), `marked` (the batch's number too),
`committed`, `stored` (its state is). Before the first batch: `restoring` (a savepoint, in part) and `claimed`
(output topics).
"""

import os
import signal

VARIABLE = "MILLRACE_FAULT"
POINTS = ("planned", "computed", "delivered", "begun", "produced", "marked", "committed", "stored")
_passed: dict[str, int] = {}


def at(point: str) -> None:
    """Passes a fault point."""
    setting = os.environ.get(VARIABLE)
    if setting is None:
        return
    name, number, action = (*setting.split(":"), "", "")[:3]
    _passed[point] = _passed.get(point, 0) + 1
    if name == point and _passed[point] == int(number or 1):
        os.kill(os.getpid(), signal.SIGSTOP if action == "stop" else signal.SIGKILL)
