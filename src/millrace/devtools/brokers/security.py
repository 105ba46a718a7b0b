"""A listener with TLS and passwords, and a certificate made for it: to see that clients manage both."""

import secrets
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millrace.runners import java

_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Security:
    """Who may come in by the listener SASL_SSL. Whoever comes by the plain one may do everything; of those with a password only `admins`."""

    folder: Path
    """Where the certificate is."""
    users: Mapping[str, str] = field(repr=False)
    """Passwords by name; all of them for PLAIN as well as for SCRAM."""
    admins: tuple[str, ...] = ()
    keystore_password: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    @property
    def certificate(self) -> Path:
        """What clients must trust: `ssl.ca.location`."""
        return self.folder / "ca.pem"

    @property
    def keystore(self) -> Path:
        """Certificate and key, for brokers."""
        return self.folder / "broker.p12"

    def create_certificate(self) -> None:
        """Makes a certificate for localhost, signed by itself."""
        self.folder.mkdir(parents=True, exist_ok=True)
        keytool = java.find().program.with_name("keytool")
        store_options = [
            "-keystore",
            str(self.keystore),
            "-storetype",
            "PKCS12",
            "-storepass:env",
            "MILLRACE_STORE",
            "-alias",
            "broker",
        ]
        key_options = [
            "-genkeypair",
            "-keyalg",
            "EC",
            "-groupname",
            "secp256r1",
            "-dname",
            "CN=localhost",
            "-validity",
            "30",
        ]
        _run(
            [
                str(keytool),
                *key_options,
                "-ext",
                "SAN=dns:localhost,ip:127.0.0.1",
                "-ext",
                "bc:c",
                *store_options,
            ],
            self.keystore_password,
        )
        _run(
            [str(keytool), "-exportcert", "-rfc", "-file", str(self.certificate), *store_options],
            self.keystore_password,
        )

    def properties(self) -> dict[str, str]:
        """What brokers are told of it."""
        plain = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
        listener = "listener.name.sasl_ssl"
        return {
            "ssl.keystore.location": str(self.keystore),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": self.keystore_password,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{listener}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {plain};",
            f"{listener}.scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
            f"{listener}.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join(f"User:{name}" for name in ("ANONYMOUS", *self.admins)),
        }

    def format_options(self) -> list[str]:
        """SCRAM's passwords, as they are given when a broker's folder is made."""
        mechanisms = ("SCRAM-SHA-256", "SCRAM-SHA-512")
        return [
            argument
            for name, password in self.users.items()
            for mechanism in mechanisms
            for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        ]


def _run(command: list[str], password: str) -> None:
    subprocess.run(command, check=True, capture_output=True, env={"MILLRACE_STORE": password})
