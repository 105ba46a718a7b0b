"""The broker of the tests beside this."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.connectors.mqtt.mosquitto import Mosquitto, running


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with running(tmp_path / "broker") as started:
        yield started
