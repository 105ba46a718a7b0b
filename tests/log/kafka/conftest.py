"""A log of its own on a real broker."""

import uuid
from collections.abc import Iterator

import pytest

from millrace.devtools.brokers import Cluster
from millrace.log import open_log
from millrace.log.kafka import librdkafka
from millrace.log.kafka.log import KafkaLog


@pytest.fixture
def address(brokers: Cluster) -> str:
    """The URL of an empty log."""
    return f"{brokers.url}/own-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def log(address: str) -> Iterator[KafkaLog]:
    """An empty log."""
    opened = open_log(address)
    assert isinstance(opened, KafkaLog)
    yield opened
    opened.close()


@pytest.fixture(params=["columns", "objects"])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Reads by librdkafka's functions, or by confluent-kafka, which is used where those are missing."""
    if request.param == "objects":
        monkeypatch.setattr(librdkafka, "find", lambda: None)
    return str(request.param)
