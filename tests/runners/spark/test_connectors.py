"""Spark's own connectors at either end of a job, as docs/examples/dataframes.py shows them: a table of
PostgreSQL by JDBC, and a topic of Kafka.
"""

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

from millrace.devtools.brokers import Cluster
from sinks import postgres

pytestmark = [pytest.mark.spark, pytest.mark.long]
EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "dataframes.py"
JDBC = ("org.postgresql:postgresql:42.7.8",)
KAFKA = (  # Spark 4.3's own are not to be had everywhere; those before it do the same with it
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
SALES = [("ab"[second % 2], second, f"2026-01-01T00:00:{second:02}Z") for second in range(40)]
SOLD = sorted(
    (name, sum(n for n in range(start, start + 10) if "ab"[n % 2] == name))
    for start in (0, 10, 20, 30)
    for name in "ab"
)


def jars(folder: Path, artifacts: tuple[str, ...]) -> str:
    """Fetched by Maven; where they cannot be had, the test says so."""
    if shutil.which("mvn") is None:
        pytest.skip("there is no mvn on the PATH to fetch the connector")
    for artifact in artifacts:
        command = [
            "mvn",
            "--batch-mode",
            "--quiet",
            "dependency:copy",
            f"-Dartifact={artifact}",
            f"-DoutputDirectory={folder}",
        ]
        if subprocess.run(command, capture_output=True, check=False, cwd=folder).returncode:
            pytest.skip(f"mvn could not fetch {artifact}")
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))


@pytest.fixture
def server() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="millrace-pg-") as folder:
        Path(folder).chmod(0o755)
        with postgres.running(Path(folder) / "server", port) as url:
            yield url, port


def show(kind: str, needed: str, where: str, folder: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE), kind, needed, where, str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2_000:]


@pytest.mark.postgres
def test_a_table_in_and_a_table_out(server: tuple[str, int], tmp_path: Path) -> None:
    needed = jars(tmp_path, JDBC)
    with psycopg.connect(server[0], autocommit=True) as connection:
        connection.execute("create table shop (article text, quantity bigint, at timestamptz)")
        connection.cursor().executemany("insert into shop values (%s, %s, %s)", SALES)
        show("jdbc", needed, f"jdbc:postgresql://127.0.0.1:{server[1]}/postgres?user=millrace", tmp_path)
        assert sorted(connection.execute("select article, quantity from sold").fetchall()) == SOLD


@pytest.mark.kafka
def test_a_topic_in_and_a_topic_out(brokers: Cluster, tmp_path: Path) -> None:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    needed, servers = jars(tmp_path, KAFKA), brokers.url.removeprefix("kafka://")
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in ("shop", "sold")]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": servers})
    for article, quantity, at in SALES:
        producer.produce("shop", json.dumps({"article": article, "quantity": quantity, "at": at}))
    assert producer.flush(30) == 0
    show("kafka", needed, servers, tmp_path)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe(["sold"])
    found: list[Any] = []
    while len(found) < len(SOLD) and (message := consumer.poll(30)) is not None:
        found.append(json.loads(message.value() or b""))
    consumer.close()
    assert sorted((record["article"], record["quantity"]) for record in found) == SOLD
