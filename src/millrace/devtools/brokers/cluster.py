"""One or three brokers in a folder: started, found again, stopped."""

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
from millrace.devtools.brokers.properties import Node, Wanted, properties, text
from millrace.errors import MillraceError, RunFailed
from millrace.runners import java
from millrace.runners.processes import alive, die_with_parent

FOLDER = Path("millrace-data/kafka")
PORT = 9092
READY = 60.0
"""Seconds in which brokers must answer, unless said otherwise."""
GRACE = 15.0
"""Seconds in which they must have ended, before they are killed."""
JAVA_OPTIONS = (
    "-Xmx512m",
    "-Xms128m",
    "-XX:+UseParallelGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
)
"""On one machine with few cores the quick compiler serves a broker best."""


@dataclass(frozen=True)
class Cluster:
    """Brokers that belong together, as `cluster.json` in their folder remembers them."""

    folder: Path
    id: str
    nodes: tuple[Node, ...]

    @property
    def servers(self) -> str:
        """What clients are given: `localhost:9092,localhost:9093`."""
        return ",".join(f"localhost:{node.port}" for node in self.nodes)

    @property
    def secure_servers(self) -> str:
        """The same for clients with TLS and passwords; empty where brokers do not listen for them."""
        return ",".join(
            f"localhost:{node.secure_port}" for node in self.nodes if node.secure_port is not None
        )

    @property
    def url(self) -> str:
        """What `--log` and `log.url` are given."""
        return f"kafka://{self.servers}"

    def running(self) -> list[Node]:
        """The brokers that are alive."""
        return [
            node
            for node in self.nodes
            if node.pid is not None and alive(node.pid) and _is_ours(node.pid, self.folder)
        ]

    def output(self, node: Node) -> Path:
        """What a broker prints."""
        return self.folder / f"broker-{node.id}.log"

    def store(self) -> None:
        """Remembers it."""
        said = {"id": self.id, "nodes": [asdict(node) for node in self.nodes]}
        draft = self.folder / "cluster.draft"
        draft.write_text(json.dumps(said, indent=1))
        draft.replace(self.folder / "cluster.json")


def running(folder: Path = FOLDER) -> Cluster | None:
    """The brokers that were last started in a folder, whether they are alive or not."""
    try:
        said = json.loads((folder / "cluster.json").read_text())
    except FileNotFoundError:
        return None
    return Cluster(folder.resolve(), said["id"], tuple(Node(**node) for node in said["nodes"]))


def start(
    folder: Path = FOLDER,
    *,
    brokers: int = 1,
    port: int = PORT,
    wanted: Wanted | None = None,
    detached: bool = False,
    stop_waiting: Callable[[], bool] = lambda: False,
    within: float = READY,
) -> Cluster:
    """Starts brokers and returns when all of them answer, `within` so many seconds. What an earlier start left in the folder is still there.

    `port` is the first broker's, the next ones follow; 0: any that are free. Brokers that are not `detached` end with this process, however it ends.
    """
    known = running(folder)
    if known is not None and known.running():
        raise MillraceError(
            f"brokers run already in {folder}, at {known.servers}; stop them with: millrace kafka down --folder {folder}"
        )
    if known is not None and len(known.nodes) != brokers:
        raise MillraceError(
            f"{folder} belongs to {len(known.nodes)} brokers, not {brokers}; say --brokers {len(known.nodes)}, or name another --folder"
        )
    classpath = jars.classpath(jars.fetch())
    folder.mkdir(parents=True, exist_ok=True)
    asked = wanted or Wanted()
    cluster = Cluster(
        folder.resolve(),
        known.id if known else _new_id(),
        _nodes(brokers, port, secure=asked.security is not None),
    )
    cluster = _started(cluster, classpath, asked, detached=detached)
    try:
        _await_answers(cluster, stop_waiting, cluster.nodes, within)
    except BaseException:
        stop(cluster)
        raise
    return cluster


def stop(cluster: Cluster, *, grace: float = GRACE) -> int:
    """Ends the brokers that run, in an orderly way where they can; how many there were. What they hold stays."""
    ending = cluster.running()
    for node in ending:
        _signal(node, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while cluster.running() and time.monotonic() < deadline:
        _collect(ending)
        time.sleep(0.05)
    for node in cluster.running():
        _signal(node, signal.SIGKILL)
    while cluster.running():
        _collect(ending)
        time.sleep(0.02)
    _collect(ending)
    return len(ending)


def free_ports(count: int) -> list[int]:
    """Ports at which nobody listens now."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]


def _nodes(count: int, port: int, *, secure: bool) -> tuple[Node, ...]:
    others = free_ports(3 * count)
    ports = [port + place for place in range(count)] if port else others[:count]
    taken = [each for each in ports if port and _answers(each)]
    if taken:
        raise MillraceError(
            f"port {taken[0]} is taken; say --port with another, or --port 0 for any that is free"
        )
    controllers, secured = others[count : 2 * count], others[2 * count :]
    return tuple(
        Node(place + 1, ports[place], controllers[place], secured[place] if secure else None)
        for place in range(count)
    )


def revive(cluster: Cluster, *ids: int, detached: bool = False, within: float = READY) -> Cluster:
    """Starts brokers again that have died, all at once, with what they hold; returns when they answer.

    Most of the brokers must be alive then: a single one of three does not answer until it has found another.
    """
    command = _command(jars.classpath(jars.fetch()))
    nodes = [
        replace(node, pid=_launched(command, cluster, node, detached=detached)) if node.id in ids else node
        for node in cluster.nodes
    ]
    revived = replace(cluster, nodes=tuple(nodes))
    revived.store()
    _await_answers(revived, lambda: False, [node for node in revived.nodes if node.id in ids], within)
    return revived


def _started(cluster: Cluster, classpath: str, wanted: Wanted, *, detached: bool) -> Cluster:
    command = _command(classpath)
    nodes = []
    for node in cluster.nodes:
        data, file = cluster.folder / f"broker-{node.id}", _properties(cluster, node)
        file.touch(mode=0o600)
        file.write_text(text(properties(node, cluster.nodes, data, wanted)))
        if not (data / "meta.properties").exists():
            secret = wanted.security.format_options() if wanted.security else []
            _format(
                [
                    *command,
                    "kafka.tools.StorageTool",
                    "format",
                    f"--cluster-id={cluster.id}",
                    "-c",
                    str(file),
                    *secret,
                ],
                cluster.output(node),
            )
        nodes.append(replace(node, pid=_launched(command, cluster, node, detached=detached)))
    started = replace(cluster, nodes=tuple(nodes))
    started.store()
    return started


def _command(classpath: str) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    return [str(java.find().program), *JAVA_OPTIONS, logging, "-cp", classpath]


def _properties(cluster: Cluster, node: Node) -> Path:
    return cluster.folder / f"broker-{node.id}.properties"


def _launched(command: Sequence[str], cluster: Cluster, node: Node, *, detached: bool) -> int:
    with cluster.output(node).open("ab") as output:
        process = subprocess.Popen(
            [*command, "kafka.Kafka", str(_properties(cluster, node))],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=None if detached else die_with_parent,  # noqa: PLW1509 - a broker that outlives a killed test is worse
        )
    process.returncode = 0  # whoever stops it, perhaps another process, goes by its id
    return process.pid


def _format(command: Sequence[str], output: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output.write_text(done.stdout + done.stderr)
        raise RunFailed(
            f"Kafka could not make its folder: {_last_words(output)}; its own words are in {output}"
        )


def _await_answers(
    cluster: Cluster, stop_waiting: Callable[[], bool], wanted: Sequence[Node], within: float
) -> None:
    deadline = time.monotonic() + within
    waiting = list(wanted)
    while waiting:
        gone = [node for node in wanted if node not in cluster.running()]
        if gone:
            raise RunFailed(
                f"broker {gone[0].id} ended at once: {_last_words(cluster.output(gone[0]))}; see {cluster.output(gone[0])}"
            )
        if stop_waiting():
            raise KeyboardInterrupt
        if time.monotonic() > deadline:
            raise RunFailed(
                f"broker {waiting[0].id} does not answer at port {waiting[0].port} after {within:.0f} s; see {cluster.output(waiting[0])}"
            )
        waiting = [
            node
            for node in waiting
            if not all(_answers(port) for port in (node.port, node.secure_port) if port is not None)
        ]
        time.sleep(0.05)


def _last_words(output: Path) -> str:
    lines = output.read_text(errors="replace").splitlines()
    telling = [
        line for line in lines if ("Exception" in line or "ERROR" in line) and not line.startswith("\tat ")
    ]
    return (telling or lines or ["nothing was said"])[-1].strip()[:300]


def _answers(port: int) -> bool:
    with socket.socket() as line:
        line.settimeout(1)
        return line.connect_ex(("127.0.0.1", port)) == 0


def _is_ours(pid: int, folder: Path) -> bool:
    """Whether a process is a broker of this folder, and not one that was given the number of a dead one."""
    try:
        said = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        said = subprocess.run(
            ["ps", "-o", "args=", "-ww", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout
    return "kafka.Kafka" in said and str(folder) in said


def _signal(node: Node, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(node.pid or 0, number)


def _collect(nodes: Sequence[Node]) -> None:
    """A child that has ended stays a name until its parent asks."""
    for node in nodes:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(node.pid or 0, os.WNOHANG)


def _new_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
