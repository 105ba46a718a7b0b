"""A log of its own on a real broker."""

import uuid
from collections.abc import Iterator

import pytest

from millrace.devtools.brokers import Cluster
from millrace.log import open_log
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
