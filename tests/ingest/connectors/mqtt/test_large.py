"""A message that is too large for a letter is acknowledged, and does not come again;
a log with a limit gets it cut.
"""

from pathlib import Path

import pytest

from ingest.connectors.mqtt.mosquitto import Mosquitto
from millrace.ingest.connectors.mqtt import connector as mqtt
from millrace.ingest.connectors.mqtt.connector import Mqtt
from millrace.ingest.pipeline import IngestCounts, StopSignal, ingest
from millrace.ingest.processors.hsl import Hsl
from millrace.log import open_log
from millrace.log.dead_letters import parse_letters

pytestmark = pytest.mark.mqtt

TOPIC = "/hfp/v2/journey/ongoing/vp/bus/0001/00002/1/1/x/12:00/1/5/60;24/11/22/33"
GOOD = b'{"VP": {"oper": 1, "veh": 2, "tst": "2024-03-01T12:00:00Z", "lat": 60.1, "long": 24.9}}'


def test_a_malformed_message_of_more_than_a_megabyte_is_one_letter_and_what_follows_is_written(
    broker: Mosquitto, tmp_path: Path
) -> None:
    large = b"\xff" * 1_200_000
    log = open_log(f"embedded:{tmp_path / 'log'}")
    connector, stop = Mqtt(broker.url, topics=["#"], client_id="one"), StopSignal()
    with connector:
        pass  # the session is there from now on
    broker.publish([(TOPIC, large), (TOPIC, GOOD)])

    def report(counts: IngestCounts) -> None:
        if counts.received >= 2:
            stop.request()

    counts = ingest(connector, Hsl(), log, stop=stop, report=report)
    assert (counts.received, counts.written.total(), counts.rejected.total()) == (2, 1, 1)
    dead = "dead.input.vehicle-positions"
    [letter] = [
        row
        for p, end in log.end_offsets(dead).items()
        for row in parse_letters(log.read(dead, p, 0, end)).rows(named=True)
    ]
    assert letter["value"] == large, "the embedded log takes it whole"
    log.close()


def test_batches_are_bounded_in_bytes(broker: Mosquitto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "MAX_BATCH_BYTES", 250)
    with Mqtt(broker.url, topics=["#"], client_id="one") as connector:
        broker.publish([("t", b"x" * 100)] * 9)
        sizes: list[int] = []
        for _ in range(200):
            batch = connector.poll(limit=100, wait=50)
            assert batch is not None
            sizes += [len(batch)] if len(batch) else []
            connector.acknowledge(batch)
            if sum(sizes) == 9:
                break
    assert sum(sizes) == 9
    assert max(sizes) <= 2
