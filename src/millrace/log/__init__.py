"""The durable log: one contract, several implementations."""

from millrace.log.contract import Headers, Log, Outgoing, PartitionInfo, Records, TopicInfo, Writer

__all__ = ["Headers", "Log", "Outgoing", "PartitionInfo", "Records", "TopicInfo", "Writer", "open_log"]


def open_log(url: str, *, create: bool = True) -> Log:
    """Opens the log at `embedded:PATH` or a bare path; `create=False` insists that it is already there."""
    from millrace.errors import LogError

    scheme, colon, path = url.partition(":")
    if "://" in url:
        raise LogError(f"log {url!r}: only the embedded log is available in this version; use a path such as 'embedded:data/log'")
    from millrace.log.embedded import EmbeddedLog

    return EmbeddedLog(path if colon and scheme == "embedded" else url, create=create)
