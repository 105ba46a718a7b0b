"""Event-stream analytics in Python: windows, watermarks and panes on columns,
run in one process or on Apache Spark.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace import aggregates, evictors, frames, patterns, state, testing, triggers, watermarks, windows
    from millrace.graph.build.feedback import feed_back
    from millrace.graph.build.table import Table, table
    from millrace.keyed import Keyed
    from millrace.patterns import match_recognize, pattern
    from millrace.patterns.sql.clause import sql
    from millrace.processors import Context, Processor
    from millrace.runners import run
    from millrace.runners.backfill import backfill
    from millrace.runners.replay import replay
    from millrace.runners.spark.dataframes import from_dataframe
    from millrace.stream import Job, Stream, read
    from millrace.topics import Topic

__version__ = "0.1.0"

__all__ = [
    "Context",
    "Job",
    "Keyed",
    "Processor",
    "Stream",
    "Table",
    "Topic",
    "__version__",
    "aggregates",
    "backfill",
    "evictors",
    "feed_back",
    "frames",
    "from_dataframe",
    "match_recognize",
    "pattern",
    "patterns",
    "read",
    "replay",
    "run",
    "sql",
    "state",
    "table",
    "testing",
    "triggers",
    "watermarks",
    "windows",
]

_MODULE_OF_NAME = {
    "Job": "millrace.stream",
    "Keyed": "millrace.keyed",
    "Stream": "millrace.stream",
    "Table": "millrace.graph.build.table",
    "Topic": "millrace.topics",
    "Context": "millrace.processors",
    "Processor": "millrace.processors",
    "backfill": "millrace.runners.backfill",
    "feed_back": "millrace.graph.build.feedback",
    "from_dataframe": "millrace.runners.spark.dataframes",
    "match_recognize": "millrace.patterns",
    "pattern": "millrace.patterns",
    "read": "millrace.stream",
    "replay": "millrace.runners.replay",
    "run": "millrace.runners",
    "sql": "millrace.patterns.sql.clause",
    "table": "millrace.graph.build.table",
}
"""Where names live that are not modules.
All load when first asked for, so that a command or a worker loads only what it needs.
"""


if not TYPE_CHECKING:  # a type checker would take every name that is missing for Any

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'millrace' has no attribute {name!r}; it has {', '.join(__all__)}")
        return (
            getattr(importlib.import_module(_MODULE_OF_NAME[name]), name)
            if name in _MODULE_OF_NAME
            else importlib.import_module(f"millrace.{name}")
        )


def __dir__() -> list[str]:
    return __all__
