"""Event-stream analytics in Python: windows, watermarks and panes on columns, run in one process or on Apache Spark."""

import importlib
from typing import TYPE_CHECKING, Any

from millrace import aggregates, triggers, watermarks, windows
from millrace.stream import Job, Keyed, Stream, read
from millrace.topics import Topic

if TYPE_CHECKING:
    from millrace import testing
    from millrace.runners import run
    from millrace.runners.local import replay

__version__ = "0.1.0"

__all__ = [
    "Job",
    "Keyed",
    "Stream",
    "Topic",
    "__version__",
    "aggregates",
    "read",
    "replay",
    "run",
    "testing",
    "triggers",
    "watermarks",
    "windows",
]

_LAZY = {"run": "millrace.runners", "replay": "millrace.runners.local", "testing": "millrace.testing"}
"""What runs jobs loads when it is first asked for: defining a job needs none of it."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'millrace' has no attribute {name!r}; it has {', '.join(__all__)}")
    module = importlib.import_module(_LAZY[name])
    return module if name == "testing" else getattr(module, name)


def __dir__() -> list[str]:
    return __all__
