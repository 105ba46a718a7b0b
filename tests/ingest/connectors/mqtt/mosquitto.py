"""A real broker, started for a test and ended with it."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

LIMIT = 60.0
"""Seconds after which a condition that does not come true fails the test."""


def program() -> str | None:
    """Debian keeps it where only root looks."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def eventually(condition: Callable[[], object], expectation: str) -> None:
    """Waits for a condition, not for a time."""
    until = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < until, f"not within {LIMIT:.0f} s: {expectation}"
        time.sleep(0.01)


class Mosquitto:
    """One broker that keeps sessions and messages in its folder,
    so that it can be killed and started again.
    """

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder, self.port = folder, _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        lines = [
            f"listener {self.port} 127.0.0.1",
            "persistence true",
            f"persistence_location {folder}/",
            "autosave_interval 1",
            "autosave_on_changes true",
            "max_queued_messages 0",
            "user root",
            *(settings or ("allow_anonymous true",)),
        ]
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self.folder / "mosquitto.log").open("ab") as log:
            self.process = subprocess.Popen(
                [program() or "", "-c", str(self.folder / "mosquitto.conf")], stdout=log, stderr=log
            )
        eventually(self._answers, f"mosquitto listens: {(self.folder / 'mosquitto.log').read_text()}")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """It reads and answers nothing while inside."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def publish(self, messages: Iterable[tuple[str, bytes]]) -> None:
        """With QoS 1, by a client of its own; returns when the broker has them all."""
        from paho.mqtt import client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        try:
            for sent in [client.publish(topic, payload, qos=1) for topic, payload in messages]:
                sent.wait_for_publish(LIMIT)
        finally:
            client.disconnect()
            client.loop_stop()

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "mosquitto.log").read_text()
        with socket.socket() as there:
            return there.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def running(folder: Path, *settings: str) -> Iterator[Mosquitto]:
    """A broker that is there while inside."""
    broker = Mosquitto(folder, *settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def _free_port() -> int:
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        port: int = there.getsockname()[1]
        return port
