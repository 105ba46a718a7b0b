"""Where a log on Kafka is: `kafka://HOST:PORT[,HOST:PORT...][/PREFIX]`."""

from dataclasses import dataclass

from millrace.errors import ConfigError, DefinitionError
from millrace.topics import check_name

SCHEMAS = "millrace.schemas"
"""The compacted topic of schemas: what each other topic holds."""
MARKERS = "millrace.markers"
"""The compacted topic of what each writer has committed last."""
WATERMARKS = "millrace.watermarks"
"""The compacted topic of how far each writer vouches for the topics it writes."""


@dataclass(frozen=True)
class Brokers:
    """The addresses of brokers, and the prefix of the names of all topics of a log."""

    servers: str
    prefix: str = ""

    @property
    def url(self) -> str:
        """The URL that opens the same log."""
        return f"kafka://{self.servers}" + (f"/{self.prefix.removesuffix('.')}" if self.prefix else "")

    def kafka_name(self, topic: str) -> str:
        """A topic as Kafka knows it."""
        return self.prefix + topic

    def log_name(self, topic: str) -> str | None:
        """The name in the log of one of Kafka's topics; None: it belongs to another log, or is internal."""
        if not topic.startswith(self.prefix) or topic.startswith("__"):
            return None
        name = topic.removeprefix(self.prefix)
        return None if name in (SCHEMAS, MARKERS, WATERMARKS) else name


def parse_url(url: str) -> Brokers:
    """The brokers and the prefix that a URL names."""
    rest = url.removeprefix("kafka://")
    servers, _, prefix = rest.partition("/")
    if "@" in servers:
        raise ConfigError(
            "a log URL must not hold a name or password, as it is shown in many places; set sasl.username "
            "under [kafka.client], and MILLRACE_KAFKA_CLIENT_SASL_PASSWORD in the environment"
        )
    for server in servers.split(","):
        host, _, port = server.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(
                f"log {url!r}: {server!r} is not HOST:PORT; write kafka://HOST:PORT, such as kafka://localhost:9092"
            )
    if prefix:
        try:
            check_name(prefix)
        except DefinitionError as error:
            raise ConfigError(f"log {url!r}: {error}") from error
    return Brokers(servers, f"{prefix}." if prefix else "")
