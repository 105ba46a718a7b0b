"""The settings of a broker: `server.properties`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millrace.devtools.brokers.security import Security

BASE_PROPERTIES = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "controlled.shutdown.max.retries": "1",
}
"""Topics are only created as declared, never by a typing error; the other settings keep a broker small."""


@dataclass(frozen=True)
class BrokerNode:
    """A broker, which is also a controller."""

    id: int
    port: int
    controller_port: int
    secure_port: int | None = None
    """The port of the SASL_SSL listener, if there is one."""
    pid: int | None = None


@dataclass(frozen=True)
class BrokerOptions:
    """Options of brokers, besides their ports."""

    security: Security | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Any settings of Kafka; they override the others."""


def make_properties(
    node: BrokerNode, nodes: Sequence[BrokerNode], data: Path, options: BrokerOptions
) -> dict[str, str]:
    """All settings of one broker. Of three brokers, each topic has three replicas, and a record counts when
    two have it.
    """
    replicas, quorum = min(3, len(nodes)), 2 if len(nodes) >= 3 else 1
    listeners = {"PLAINTEXT": node.port, "CONTROLLER": node.controller_port}
    if node.secure_port is not None:
        listeners["SASL_SSL"] = node.secure_port
    settings = {
        **BASE_PROPERTIES,
        "node.id": str(node.id),
        "log.dirs": str(data),
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
        "advertised.listeners": ",".join(
            f"{name}://localhost:{port}" for name, port in listeners.items() if name != "CONTROLLER"
        ),
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
        "controller.quorum.voters": ",".join(
            f"{broker.id}@localhost:{broker.controller_port}" for broker in nodes
        ),
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(quorum),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(quorum),
    }
    if options.security is not None:
        settings |= options.security.properties()
    return settings | dict(options.settings)


def format_properties(settings: Mapping[str, str]) -> str:
    """The settings in the format of the file."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in settings.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")
