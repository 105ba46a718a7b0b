"""The address of an MQTT broker and the credentials for it. The password is never shown."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from millrace.errors import ComponentMissing, ConfigError

if TYPE_CHECKING:
    from paho.mqtt.client import Client
    from paho.mqtt.properties import Properties

_DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883}


@dataclass(frozen=True)
class Broker:
    """A broker, with user and certificates. `repr` does not show the password."""

    url: str
    """Without the password: `mqtts://user@host:8883`."""
    password: str | None = field(default=None, repr=False)
    password_file: str | Path | None = None
    ca_file: str | Path | None = None
    cert_file: str | Path | None = None
    key_file: str | Path | None = None

    def __post_init__(self) -> None:
        """Refuses a wrong address, and a password in the URL, where it would be shown."""
        parts = self._parts
        if self.password is not None and not isinstance(self.password, str):
            raise ConfigError("password is not text; write it in quotes")
        if parts.password is not None:
            raise ConfigError(
                "url holds a password, and addresses are shown; put it into password_file (or password) "
                "instead"
            )
        if self.password is not None and self.password_file is not None:
            raise ConfigError("password and password_file are both given; keep one")
        if (self.password or self.password_file) and not parts.username:
            raise ConfigError(
                f"a password needs a user; write url = '{parts.scheme}://USER@{parts.hostname}'"
            )
        if not self.is_encrypted and (self.ca_file or self.cert_file or self.key_file):
            raise ConfigError(
                "ca_file, cert_file and key_file have no effect on an open connection; write url = "
                f"'mqtts://{parts.hostname}'"
            )

    @property
    def _parts(self) -> SplitResult:
        try:
            parts = urlsplit(str(self.url))
            is_valid = (
                parts.scheme in _DEFAULT_PORTS
                and parts.hostname
                and parts.path in ("", "/")
                and (parts.port or 1) > 0
            )
        except ValueError:
            is_valid = None
        if not is_valid:
            raise ConfigError(
                "url is not the address of a broker; write 'mqtt://HOST' or 'mqtts://USER@HOST:PORT' "
                "(mqtts: encrypted)"
            )
        return parts

    @property
    def host(self) -> str:
        """The host's name or IP address."""
        return self._parts.hostname or ""

    @property
    def port(self) -> int:
        """The port of the URL, or the default of its scheme."""
        return self._parts.port or _DEFAULT_PORTS[self._parts.scheme]

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection is encrypted."""
        return self._parts.scheme == "mqtts"

    def __str__(self) -> str:
        """The address without user and password, for messages."""
        return f"{self._parts.scheme}://{self.host}:{self.port}"

    def client(self, client_id: str) -> Client:
        """An MQTT 5 client with manual acknowledgement, not connected yet."""
        try:
            from paho.mqtt import client as paho
            from paho.mqtt.enums import CallbackAPIVersion
        except ImportError as error:
            raise ComponentMissing(
                "MQTT needs paho-mqtt, which is not installed; install it with: "
                "pip install 'millrace-streams[mqtt]'"
            ) from error
        client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=client_id, protocol=paho.MQTTv5, manual_ack=True
        )
        if self._parts.username:
            client.username_pw_set(self._parts.username, self._read_password())
        if self.is_encrypted:
            try:
                client.tls_set(*map(_expand_path, (self.ca_file, self.cert_file, self.key_file)))
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"the certificates for {self} cannot be used ({error}); check ca_file, cert_file and "
                    "key_file"
                ) from error
        return client

    def _read_password(self) -> str | None:
        if self.password_file is None:
            return self.password
        try:
            return Path(self.password_file).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigError(
                f"password_file={str(self.password_file)!r} cannot be read: {reason}"
            ) from error


def _expand_path(path: str | Path | None) -> Any:
    return None if path is None else str(Path(path).expanduser())


MAX_PACKET_BYTES = 16 << 20
"""Bytes of the largest message that the broker may send. In MQTT 5, the broker drops larger ones."""


def connect_properties(*, window: int, session_ms: int) -> Properties:
    """Asks for a session that outlives connections, and for at most `window` unacknowledged messages."""
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho leaves it untyped
    properties.SessionExpiryInterval = min(-(-session_ms // 1000), 2**32 - 1)
    properties.ReceiveMaximum = window
    properties.MaximumPacketSize = MAX_PACKET_BYTES
    return properties


def default_client_id() -> str:
    """The default client id: the name of this machine."""
    return f"millrace-{socket.gethostname()}"
