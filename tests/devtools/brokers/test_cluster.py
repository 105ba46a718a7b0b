"""Brokers are started, found again and stopped."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from log.conftest import within
from millrace.devtools import brokers as kafka
from millrace.devtools.brokers import Cluster
from millrace.devtools.brokers.properties import BrokerNode, BrokerOptions, format_properties, make_properties
from millrace.errors import MillraceError

pytestmark = pytest.mark.kafka


def millrace(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "millrace.cli.main", "kafka", *words],
        capture_output=True,
        text=True,
        timeout=120,
    )


def run_json(*words: str, code: int = 0) -> dict[str, Any]:
    done = millrace(*words, "--json")
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_brokers_in_the_background_are_found_again_and_keep_what_they_hold(tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    folder = ("--folder", str(tmp_path / "k"))
    assert run_json("status", *folder, code=1) == {"running": False, "url": None, "brokers": []}
    try:
        up = run_json("up", "--port", "0", "--background", *folder)
        assert up["running"]
        assert run_json("status", *folder) == up
        again = millrace("up", "--port", "0", *folder)
        assert (again.returncode, "brokers run already" in again.stderr) == (1, True)
        servers = up["url"].removeprefix("kafka://")
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("kept", 3)])["kept"].result(30)
        assert run_json("down", *folder)["stopped"] == 1
        assert run_json("status", *folder, code=1)["running"] is False
        up = run_json("up", "--port", "0", "--background", *folder)
        topics = (
            AdminClient({"bootstrap.servers": up["url"].removeprefix("kafka://")})
            .list_topics(timeout=30)
            .topics
        )
        assert len(topics["kept"].partitions) == 3
        other = millrace("up", "--port", "0", "--brokers", "3", *folder)
        assert other.returncode == 1
    finally:
        assert run_json("down", *folder)["stopped"] == 1
    assert run_json("down", *folder)["stopped"] == 0


def test_brokers_in_the_foreground_end_with_the_command_however_that_ends(tmp_path: Path) -> None:
    for how, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        words = ["kafka", "up", "--port", "0", "--folder", str(tmp_path / "k"), "--json"]
        command = subprocess.Popen(
            [sys.executable, "-m", "millrace.cli.main", *words], stdout=subprocess.PIPE, text=True
        )
        assert command.stdout is not None
        line = json.loads(command.stdout.readline())
        cluster = kafka.load_cluster(tmp_path / "k")
        assert cluster is not None
        assert [node.pid for node in cluster.live_nodes()] == [broker["pid"] for broker in line["brokers"]]
        os.kill(command.pid, how)
        assert command.wait(60) == code
        command.stdout.close()
        with within() as waiting:
            while waiting(bool(cluster.live_nodes())):
                pass


def test_a_port_that_is_taken_is_named(brokers: Cluster, tmp_path: Path) -> None:
    with pytest.raises(
        MillraceError, match=f"port {brokers.nodes[0].port} is in use; name another with --port"
    ):
        kafka.start(tmp_path, port=brokers.nodes[0].port)


def test_a_broker_that_cannot_run_says_why(tmp_path: Path) -> None:
    with pytest.raises(MillraceError, match=r"node\.id|process\.roles|num\.io\.threads"):
        kafka.start(tmp_path, port=0, options=BrokerOptions(settings={"num.io.threads": "none"}))
    assert millrace("up", "--brokers", "2").returncode == 2
    assert "write KEY=VALUE" in millrace("up", "--set", "wrong", "--folder", str(tmp_path)).stderr


def test_with_three_brokers_each_record_is_held_by_two_before_it_counts(tmp_path: Path) -> None:
    nodes = [BrokerNode(number, 9000 + number, 9100 + number) for number in (1, 2, 3)]
    properties = make_properties(nodes[1], nodes, tmp_path, BrokerOptions(settings={"num.partitions": "7"}))
    assert (properties["default.replication.factor"], properties["min.insync.replicas"]) == ("3", "2")
    assert properties["controller.quorum.voters"] == "1@localhost:9101,2@localhost:9102,3@localhost:9103"
    assert properties["advertised.listeners"] == "PLAINTEXT://localhost:9002"
    assert "num.partitions=7\n" in format_properties(properties)


@pytest.mark.long
def test_one_of_three_brokers_may_be_killed(tmp_path: Path) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    cluster = kafka.start(tmp_path / "k", brokers=3, port=0)
    try:
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        admin.create_topics([NewTopic("t", 6)])["t"].result(30)
        producer = Producer({"bootstrap.servers": cluster.servers, "acks": "all", "enable.idempotence": True})
        failed: list[object] = []
        for number in range(200):
            producer.produce(
                "t", str(number), on_delivery=lambda error, _: failed.append(error) if error else None
            )
            if number == 100:
                producer.flush(30)
                os.kill(cluster.nodes[0].pid or 0, signal.SIGKILL)
        assert producer.flush(90) == 0
        assert failed == []
        assert len(cluster.live_nodes()) == 2
    finally:
        kafka.stop(cluster)
