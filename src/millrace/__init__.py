"""Event-stream analytics in Python: windows, watermarks and panes on columns, run in one process or on Apache Spark."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace import aggregates, patterns, processors, testing, triggers, watermarks, windows
    from millrace.patterns import pattern
    from millrace.patterns.rows.clause import sql
    from millrace.processors import Processor
    from millrace.runners import run
    from millrace.runners.replay import replay
    from millrace.stream import Job, Keyed, Stream, read
    from millrace.topics import Topic

__version__ = "0.1.0"

__all__ = [
    "Job",
    "Keyed",
    "Processor",
    "Stream",
    "Topic",
    "__version__",
    "aggregates",
    "pattern",
    "patterns",
    "processors",
    "read",
    "replay",
    "run",
    "sql",
    "testing",
    "triggers",
    "watermarks",
    "windows",
]

_HOMES = {
    "Job": "millrace.stream",
    "Keyed": "millrace.stream",
    "Stream": "millrace.stream",
    "Topic": "millrace.topics",
    "Processor": "millrace.processors",
    "pattern": "millrace.patterns",
    "read": "millrace.stream",
    "replay": "millrace.runners.replay",
    "run": "millrace.runners",
    "sql": "millrace.patterns.rows.clause",
}
"""Where names live that are not modules. All load when first asked for, so that a command or a worker loads only what it needs."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'millrace' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOMES[name]), name) if name in _HOMES else importlib.import_module(f"millrace.{name}")


def __dir__() -> list[str]:
    return __all__
