"""A listener with TLS and passwords and its certificate, to test clients with both."""

import secrets
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millrace.runners import java

_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Security:
    """The users of the listener SASL_SSL. On it, only `admins` may do everything; on the plain listener, all
    clients may.
    """

    folder: Path
    """The folder of the certificate."""
    users: Mapping[str, str] = field(repr=False)
    """Passwords by user, for both PLAIN and SCRAM."""
    admins: tuple[str, ...] = ()
    keystore_password: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    @property
    def certificate(self) -> Path:
        """The certificate that clients have to trust: `ssl.ca.location`."""
        return self.folder / "ca.pem"

    @property
    def keystore(self) -> Path:
        """The brokers' certificate with its key."""
        return self.folder / "broker.p12"

    def create_certificate(self) -> None:
        """Creates a self-signed certificate for localhost."""
        self.folder.mkdir(parents=True, exist_ok=True)
        keytool = str(java.find().program.with_name("keytool"))
        store = ["-storetype", "PKCS12", "-storepass:env", "MILLRACE_STORE", "-alias", "broker", "-keystore"]
        key = "-genkeypair -keyalg EC -groupname secp256r1 -dname CN=localhost -validity 30"
        names = "-ext SAN=dns:localhost,ip:127.0.0.1 -ext bc:c"
        export = ["-exportcert", "-rfc", "-file", str(self.certificate)]
        for options in (f"{key} {names}".split(), export):
            _run([keytool, *options, *store, str(self.keystore)], self.keystore_password)

    def properties(self) -> dict[str, str]:
        """The brokers' settings of this listener."""
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
        """The passwords of SCRAM, as arguments of the command that formats a broker's folder."""
        mechanisms = ("SCRAM-SHA-256", "SCRAM-SHA-512")
        return [
            argument
            for name, password in self.users.items()
            for mechanism in mechanisms
            for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        ]


def _run(command: list[str], password: str) -> None:
    subprocess.run(command, check=True, capture_output=True, env={"MILLRACE_STORE": password})
