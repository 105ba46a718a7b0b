"""Places at which a process can be made to die, for tests: random kills rarely hit the moments that matter.

`MILLRACE_FAULT=produced:3` kills the process, as `kill -9` would, when it comes by `produced` for the third time; `produced:3:stop` freezes it there, until
somebody sends SIGCONT. Without it nothing happens.
The places on the way of a batch, in order: `planned` (its range is written down), `computed`, `delivered` (what is not committed is appended), `begun` (a transaction), `produced` (all records are
sent), `marked` (the batch's number too), `committed`, `stored` (its state is). Before the first batch: `restoring` (a savepoint, in part) and `claimed` (output topics).
"""

import os
import signal

VARIABLE = "MILLRACE_FAULT"
POINTS = ("planned", "computed", "delivered", "begun", "produced", "marked", "committed", "stored")
_passed: dict[str, int] = {}


def at(point: str) -> None:
    """Comes by a place."""
    setting = os.environ.get(VARIABLE)
    if setting is None:
        return
    name, number, action = (*setting.split(":"), "", "")[:3]
    _passed[point] = _passed.get(point, 0) + 1
    if name == point and _passed[point] == int(number or 1):
        os.kill(os.getpid(), signal.SIGSTOP if action == "stop" else signal.SIGKILL)
