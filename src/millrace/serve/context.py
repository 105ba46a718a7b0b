"""The parts of one running server."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millrace.errors import DefinitionError
from millrace.log import LogAddress
from millrace.serve.hub import TICK_SECONDS, Hub
from millrace.serve.jobs import Jobs
from millrace.serve.reader import ResultReader
from millrace.serve.view_state import ViewState
from millrace.views import View


@dataclass(frozen=True, eq=False)
class ServerContext:
    """Views by name, the reader that fills them, the hub that sends them, and the state of the jobs."""

    views: dict[str, ViewState]
    jobs: Jobs
    reader: ResultReader
    hub: Hub
    clock: Callable[[], int]

    @classmethod
    def create(cls, log: LogAddress, views: Sequence[View], *, tick: float = TICK_SECONDS) -> "ServerContext":
        """Creates the parts for the log at an address; nothing runs yet."""
        names = [view.name for view in views]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise DefinitionError(
                f"two views are named {', '.join(sorted(duplicates))}; their addresses would be the same: "
                "give each its own name"
            )
        view_states, jobs = {view.name: ViewState(view) for view in views}, Jobs()
        hub = Hub(list(view_states.values()), jobs=jobs.summaries, clock=_now, tick=tick)
        return cls(view_states, jobs, ResultReader(log, list(view_states.values()), jobs), hub, _now)


def _now() -> int:
    return time.time_ns() // 1_000_000
