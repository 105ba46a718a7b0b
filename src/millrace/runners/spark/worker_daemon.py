"""The process that Spark's Python workers are forked from, with everything heavy loaded before the first
fork.

PySpark's own daemon loads nothing and has each worker collect garbage after every task, which takes 36–54 ms
over all that a worker has imported. Here imports happen once, and `gc.freeze()` takes them out of what is
collected.
"""

import contextlib
import gc
import importlib
import importlib.machinery
import os
import sys

from millrace.runners.processes import die_with_parent
from millrace.runners.spark import read_ahead

PRELOADED = (
    "numpy",
    "pandas",
    "pyarrow",
    "polars",
    "ptars",
    "h3ronpy.vector",
    "google.protobuf.message",
    "pyspark.worker",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.map_state_client",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.sql.streaming.stateful_processor_util",
    "pyspark.sql.streaming.value_state_client",
    "millrace.config",
    "millrace.stream",
    "millrace.log.codecs.codec",
    "millrace.log.embedded.log",
    "confluent_kafka",
    "millrace.log.kafka.log",
    "millrace.engine.source",
    "millrace.engine.stage",
    "millrace.runners.spark.source",
    "millrace.runners.spark.stage",
)
"""Only what starts no thread when it is imported: a thread would be missing after the fork.
Jobs run polars, so they are not here.
"""


def preload() -> None:
    """Imports what workers need; what is not installed is not needed by these jobs."""
    for module in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    gc.collect()
    gc.freeze()


def serve() -> None:
    """Forks workers on demand, until Spark closes the line.
    Spark has several daemons, and only that of the tasks has heavy work.
    """
    _remove_zips_from_path()
    import pyspark.daemon

    is_task_daemon = sys.argv[1:2] == ["pyspark.worker"]
    if is_task_daemon:
        preload()
    os.register_at_fork(after_in_child=die_with_parent)
    if is_task_daemon:
        read_ahead.start_processes()
    pyspark.daemon.manager()


def _remove_zips_from_path() -> None:
    """Spark puts a zip of PySpark first on the path, from which Python compiles every module anew; the
    installed one is compiled already.
    """
    rest = [path for path in sys.path if not path.endswith(".zip")]
    if importlib.machinery.PathFinder.find_spec("pyspark", rest) is not None:
        sys.path[:] = rest


if __name__ == "__main__":
    serve()
