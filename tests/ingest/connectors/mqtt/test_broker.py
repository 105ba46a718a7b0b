"""Addresses, passwords and certificates: what is refused, and that no password is ever shown."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.connectors.mqtt.mosquitto import Mosquitto, program, running
from millrace.errors import ConfigError, InputError
from millrace.ingest.connectors.mqtt import Mqtt
from millrace.ingest.connectors.mqtt.broker import Broker

SECRET = "swordfish-31"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "mqtt.hsl.fi"}, "mqtts://USER@HOST:PORT"),
        ({"url": "http://mqtt.hsl.fi"}, "mqtts://USER@HOST:PORT"),
        ({"url": "mqtt://host:99999"}, "mqtts://USER@HOST:PORT"),
        ({"url": f"mqtt://me:{SECRET}@host"}, "put it into password_file"),
        ({"url": "mqtt://host", "password": SECRET}, "mqtt://USER@host"),
        ({"url": "mqtt://me@host", "password": SECRET, "password_file": "x"}, "keep one"),
        ({"url": "mqtt://me@host", "password": 31}, "in quotes"),
        ({"url": "mqtt://host", "ca_file": "ca.pem"}, "mqtts://host"),
        ({"url": "mqtt://host", "window": 0}, "from 1 to 65535"),
        ({"url": "mqtt://host", "client_id": "a/b"}, "client_id='a/b'"),
        ({"url": "mqtt://host", "topics": [1]}, "topic filters"),
        ({"url": "mqtt://host", "topics": "#/things"}, "topics='#/things'"),
        ({"url": "mqtt://host", "topics": ["a", "a/b+"]}, "topic filters"),
        ({"url": "mqtt://host", "session": "long"}, "session='long'"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy_and_without_the_password(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Mqtt(**options)  # type: ignore[arg-type]
    assert message in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_password_is_not_shown() -> None:
    broker = Broker("mqtts://me@host", SECRET)
    assert SECRET not in f"{broker!r} {broker}"
    assert str(broker) == "mqtts://host:8883"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Mosquitto]:
    passwords = tmp_path / "passwords"
    passwords.touch(mode=0o600)
    tool = Path(program() or "").parent.parent / "bin" / "mosquitto_passwd"
    subprocess.run([tool, "-b", passwords, "me", SECRET], check=True, capture_output=True)
    with running(tmp_path / "broker", "allow_anonymous false", f"password_file {passwords}") as broker:
        yield broker


@pytest.mark.mqtt
def test_a_password_from_a_file_opens_and_a_wrong_one_is_refused_without_being_shown(
    guarded: Mosquitto, tmp_path: Path
) -> None:
    url, file = guarded.url.replace("//", "//me@"), tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    with Mqtt(url, topics="#", client_id="one", password_file=file):
        pass
    with pytest.raises(InputError, match="check the user and password") as refused:
        Mqtt(url, topics="#", client_id="one", password="wrong-one").open()
    assert "wrong-one" not in str(refused.value)
    with pytest.raises(ConfigError, match="password_file"):
        Mqtt(url, topics="#", client_id="one", password_file=tmp_path / "none").open()


def openssl(*words: object, cwd: Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, cwd=cwd)


@pytest.mark.mqtt
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket"
)  # paho leaves it to the collector after a refusal
def test_an_encrypted_connection_needs_the_right_authority(tmp_path: Path) -> None:
    for name in ("ours", "another"):
        openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-days", 2, "-keyout",
            f"{name}.key", "-out", f"{name}.pem", cwd=tmp_path,
        )  # fmt: skip
    openssl(
        "req",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=127.0.0.1",
        "-keyout",
        "server.key",
        "-out",
        "server.csr",
        cwd=tmp_path,
    )
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1")
    openssl(
        "x509", "-req", "-in", "server.csr", "-CA", "ours.pem", "-CAkey", "ours.key", "-CAcreateserial",
        "-days", 2, "-extfile", "names", "-out", "server.pem", cwd=tmp_path,
    )  # fmt: skip
    settings = ("allow_anonymous true", f"certfile {tmp_path}/server.pem", f"keyfile {tmp_path}/server.key")
    with running(tmp_path / "broker", *settings) as broker:
        url = broker.url.replace("mqtt:", "mqtts:")
        with Mqtt(url, topics="a", client_id="one", ca_file=tmp_path / "ours.pem") as connector:
            connector._require_client().publish("a", b"said in private", qos=1)
            batch = connector.poll(limit=1, wait=20_000)
            assert batch is not None
            assert list(batch.payloads) == [b"said in private"]
            connector.acknowledge(batch)
        with pytest.raises(InputError, match="certificate"):
            Mqtt(url, topics="a", client_id="one", ca_file=tmp_path / "another.pem").open()
