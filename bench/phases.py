"""Where the CPU time of a batch goes. Off unless MILLRACE_PHASES names a folder; then each process notes its
share there.

Known functions are wrapped from outside, so that the code measured holds no trace of being measured.
"""

import functools
import importlib.util
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millrace.values.atomic_files import write_file

VARIABLE = "MILLRACE_PHASES"


class Stopwatch:
    """CPU seconds of this process by phase, without those of nested phases.
    A worker runs one phase at a time.
    """

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._inner = [0.0]

    def time_function(self, phase: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a function so that its time counts for `phase`."""

        @functools.wraps(fn)
        def timed(*args: Any, **named: Any) -> Any:
            self._inner.append(0.0)
            started_at = time.process_time()
            try:
                return fn(*args, **named)
            finally:
                elapsed = time.process_time() - started_at
                self.spent[phase] += elapsed - self._inner.pop()
                self._inner[-1] += elapsed

        return timed

    def write_times(self, folder: Path) -> None:
        """Writes the times into the folder, for `collect`."""
        write_file(folder / f"{os.getpid()}.json", json.dumps(self.spent).encode(), durable=False)


def install() -> None:
    """Wraps the functions that a worker or driver calls for a batch.
    Call it once per process, before the runner is imported.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    from millrace import graph
    from millrace.engine import sink, source, stage, state
    from millrace.log.codecs import codec
    from millrace.log.embedded import log
    from millrace.runners import batches, commit

    watch = Stopwatch()

    def wrap(owner: Any, name: str, phase: str) -> None:
        setattr(owner, name, watch.time_function(phase, getattr(owner, name)))

    wrap(log.EmbeddedLog, "read", "source read")
    if importlib.util.find_spec("confluent_kafka") is not None:
        from millrace.log.kafka.log import KafkaLog

        wrap(KafkaLog, "read", "source read")
    for owner in (codec, batches):
        wrap(owner, "decode", "decode")
    wrap(graph.Edge, "apply", "prefix and H3")
    wrap(state.SlotState, "changes_since", "state")
    wrap(commit.Committer, "commit", "sink")
    wrap(sink, "gather", "sink")
    wrap(source, "route_batch", "route")
    plain = stage.step

    def step(plan: Any, depth: int, *rest: Any) -> Any:
        return watch.time_function(f"stage {depth}", plain)(plan, depth, *rest)

    setattr(stage, "step", step)  # noqa: B010 - a plain assignment would have to be of the very same type
    _write_after(watch, Path(folder), source, "route_batch")
    _write_after(watch, Path(folder), stage, "step")
    _write_after(watch, Path(folder), commit.Committer, "commit")


def _write_after(watch: Stopwatch, folder: Path, owner: Any, name: str) -> None:
    """Writes the times after each call of `name`, which is called once per batch."""
    fn = getattr(owner, name)

    @functools.wraps(fn)
    def noting(*args: Any, **named: Any) -> Any:
        try:
            return fn(*args, **named)
        finally:
            watch.write_times(folder)

    setattr(owner, name, noting)


def collect(folder: Path) -> Counter[str]:
    """CPU seconds by phase, of all processes that wrote any."""
    total: Counter[str] = Counter()
    for file in folder.glob("*.json"):
        total.update(json.loads(file.read_text()))
    return total
