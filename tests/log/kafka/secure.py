"""Clients that log in."""

from millrace.config import KafkaSettings
from millrace.devtools.brokers import Cluster

PASSWORDS = {"admin": "the-admin's-secret", "reader": "a reader's secret"}


def secure(brokers: Cluster, name: str, password: str, mechanism: str = "PLAIN") -> KafkaSettings:
    options = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(brokers.folder.parent / "tls" / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }
    return KafkaSettings.model_validate({"client": options, "wait": "60s"})
