"""What the tests look at."""

from millrace.log import Log


def values(log: Log, topic: str, partition: int = 0) -> list[bytes]:
    """All values of one partition."""
    found: list[bytes] = log.read(
        topic, partition, log.start_offsets(topic)[partition], log.end_offsets(topic)[partition]
    ).values.to_pylist()
    return found
