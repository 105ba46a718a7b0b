"""The durable log: one contract, several implementations."""

from typing import TYPE_CHECKING, TypeAlias

from millrace.log.contract import Headers, Log, OutgoingRecords, PartitionInfo, Records, TopicInfo, Writer

if TYPE_CHECKING:
    from millrace.config import KafkaSettings, Settings

__all__ = [
    "Headers",
    "Log",
    "LogAddress",
    "OutgoingRecords",
    "PartitionInfo",
    "Records",
    "TopicInfo",
    "Writer",
    "open_log",
    "url_of",
]

LogAddress: TypeAlias = "str | Settings"
"""A URL, or settings, which also say how clients of Kafka are set up."""


def url_of(address: LogAddress) -> str:
    """The URL, without any settings."""
    return address if isinstance(address, str) else address.log.url


def open_log(address: LogAddress, *, create: bool = True, kafka: "KafkaSettings | None" = None) -> Log:
    """Opens the log at `embedded:PATH`, a bare path or `kafka://HOST:PORT`; `create=False` insists that it is
    already there.

    `kafka`: settings of its clients, where `address` is a URL and holds none.
    """
    from millrace.errors import ComponentMissing, LogError

    url = url_of(address)
    if "\0" in url:
        raise LogError(f"log {url!r}: a path cannot hold a NUL character; leave it out")
    scheme, colon, path = url.partition(":")
    if scheme == "kafka":
        try:
            from millrace.log.kafka.log import KafkaLog
        except ModuleNotFoundError as error:
            if error.name != "confluent_kafka":
                raise
            raise ComponentMissing(
                "a log on Kafka needs confluent-kafka; install it with: pip install 'millrace-streams[kafka]'"
            ) from error
        return KafkaLog(url, kafka if isinstance(address, str) else address.kafka)
    if "://" in url:
        raise LogError(
            f"log {url!r}: there are embedded logs and Kafka; use a path such as 'embedded:data/log', or kafka://HOST:PORT"
        )
    from millrace.log.embedded.log import EmbeddedLog
    from millrace.values.local_paths import require_local

    folder = require_local(path if colon and scheme == "embedded" else url, "the folder of the embedded log")
    return EmbeddedLog(folder, create=create)
