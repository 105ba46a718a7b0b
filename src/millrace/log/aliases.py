"""Which version of a topic is read under its plain name: records in one topic of the log, of which the newest counts."""

import json

import pyarrow as pa

from millrace.errors import LogError, TopicMissing
from millrace.log.contract import Log, Outgoing
from millrace.log.control import PassedOver, parse_object
from millrace.topics import check_name

ALIASES = "aliases"
"""The topic that says it."""
_KINDS: dict[str, tuple[type, ...]] = {"name": (str,), "topic": (str,)}
_passed = PassedOver()


def point(log: Log, name: str, to: str) -> None:
    """From now on, whoever follows aliases reads `to` when it is asked for `name`. All of it is there before anyone looks."""
    if to not in log.list():
        raise LogError(
            f"alias {name!r}: the log has no topic {to!r} to point it to; it has {', '.join(log.list())}"
        )
    log.ensure_raw(ALIASES)
    said = json.dumps({"name": name, "topic": to}).encode()
    log.append(ALIASES, Outgoing(pa.array([said], pa.binary()), pa.array([name.encode()], pa.binary())))


def aliases(log: Log) -> dict[str, str]:
    """The topic that each name stands for; names that stand for themselves are left out, and so are records that say nothing."""
    try:
        begin, end = log.begins(ALIASES)[0], log.ends(ALIASES)[0]
    except TopicMissing:
        return {}
    found: dict[str, str] = {}
    records = log.read(ALIASES, 0, begin, end)
    for offset, value in zip(records.offsets.tolist(), records.values.to_pylist(), strict=True):
        try:
            said = parse_object(value, _KINDS, frozenset(_KINDS))
            check_name(said["name"])
            check_name(said["topic"])
        except ValueError as error:
            _passed.note(ALIASES, offset, str(error))
            continue
        found[said["name"]] = said["topic"]
    return {name: topic for name, topic in found.items() if name != topic}
