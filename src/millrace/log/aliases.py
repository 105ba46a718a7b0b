"""Which version of a topic is read under its plain name: records in one topic of the log, of which the newest counts."""

import json

import pyarrow as pa

from millrace.errors import LogError, TopicMissing
from millrace.log.contract import Log, Outgoing

ALIASES = "aliases"
"""The topic that says it."""


def point(log: Log, name: str, to: str) -> None:
    """From now on, whoever follows aliases reads `to` when it is asked for `name`. All of it is there before anyone looks."""
    if to not in log.list():
        raise LogError(f"alias {name!r}: the log has no topic {to!r} to point it to; it has {', '.join(log.list())}")
    log.ensure_raw(ALIASES)
    said = json.dumps({"name": name, "topic": to}).encode()
    log.append(ALIASES, Outgoing(pa.array([said], pa.binary()), pa.array([name.encode()], pa.binary())))


def aliases(log: Log) -> dict[str, str]:
    """The topic that each name stands for; names that stand for themselves are left out."""
    try:
        begin, end = log.begins(ALIASES)[0], log.ends(ALIASES)[0]
    except TopicMissing:
        return {}
    found: dict[str, str] = {}
    for value in log.read(ALIASES, 0, begin, end).values.to_pylist():
        said = json.loads(value)
        found[said["name"]] = said["topic"]
    return {name: topic for name, topic in found.items() if name != topic}
