"""Checks whether this machine has what millrace needs, and names a remedy for what is missing."""

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from millrace.config import Settings
from millrace.errors import ComponentMissing
from millrace.runners import java

Verdict = Literal["ok", "absent", "missing"]
"""`missing`: what was asked for cannot run without it. `absent`: other parts of millrace need it."""

GIB = 2**30
MIN_FREE_DISK, MIN_MEMORY = 1 * GIB, 4 * GIB
"""Free disk and total memory that a run on Spark should have."""


@dataclass(frozen=True)
class Finding:
    """The result of one check. The remedy is empty where nothing has to be done."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """The finding as one JSON object."""
        return asdict(self)


_EXTRAS = (
    ("H3", "h3ronpy", "transit", "geocells and the jobs of public transport"),
    ("Starlette", "starlette", "serve", "the live map and the views"),
    ("MQTT client", "paho-mqtt", "mqtt", "ingesting from MQTT"),
    ("psycopg", "psycopg", "postgres", "results in PostgreSQL"),
    ("fsspec", "fsspec", "s3", "recordings in S3 and the like"),
    ("DataSketches", "datasketches", "sketches", "approximate aggregates"),
    ("sqlglot", "sqlglot", "sql", "MATCH_RECOGNIZE"),
)
"""Packages by which the other extras are recognised, and what they are for."""


def examine(settings: Settings) -> Iterator[Finding]:
    """Runs all checks, in the order in which a user would fix their findings."""
    yield _check_python()
    yield _check_java(needed=settings.run.on == "spark")
    yield _check_extra(
        "PySpark", "pyspark", extra="spark", needed=settings.run.on == "spark", purpose="the Spark runner"
    )
    on_kafka = settings.log.url.startswith("kafka:")
    yield _check_extra(
        "Kafka client", "confluent-kafka", extra="kafka", needed=on_kafka, purpose="a log on Kafka"
    )
    for name, package, extra, purpose in _EXTRAS:
        yield _check_extra(name, package, extra=extra, needed=False, purpose=purpose)
    yield _check_folder("state folder", settings.state.dir)
    scheme, _, path = settings.log.url.rpartition(":")
    if scheme in ("", "embedded"):
        yield _check_folder("log folder", Path(path))
    yield _check_memory()
    yield Finding("cores", "ok", f"{os.cpu_count() or 1}")
    for name, programs, purpose in _PROGRAMS:
        yield _check_program(name, programs, purpose)
    yield from _list_spark_settings(settings)


def _check_python() -> Finding:
    """Always ok: an older Python could not have installed millrace."""
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("Python", "ok", f"{version} at {sys.executable}")


def _check_java(*, needed: bool) -> Finding:
    try:
        found = java.find()
    except ComponentMissing as error:
        problem, _, remedy = str(error).partition("; ")
        return Finding(
            "Java",
            "missing" if needed else "absent",
            problem,
            f"{remedy}; without it jobs run with --on local only",
        )
    home = os.environ.get("JAVA_HOME")
    return Finding(
        "Java",
        "ok",
        f"{found.version} at {found.program}" + (f" (JAVA_HOME={home})" if home else ", from the PATH"),
    )


def _check_extra(name: str, package: str, *, extra: str, needed: bool, purpose: str) -> Finding:
    try:
        return Finding(name, "ok", importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return Finding(
            name,
            "missing" if needed else "absent",
            "not installed",
            f"for {purpose}: pip install 'millrace-streams[{extra}]'",
        )


def _check_folder(name: str, path: Path) -> Finding:
    """Checks the folder or, before the first run, its nearest existing parent, in which it would be
    created.
    """
    nearest = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        return Finding(
            name, "missing", f"{path}: {nearest} is not a folder", "remove it, or name another folder"
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Finding(
            name,
            "missing",
            f"{path}: {nearest} cannot be written",
            f"chmod u+wx {nearest}, or name another folder",
        )
    free = shutil.disk_usage(nearest).free
    status = "writable" if nearest == path.absolute() else "does not exist yet, can be created"
    description = f"{path}: {status}, {free / GIB:.1f} GiB free"
    if free < MIN_FREE_DISK:
        return Finding(
            name,
            "missing",
            description,
            f"free at least {MIN_FREE_DISK // GIB} GiB on that disk, or name a folder on another",
        )
    return Finding(name, "ok", description)


def _check_memory() -> Finding:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return Finding("memory", "ok", "unknown on this system")
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if total < MIN_MEMORY:
        return Finding(
            "memory",
            "absent",
            f"{total / GIB:.1f} GiB",
            "lower run.max_events_per_batch and spark.driver_memory",
        )
    return Finding("memory", "ok", f"{total / GIB:.1f} GiB")


_PROGRAMS = (
    (
        "Chromium",
        ("chromium", "chromium-browser", "google-chrome"),
        "the tests of the live map run in it",
    ),
    ("mosquitto", ("mosquitto",), "the tests and benchmarks of MQTT ingestion use it"),
    ("Maven", ("mvn",), "it fetches Kafka for `millrace kafka up`; the embedded log needs nothing"),
)


def _check_program(name: str, programs: tuple[str, ...], purpose: str) -> Finding:
    found = next((place for place in map(shutil.which, programs) if place), None)
    return (
        Finding(name, "ok", found)
        if found
        else Finding(name, "absent", "not installed", f"optional: {purpose}")
    )


_PATH_SETTINGS = ("spark.executorEnv.PYTHONPATH", "spark.local.dir")
"""Settings that are only paths on this machine."""


def _list_spark_settings(settings: Settings) -> Iterator[Finding]:
    """The settings with which the Spark runner would start."""
    if importlib.util.find_spec("pyspark") is None:
        return
    from millrace.runners.spark.session import configuration, count_cores

    partitions = settings.spark.partitions or count_cores(settings.spark)
    for key, value in configuration(
        settings.spark, partitions=partitions, scratch=settings.state.dir
    ).items():
        if key not in _PATH_SETTINGS:
            yield Finding(key, "ok", value)
