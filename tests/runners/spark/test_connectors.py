"""Spark's own connectors at either end of a job: Kafka in, PostgreSQL by JDBC and Kafka out, as docs/examples/dataframes.py shows it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millrace.kafka import Cluster
from millrace.kafka.jars import PLUGIN
from sinks import postgres

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.long]
EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "dataframes.py"


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("mvn") is None:
        pytest.skip("there is no mvn on the PATH to fetch Spark's connector for Kafka and PostgreSQL's driver")
    folder, pom = tmp_path_factory.mktemp("jars"), Path(__file__).with_name("connectors.xml")
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(pom), PLUGIN, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mvn could not fetch the connectors: {(done.stdout + done.stderr).strip().splitlines()[:1]}")
    wanted = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2", "postgresql")
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(wanted))


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="millrace-pg-") as folder:
        Path(folder).chmod(0o755)
        with postgres.running(Path(folder) / "server", port) as url:
            yield url, port


def consumed(servers: str, topic: str, count: int) -> list[Any]:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < count and (message := consumer.poll(30)) is not None:
        found.append(json.loads(message.value() or b""))
    consumer.close()
    return found


def test_kafka_in_and_postgresql_and_kafka_out(jars: str, brokers: Cluster, server: tuple[str, int], tmp_path: Path) -> None:
    from confluent_kafka import Producer

    servers = brokers.url.removeprefix("kafka://")
    producer = Producer({"bootstrap.servers": servers})
    for second in range(40):
        sale = {"article": "ab"[second % 2], "quantity": second, "at": f"2026-01-01T00:00:{second:02}Z"}
        producer.produce("shop", json.dumps(sale))
    producer.flush(30)
    jdbc = f"jdbc:postgresql://127.0.0.1:{server[1]}/postgres?user=millrace"
    ended = subprocess.run([sys.executable, str(EXAMPLE), jars, servers, jdbc, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2_000:]
    wanted = sorted((name, sum(n for n in range(start, start + 10) if "ab"[n % 2] == name)) for start in (0, 10, 20) for name in "ab")
    with psycopg.connect(server[0]) as connection:
        assert sorted(connection.execute("select article, quantity from sold").fetchall()) == wanted
    assert sorted((said["article"], said["quantity"]) for said in consumed(servers, "sold", len(wanted))) == wanted
