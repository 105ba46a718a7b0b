"""MQTT: what was not acknowledged comes again, what was does not, and there is never more than the window."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ingest.connectors.mqtt.mosquitto import Mosquitto, eventually
from millrace.errors import InputError
from millrace.ingest import Event, MessageBatch, MessageProcessor, RawMessage
from millrace.ingest.connectors.mqtt import Mqtt
from millrace.ingest.pipeline import StopSignal, ingest
from millrace.log import Log, open_log
from millrace.log.dead_letters import parse_letters
from millrace.topics import Topic

pytestmark = pytest.mark.mqtt


def numbered(*numbers: int) -> list[tuple[str, bytes]]:
    return [("things/a", str(number).encode()) for number in numbers]


def gathered(connector: Mqtt, count: int, *, acknowledge: bool = True) -> list[int]:
    """The numbers of at least `count` messages."""
    found: list[int] = []

    def enough() -> bool:
        batch = connector.poll(limit=1_000, wait=20)
        assert batch is not None
        found.extend(map(int, batch.payloads))
        if acknowledge:
            connector.acknowledge(batch)
        return len(found) >= count

    eventually(enough, f"{count} messages, not only {found}")
    return found


def nothing_more(connector: Mqtt) -> bool:
    batch = connector.poll(limit=1_000, wait=300)
    return batch is not None and not len(batch)


@contextmanager
def connected(broker: Mosquitto, client_id: str = "one", **options: object) -> Iterator[Mqtt]:
    with Mqtt(broker.url, topics="things/#", client_id=client_id, **options) as connector:  # type: ignore[arg-type]
        yield connector


def abandon(connector: Mqtt) -> None:
    """As when the process dies: the connection ends without another packet."""
    there = connector._require_client().socket()
    assert there is not None
    there.close()


def test_messages_come_as_they_were_said(broker: Mosquitto) -> None:
    with connected(broker) as connector:
        broker.publish([("things/a", b"1"), ("elsewhere", b"2"), ("things/b/c", b"\xff\x00")])
        found: list[MessageBatch] = []

        def both() -> bool:
            batch = connector.poll(limit=10, wait=20)
            assert batch is not None
            found.append(batch)
            return sum(map(len, found)) >= 2

        eventually(both, "two messages")
        raws = [raw for batch in found for raw in batch]
    assert [(raw.topic, raw.payload) for raw in raws] == [("things/a", b"1"), ("things/b/c", b"\xff\x00")]
    assert [raw.origin for raw in raws] == [f"{broker.url} one:0", f"{broker.url} one:1"]
    assert all(raw.received > 1_700_000_000_000 for raw in raws)


def test_what_was_acknowledged_does_not_come_again_and_the_rest_does(broker: Mosquitto) -> None:
    first = Mqtt(broker.url, topics="things/#", client_id="one")
    first.open()
    broker.publish(numbered(1, 2))
    assert gathered(first, 2) == [1, 2]
    broker.publish(numbered(3, 4))
    assert gathered(first, 2, acknowledge=False) == [3, 4]
    abandon(first)
    with connected(broker) as again:
        assert gathered(again, 2) == [3, 4]
        assert nothing_more(again)


def test_a_node_leaves_only_when_the_broker_has_read_its_acknowledgements(broker: Mosquitto) -> None:
    node = Mqtt(broker.url, topics="things/#", client_id="one")
    node.open()
    broker.publish(numbered(*range(50)))
    batch = node.poll(limit=50, wait=60_000)
    assert batch is not None
    with ThreadPoolExecutor(1) as pool, broker.asleep():
        node.acknowledge(batch)
        leaving = pool.submit(node.close)
        with pytest.raises(TimeoutError):
            leaving.result(timeout=0.3)
    leaving.result(timeout=60)
    with connected(broker) as again:
        assert len(batch) == 50
        assert nothing_more(again)


def test_the_broker_keeps_messages_while_the_node_is_away(broker: Mosquitto) -> None:
    with connected(broker):
        pass
    broker.publish(numbered(1, 2, 3))
    with connected(broker) as connector:
        assert gathered(connector, 3) == [1, 2, 3]


def test_the_broker_sends_no_more_than_the_window_ahead_of_the_log(broker: Mosquitto) -> None:
    with connected(broker, window=10) as connector:
        broker.publish(numbered(*range(25)))
        batches = []

        def taken() -> int:
            batch = connector.poll(limit=100, wait=20)
            assert batch is not None
            batches.append(batch)
            return sum(map(len, batches))

        eventually(lambda: taken() >= 10, "the window is filled")
        assert nothing_more(connector)
        assert sum(map(len, batches)) == 10
        for batch in batches:
            connector.acknowledge(batch)
        assert gathered(connector, 15) == list(range(10, 25))


def test_a_lost_connection_is_made_again_and_nothing_is_lost(broker: Mosquitto) -> None:
    with connected(broker) as connector:
        broker.publish(numbered(1, 2))
        before = connector.poll(limit=2, wait=20_000)
        assert before is not None
        assert len(before) == 2
        broker.stop()
        while len(batch := connector.poll(limit=10, wait=20) or MessageBatch()):
            connector.acknowledge(batch)
        eventually(
            lambda: (connector.poll(limit=10, wait=10), connector.recovered_errors())[1],
            "the loss is noticed",
        )
        broker.start()
        connector.acknowledge(before)  # by a connection that is no more: the broker does not learn of it
        broker.publish(numbered(3))
        assert gathered(connector, 3) == [1, 2, 3]
        assert nothing_more(connector)
        assert connector.recovered_errors() == {"connections lost": 1}


def test_nodes_of_one_group_divide_the_messages(broker: Mosquitto) -> None:
    with connected(broker, "one", share="city") as one, connected(broker, "two", share="city") as two:
        broker.publish(numbered(*range(40)))
        found: dict[str, list[int]] = {"one": [], "two": []}

        def all_there() -> bool:
            for name, node in (("one", one), ("two", two)):
                batch = node.poll(limit=100, wait=10)
                assert batch is not None
                found[name].extend(map(int, batch.payloads))
                node.acknowledge(batch)
            return len(found["one"]) + len(found["two"]) >= 40

        eventually(all_there, "forty messages")
    assert sorted(found["one"] + found["two"]) == list(range(40))
    assert found["one"]
    assert found["two"]


def test_two_nodes_of_one_name_are_warned(broker: Mosquitto, caplog: pytest.LogCaptureFixture) -> None:
    with connected(broker) as first, connected(broker) as second:

        def warned() -> bool:
            for node in (first, second):
                try:
                    node.poll(limit=1, wait=20)
                except InputError as error:  # newer brokers say it themselves
                    return "same client_id" in str(error)
            return "same client_id" in caplog.text

        eventually(warned, "one of them is warned")


@dataclass
class Reading:
    sensor: str
    count: int


READINGS = Topic("input.readings", Reading, key="sensor")


class Sensors(MessageProcessor):
    """Readings in JSON; it raises where a sensor is named "broken"."""

    topics = (READINGS,)

    def process(self, raw: RawMessage) -> Event | None:
        values = json.loads(raw.payload)
        if values["sensor"] == "broken":
            raise ZeroDivisionError("of a user")
        return Event(READINGS, 5, values)


def test_a_message_that_does_not_fit_is_a_dead_letter_and_does_not_come_again(
    broker: Mosquitto, tmp_path: Path
) -> None:
    bad = [
        b'{"sensor": "a", "count": null}',
        b'{"sensor": "b"}',
        b'{"sensor": "broken", "count": 1}',
        b"[]",
        b"\xff",
    ]
    good = [b'{"sensor": "c", "count": 1}', b'{"sensor": "d", "count": 2}']
    with connected(broker):
        pass  # from here on the broker keeps messages for it
    broker.publish([("things/a", payload) for payload in (good[0], *bad, good[1])])
    log = open_log(f"embedded:{tmp_path / 'log'}")
    stop = StopSignal()
    node = Mqtt(broker.url, topics="things/#", client_id="one")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ingest, node, Sensors(), log, stop=stop)
        try:
            eventually(lambda: running.done() or _records(log) == (2, 5), "all seven are in the log")
        finally:
            stop.request()
        counts = running.result(timeout=60)
    assert (counts.received, counts.written.total(), counts.rejected.total()) == (7, 2, 5)
    letters = parse_letters(log.read("dead.input.readings", 0, 0, 5))
    details = dict(letters.select("value", "detail").rows())
    assert ["'count'" in details[payload] for payload in bad] == [True, True, False, False, False]
    assert re.fullmatch(
        r"ZeroDivisionError: of a user \(test_connector\.py:\d+ in process\)", details[bad[2]]
    )
    with connected(broker) as again:
        assert nothing_more(again), "the broker has every acknowledgement"
    log.close()


def _records(log: Log) -> tuple[int, int]:
    known = set(log.list_topics())
    read, dead = (
        sum(log.end_offsets(name).values()) if name in known else 0
        for name in ("input.readings", "dead.input.readings")
    )
    return read, dead


def test_a_broker_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"mqtt://127\.0\.0\.1:1 cannot be reached"):
        Mqtt("mqtt://127.0.0.1:1", topics="#", client_id="one").open()
