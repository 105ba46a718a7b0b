"""Starts, finds and stops one or three brokers of a folder."""

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from millrace.devtools.brokers import jars
from millrace.devtools.brokers.properties import BrokerNode, BrokerOptions, format_properties, make_properties
from millrace.errors import MillraceError, RunFailed
from millrace.runners import java
from millrace.runners.processes import die_with_parent, is_alive
from millrace.values.atomic_files import write_file

DEFAULT_FOLDER = Path("millrace-data/kafka")
DEFAULT_PORT = 9092
START_TIMEOUT = 60.0
"""Default seconds within which brokers have to answer."""
STOP_TIMEOUT = 15.0
"""Seconds that brokers have to end before they are killed."""
JAVA_OPTIONS = (
    "-Xmx512m",
    "-Xms128m",
    "-XX:+UseParallelGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
)
"""On a machine with few cores, a broker is fastest with the quick compiler."""


@dataclass(frozen=True)
class Cluster:
    """The brokers of a folder, as stored in `cluster.json` there."""

    folder: Path
    id: str
    nodes: tuple[BrokerNode, ...]

    @property
    def servers(self) -> str:
        """The addresses for clients: `localhost:9092,localhost:9093`."""
        return ",".join(f"localhost:{node.port}" for node in self.nodes)

    @property
    def secure_servers(self) -> str:
        """The addresses for clients with TLS and passwords; empty without such a listener."""
        return ",".join(
            f"localhost:{node.secure_port}" for node in self.nodes if node.secure_port is not None
        )

    @property
    def url(self) -> str:
        """The URL for `--log` and `log.url`."""
        return f"kafka://{self.servers}"

    def live_nodes(self) -> list[BrokerNode]:
        """The brokers that are alive."""
        return [
            node
            for node in self.nodes
            if node.pid is not None and is_alive(node.pid) and _is_broker_of(node.pid, self.folder)
        ]

    def output(self, node: BrokerNode) -> Path:
        """The file with a broker's output."""
        return self.folder / f"broker-{node.id}.log"

    def store(self) -> None:
        """Writes `cluster.json`."""
        description = {"id": self.id, "nodes": [asdict(node) for node in self.nodes]}
        write_file(self.folder / "cluster.json", json.dumps(description, indent=1).encode(), durable=False)


def load_cluster(folder: Path = DEFAULT_FOLDER) -> Cluster | None:
    """The brokers last started in a folder, alive or not; None if there were none."""
    try:
        description = json.loads((folder / "cluster.json").read_text())
    except FileNotFoundError:
        return None
    return Cluster(
        folder.resolve(), description["id"], tuple(BrokerNode(**node) for node in description["nodes"])
    )


def start(
    folder: Path = DEFAULT_FOLDER,
    *,
    brokers: int = 1,
    port: int = DEFAULT_PORT,
    options: BrokerOptions | None = None,
    detached: bool = False,
    stop_waiting: Callable[[], bool] = lambda: False,
    timeout: float = START_TIMEOUT,
) -> Cluster:
    """Starts brokers, and returns when all of them answer. They have the data of earlier starts in the
    folder.

    `port` is that of the first broker, the others have the next ones; 0: any free ones. Unless they are
    `detached`, brokers end with this process.
    """
    existing = _load_stopped_cluster(folder, brokers)
    classpath = jars.classpath(jars.fetch())
    folder.mkdir(parents=True, exist_ok=True)
    broker_options = options or BrokerOptions()
    cluster = Cluster(
        folder.resolve(),
        existing.id if existing else _make_cluster_id(),
        _plan_nodes(brokers, port, secure=broker_options.security is not None),
    )
    cluster = _start_nodes(cluster, classpath, broker_options, detached=detached)
    try:
        _await_ready(cluster, stop_waiting, cluster.nodes, timeout)
    except BaseException:
        stop(cluster)
        raise
    return cluster


def _load_stopped_cluster(folder: Path, brokers: int) -> Cluster | None:
    """The cluster of the folder; refuses one that runs, or that has another number of brokers."""
    existing = load_cluster(folder)
    if existing is not None and existing.live_nodes():
        raise MillraceError(
            f"brokers run already in {folder}, at {existing.servers}; stop them with: millrace kafka down "
            f"--folder {folder}"
        )
    if existing is not None and len(existing.nodes) != brokers:
        raise MillraceError(
            f"{folder} belongs to {len(existing.nodes)} brokers, not {brokers}; say --brokers "
            f"{len(existing.nodes)}, or name another --folder"
        )
    return existing


def stop(cluster: Cluster, *, timeout: float = STOP_TIMEOUT) -> int:
    """Stops the live brokers, by SIGTERM first, and returns their number. Their data stays."""
    stopped = cluster.live_nodes()
    for node in stopped:
        _signal(node, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while cluster.live_nodes() and time.monotonic() < deadline:
        _reap(stopped)
        time.sleep(0.05)
    for node in cluster.live_nodes():
        _signal(node, signal.SIGKILL)
    while cluster.live_nodes():
        _reap(stopped)
        time.sleep(0.02)
    _reap(stopped)
    return len(stopped)


def find_free_ports(count: int) -> list[int]:
    """Ports at which nothing listens now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [int(bound.getsockname()[1]) for bound in sockets]


def _plan_nodes(count: int, port: int, *, secure: bool) -> tuple[BrokerNode, ...]:
    free = find_free_ports(3 * count)
    ports = [port + index for index in range(count)] if port else free[:count]
    occupied = [candidate for candidate in ports if port and _is_listening(candidate)]
    if occupied:
        raise MillraceError(
            f"port {occupied[0]} is in use; name another with --port, or use --port 0 for any free one"
        )
    controllers, secure_ports = free[count : 2 * count], free[2 * count :]
    return tuple(
        BrokerNode(index + 1, ports[index], controllers[index], secure_ports[index] if secure else None)
        for index in range(count)
    )


def restart(cluster: Cluster, *ids: int, detached: bool = False, timeout: float = START_TIMEOUT) -> Cluster:
    """Starts dead brokers again with their data, and returns when they answer.

    A majority has to be alive then: one of three does not answer until it finds another.
    """
    command = _command(jars.classpath(jars.fetch()))
    nodes = [
        replace(node, pid=_launch(command, cluster, node, detached=detached)) if node.id in ids else node
        for node in cluster.nodes
    ]
    restarted = replace(cluster, nodes=tuple(nodes))
    restarted.store()
    _await_ready(restarted, lambda: False, [node for node in restarted.nodes if node.id in ids], timeout)
    return restarted


def _start_nodes(cluster: Cluster, classpath: str, options: BrokerOptions, *, detached: bool) -> Cluster:
    command = _command(classpath)
    nodes = []
    for node in cluster.nodes:
        data, file = cluster.folder / f"broker-{node.id}", _properties_file(cluster, node)
        file.touch(mode=0o600)
        file.write_text(format_properties(make_properties(node, cluster.nodes, data, options)))
        if not (data / "meta.properties").exists():
            security_options = options.security.format_options() if options.security else []
            _format_storage(
                [
                    *command,
                    "kafka.tools.StorageTool",
                    "format",
                    f"--cluster-id={cluster.id}",
                    "-c",
                    str(file),
                    *security_options,
                ],
                cluster.output(node),
            )
        nodes.append(replace(node, pid=_launch(command, cluster, node, detached=detached)))
    started = replace(cluster, nodes=tuple(nodes))
    started.store()
    return started


def _command(classpath: str) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    return [str(java.find().program), *JAVA_OPTIONS, logging, "-cp", classpath]


def _properties_file(cluster: Cluster, node: BrokerNode) -> Path:
    return cluster.folder / f"broker-{node.id}.properties"


def _launch(command: Sequence[str], cluster: Cluster, node: BrokerNode, *, detached: bool) -> int:
    with cluster.output(node).open("ab") as output:
        process = subprocess.Popen(
            [*command, "kafka.Kafka", str(_properties_file(cluster, node))],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=None if detached else die_with_parent,  # noqa: PLW1509 - else brokers outlive killed tests
        )
    process.returncode = 0  # it is stopped by its id, perhaps by another process
    return process.pid


def _format_storage(command: Sequence[str], output: Path) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        output.write_text(result.stdout + result.stderr)
        raise RunFailed(f"Kafka could not make its folder: {_last_error(output)}; its output is in {output}")


def _await_ready(
    cluster: Cluster, stop_waiting: Callable[[], bool], nodes: Sequence[BrokerNode], timeout: float
) -> None:
    deadline = time.monotonic() + timeout
    waiting = list(nodes)
    while waiting:
        dead = [node for node in nodes if node not in cluster.live_nodes()]
        if dead:
            raise RunFailed(
                f"broker {dead[0].id} ended at once: {_last_error(cluster.output(dead[0]))}; see "
                f"{cluster.output(dead[0])}"
            )
        if stop_waiting():
            raise KeyboardInterrupt
        if time.monotonic() > deadline:
            raise RunFailed(
                f"broker {waiting[0].id} does not answer at port {waiting[0].port} after {timeout:.0f} s; "
                f"see {cluster.output(waiting[0])}"
            )
        waiting = [
            node
            for node in waiting
            if not all(_is_listening(port) for port in (node.port, node.secure_port) if port is not None)
        ]
        time.sleep(0.05)


def _last_error(output: Path) -> str:
    lines = output.read_text(errors="replace").splitlines()
    error_lines = [
        line for line in lines if ("Exception" in line or "ERROR" in line) and not line.startswith("\tat ")
    ]
    return (error_lines or lines or ["it printed nothing"])[-1].strip()[:300]


def _is_listening(port: int) -> bool:
    with socket.socket() as connection:
        connection.settimeout(1)
        return connection.connect_ex(("127.0.0.1", port)) == 0


def _is_broker_of(pid: int, folder: Path) -> bool:
    """Whether a process is a broker of this folder, and not another one that reuses the id of a dead
    broker.
    """
    try:
        command_line = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        command_line = subprocess.run(
            ["ps", "-o", "args=", "-ww", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout
    return "kafka.Kafka" in command_line and str(folder) in command_line


def _signal(node: BrokerNode, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(node.pid or 0, number)


def _reap(nodes: Sequence[BrokerNode]) -> None:
    """Reaps an ended child: it stays a zombie until its parent waits for it."""
    for node in nodes:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(node.pid or 0, os.WNOHANG)


def _make_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
