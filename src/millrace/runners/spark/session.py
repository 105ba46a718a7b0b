"""A Spark session with the settings that blocks need; each is there because it was measured to help."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.errors import ComponentMissing
from millrace.runners import java
from millrace.runners.spark import read_ahead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millrace.config import Settings, SparkSettings
    from millrace.runners.state.folder import StateFolder

_STREAMING = "org.apache.spark.sql.execution.streaming"

FIXED_OPTIONS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "100",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.execution.pyspark.binaryAsBytes": "true",
    "spark.broadcast.UDFCompressionThreshold": str(2**31 - 2),
    "spark.python.daemon.module": "millrace.runners.spark.worker_daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    "spark.task.maxDirectResultSize": "64m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""The default checkpoint manager takes longer for each file; RocksDB's changelog writes what a batch changed;
counting its rows would read each one before it is written; a dozen rows a batch are not worth generating code
for; a plan above a mebibyte would be broadcast, which the worker that prepares state on the driver cannot
read; workers are forked from a daemon that has loaded everything; one task uses one core; results above a
mebibyte would take the way of blocks that executors fetch from each other.
"""

JAVA_OPTIONS = "-XX:+UseParallelGC -XX:TieredStopAtLevel=1 -Xss4m"
"""The JVM only carries blocks: a simple collector and a quick compiler serve it best. Stacks are deep because
Spark matches the text of whole Python tracebacks by a recursive pattern when a query is stopped.
"""
VFORK_OPTION = "-Djdk.lang.Process.launchMechanism=VFORK"
"""Hadoop starts a `chmod` for each file of a checkpoint and its checksum, six in a batch; by default Java
starts each through a helper program.
"""
NO_VFORK_SINCE = 26
"""From this version of Java on, that cannot be changed."""


def configuration(settings: SparkSettings, *, partitions: int, scratch: Path) -> dict[str, str]:
    """All settings of the session; those of the user win."""
    log_config = Path(__file__).with_name("log4j2.properties")
    is_local = settings.master.startswith("local")
    options = {
        **FIXED_OPTIONS,
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Dlog4j2.configurationFile={log_config.as_uri()}",
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.local.dir": str(scratch),
    }
    if is_local:
        options |= {
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "spark.shuffle.compress": "false",
            "spark.driver.host": "localhost",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    if is_local and _can_use_vfork():
        options["spark.driver.extraJavaOptions"] += f" {VFORK_OPTION}"
    if is_read_ahead_enabled(settings):
        options[f"spark.executorEnv.{read_ahead.FOLDER_VARIABLE}"] = str(scratch / "ahead")
    return options | settings.conf


def is_read_ahead_enabled(settings: SparkSettings) -> bool:
    """Whether batches are read ahead: the rows lie on the machine that read them."""
    return settings.read_ahead and settings.master.startswith("local")


def _can_use_vfork() -> bool:
    try:
        return sys.platform == "linux" and java.find().major < NO_VFORK_SINCE
    except ComponentMissing:
        return False


def open_session(
    settings: SparkSettings,
    *,
    name: str,
    partitions: int,
    scratch: Path,
    lock: int | None = None,
    output: Path | None = None,
) -> SparkSession:
    """Starts the JVM, or attaches to that of spark-submit.

    The JVM inherits `lock`, so that the state is held until it too has ended; what it and the workers print
    goes to `output`.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*pandas", category=FutureWarning
        )  # none of its frames is ever made
        from pyspark.sql import SparkSession
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if settings.master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    os.environ["POLARS_MAX_THREADS"] = "1"
    conf = SparkConf().setMaster(settings.master).setAppName(name)
    conf.setAll(list(configuration(settings, partitions=partitions, scratch=scratch).items()))
    process_options: dict[str, Any] = {"pass_fds": () if lock is None else (lock,)}
    with contextlib.ExitStack() as stack:
        if output is not None:
            process_options["stdout"] = process_options["stderr"] = stack.enter_context(output.open("ab"))
        gateway = launch_gateway(conf, popen_kwargs=process_options)  # type: ignore[no-untyped-call] # pyspark has not typed it
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def open_in_folder(settings: Settings, partitions: int, folder: StateFolder) -> SparkSession:
    """A session with the scratch folder, the lock and the log of a state folder."""
    return open_session(
        settings.spark,
        name=settings.run.name,
        partitions=partitions,
        scratch=folder.scratch,
        lock=folder.lock,
        output=folder.spark_log,
    )


def set_shuffle_partitions(spark: SparkSession, partitions: int) -> None:
    """From now on shuffles go to so many partitions."""
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))


def count_cores(settings: SparkSettings) -> int:
    """How many tasks can run at a time, as far as the settings tell."""
    local = re.fullmatch(r"local(?:\[(\*|\d+)(?:,.*)?\])?", settings.master)
    if local:
        return len(os.sched_getaffinity(0)) if local[1] == "*" else int(local[1] or 1)
    conf = settings.conf
    if "spark.cores.max" in conf:
        return int(conf["spark.cores.max"])
    return int(conf.get("spark.executor.instances", "2")) * int(conf.get("spark.executor.cores", "2"))
