"""Jobs on Spark: it schedules, shuffles, checkpoints and recovers; millrace hands it blocks.
The only importer of pyspark.
"""

from typing import Any

__all__ = ["run"]


def __getattr__(name: str) -> Any:
    """`run`, loaded when asked for: every process that Spark starts imports this
    package, and few run anything.
    """
    if name != "run":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from millrace.runners.spark.supervisor.supervise import run

    return run
