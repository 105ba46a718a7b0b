"""One Spark session for all tests of a process; a job, its events, and what must come of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millrace.config import Settings
from millrace.log import Log, open_log
from runners.spark.readings import READINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The session that scripts on Spark use, too."""
    from millrace.runners.spark.scripts import shared_session

    return shared_session()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(f"embedded:{tmp_path}/log")
    log.ensure(READINGS)
    yield log
    log.close()


@pytest.fixture
def settings(tmp_path: Path, log: Log) -> Settings:
    return Settings().with_options(
        log_url=log.url,
        state_dir=tmp_path / "state",
        run_name="test",
        spark_partitions=2,
        spark_master="local[2]",
    )
