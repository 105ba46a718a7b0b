"""How clients reach brokers: addresses, passwords, certificates, rights."""

import logging
import pickle
import uuid

import pytest

from log.children import texts
from log.kafka.contents import values
from log.kafka.secure import PASSWORDS, secure
from millrace.config import KafkaSettings, Settings
from millrace.devtools.brokers import Cluster
from millrace.errors import ConfigError, LogDenied, LogUnreachable
from millrace.log import open_log
from millrace.log.kafka.log import KafkaLog

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_with_tls_and_a_password_everything_works(brokers: Cluster, mechanism: str) -> None:
    log = open_log(
        f"kafka://{brokers.secure_servers}/{uuid.uuid4().hex}",
        kafka=secure(brokers, "admin", PASSWORDS["admin"], mechanism),
    )
    log.ensure_raw("t")
    log.append("t", texts("a"))
    log.writer("w").commit(0, {"t": texts("b")})
    assert values(log, "t") == [b"a", b"b"]
    log.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_an_error_and_not_shown(
    brokers: Cluster, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(
        LogDenied, match=r"does not let us in .*MILLRACE_KAFKA_CLIENT_SASL_PASSWORD"
    ) as caught:
        open_log(
            f"kafka://{brokers.secure_servers}", kafka=secure(brokers, "admin", "not-the-password", mechanism)
        )
    assert "not-the-password" not in str(caught.value) + caplog.text


def test_missing_rights_are_an_error(brokers: Cluster, log: KafkaLog) -> None:
    log.ensure_raw("t")
    log.append("t", texts("a"))
    reader = open_log(
        log.url.replace(brokers.servers, brokers.secure_servers),
        kafka=secure(brokers, "reader", PASSWORDS["reader"]),
    )
    for use in (
        lambda: reader.ensure_raw("mine"),
        lambda: reader.append("t", texts("b")),
        lambda: reader.writer("w"),
    ):
        with pytest.raises(LogDenied, match="does not allow it"):
            use()
    reader.close()


def test_a_certificate_that_is_not_trusted_is_refused(brokers: Cluster) -> None:
    settings = KafkaSettings(client={"security.protocol": "SSL"}, wait="20s")
    with pytest.raises(LogDenied, match=r"ssl\.ca\.location"):
        open_log(f"kafka://{brokers.secure_servers}", kafka=settings)


def test_brokers_that_are_not_there_are_waited_for_and_then_named(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(LogUnreachable, match=r"Kafka at localhost:1 has not answered for 3s .*kafka\.wait"):
        open_log("kafka://localhost:1", kafka=KafkaSettings(wait="3s"))
    assert "waiting for Kafka at localhost:1" in caplog.text


def test_secrets_are_neither_shown_nor_pickled(brokers: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(kafka=secure(brokers, "admin", PASSWORDS["admin"]))
    stored = pickle.dumps(settings)
    assert PASSWORDS["admin"] not in repr(settings) + str(settings.model_dump())
    assert PASSWORDS["admin"].encode() not in stored
    elsewhere: Settings = pickle.loads(stored)
    with pytest.raises(ConfigError, match="MILLRACE_KAFKA_CLIENT_SASL_PASSWORD is not in the environment"):
        elsewhere.kafka.secret_variables()
    for name, value in settings.kafka.secret_variables().items():
        monkeypatch.setenv(name, value)
    log = open_log(f"kafka://{brokers.secure_servers}", kafka=elsewhere.kafka)
    assert isinstance(log.list_topics(), list)
    log.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("kafka://me:secret@host:9092", "must not hold a name or password"),
        ("kafka://host", "'host' is not HOST:PORT"),
        ("kafka://host:9092/a b", "topic name 'a b'"),
    ],
)
def test_a_url_that_cannot_be_is_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        open_log(url)
    assert "secret@" not in str(caught.value)


def test_settings_on_which_exactly_once_rests_cannot_be_set() -> None:
    with pytest.raises(ConfigError, match=r"isolation\.level cannot be set"):
        open_log("kafka://localhost:1", kafka=KafkaSettings(client={"isolation.level": "read_uncommitted"}))
