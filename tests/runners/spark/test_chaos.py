"""kill -9 of the whole process tree, supervisor, JVM and workers, at random moments while events flow."""

import uuid
from pathlib import Path

import pytest

from bench.chaos import kill_spark
from bench.verdict import Verdict
from millrace.devtools.brokers import Cluster

pytestmark = pytest.mark.spark


def test_killed_at_random_moments_nothing_is_missing_doubled_or_wrong(tmp_path: Path) -> None:
    assert kill_spark(tmp_path, kills=3, vehicles=200) == Verdict(3, 0, 0, 0)


@pytest.mark.kafka
def test_nor_is_anything_on_kafka(tmp_path: Path, brokers: Cluster) -> None:
    assert kill_spark(
        tmp_path, kills=1, vehicles=200, url=f"{brokers.url}/chaos-{uuid.uuid4().hex[:8]}"
    ) == Verdict(1, 0, 0, 0)
