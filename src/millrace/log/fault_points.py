"""Places at which a process can be made to die, for tests: random kills rarely hit the moments that matter.

`MILLRACE_FAULT=produced:3` kills the process, as `kill -9` would, when it comes by `produced` for the third time; `produced:3:stop` freezes it there, until
somebody sends SIGCONT. Without it nothing happens.
The places on the way of a batch, in order: `planned` (its range is written down), `computed`, `delivered` (what is not committed is appended), `begun` (a transaction), `produced` (all records are
sent), `marked` (the batch's number too), `committed`, `stored` (its state is). Before the first batch: `restoring` (a savepoint, in part) and `claimed` (output topics).
"""

import os
import signal

VARIABLE = "MILLRACE_FAULT"
PLACES = ("planned", "computed", "delivered", "begun", "produced", "marked", "committed", "stored")
_passed: dict[str, int] = {}


def at(place: str) -> None:
    """Comes by a place."""
    said = os.environ.get(VARIABLE)
    if said is None:
        return
    name, number, how = (*said.split(":"), "", "")[:3]
    _passed[place] = _passed.get(place, 0) + 1
    if name == place and _passed[place] == int(number or 1):
        os.kill(os.getpid(), signal.SIGSTOP if how == "stop" else signal.SIGKILL)
