"""What one server has running."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millrace.errors import DefinitionError
from millrace.log import Where
from millrace.serve.hub import TICK, Hub
from millrace.serve.jobs import Jobs
from millrace.serve.reader import Reader
from millrace.serve.view_state import Cells
from millrace.views import View


@dataclass(frozen=True, eq=False)
class State:
    """Views by name, the reader that fills them, the hub that shows them, and how the jobs are."""

    views: dict[str, Cells]
    jobs: Jobs
    reader: Reader
    hub: Hub
    clock: Callable[[], int]

    @classmethod
    def of(cls, log: Where, views: Sequence[View], *, tick: float = TICK) -> "State":
        """For the log at an address; nothing runs yet."""
        names = [view.name for view in views]
        if twice := {name for name in names if names.count(name) > 1}:
            raise DefinitionError(
                f"two views are named {', '.join(sorted(twice))}; their addresses would be the same: give each its own name"
            )
        cells, jobs = {view.name: Cells(view) for view in views}, Jobs()
        hub = Hub(list(cells.values()), jobs=jobs.at, clock=_now, tick=tick)
        return cls(cells, jobs, Reader(log, list(cells.values()), jobs), hub, _now)


def _now() -> int:
    return time.time_ns() // 1_000_000
