"""Which version of a topic is read under its plain name: records in one topic of the log, of which the newest counts."""

import json

import pyarrow as pa

from millrace.errors import LogError, TopicMissing
from millrace.log.contract import Log, OutgoingRecords
from millrace.log.control import SkippedRecords, parse_object
from millrace.topics import check_name

ALIASES = "aliases"
"""The topic that says it."""
_MEMBER_TYPES: dict[str, tuple[type, ...]] = {"name": (str,), "topic": (str,)}
_skipped = SkippedRecords()


def set_alias(log: Log, name: str, topic: str) -> None:
    """From now on, whoever follows aliases reads `to` when it is asked for `name`. All of it is there before anyone looks."""
    if topic not in log.list_topics():
        raise LogError(
            f"alias {name!r}: the log has no topic {topic!r} to point it to; it has {', '.join(log.list_topics())}"
        )
    log.ensure_raw(ALIASES)
    record = json.dumps({"name": name, "topic": topic}).encode()
    log.append(
        ALIASES, OutgoingRecords(pa.array([record], pa.binary()), pa.array([name.encode()], pa.binary()))
    )


def read_aliases(log: Log) -> dict[str, str]:
    """The topic that each name stands for; names that stand for themselves are left out, and so are records that say nothing."""
    try:
        begin, end = log.start_offsets(ALIASES)[0], log.end_offsets(ALIASES)[0]
    except TopicMissing:
        return {}
    targets: dict[str, str] = {}
    records = log.read(ALIASES, 0, begin, end)
    for offset, value in zip(records.offsets.tolist(), records.values.to_pylist(), strict=True):
        try:
            record = parse_object(value, _MEMBER_TYPES, frozenset(_MEMBER_TYPES))
            check_name(record["name"])
            check_name(record["topic"])
        except ValueError as error:
            _skipped.note(ALIASES, offset, str(error))
            continue
        targets[record["name"]] = record["topic"]
    return {name: topic for name, topic in targets.items() if name != topic}
