"""Aliases: which version of a topic is read under its plain name. The newest record counts."""

import pyarrow as pa

from millrace.errors import LogError, TopicMissing
from millrace.log.contract import Log, OutgoingRecords
from millrace.log.control import ControlRecord, SkippedRecords
from millrace.topics import check_name

ALIASES = "aliases"
"""The topic that holds the aliases."""
_skipped = SkippedRecords()


class Alias(ControlRecord, frozen=True):
    """From this record on, readers of `name` read `topic`."""

    name: str
    topic: str


def set_alias(log: Log, name: str, topic: str) -> None:
    """From now on, readers that follow aliases read `topic` when asked for `name`. The topic must exist."""
    if topic not in log.list_topics():
        raise LogError(
            f"alias {name!r}: the log has no topic {topic!r} to point it to; it has "
            f"{', '.join(log.list_topics())}"
        )
    log.ensure_raw(ALIASES)
    record = Alias(name, topic).to_json()
    log.append(
        ALIASES, OutgoingRecords(pa.array([record], pa.binary()), pa.array([name.encode()], pa.binary()))
    )


def read_aliases(log: Log) -> dict[str, str]:
    """The topic that each name stands for; names that stand for themselves are left out."""
    try:
        begin, end = log.start_offsets(ALIASES)[0], log.end_offsets(ALIASES)[0]
    except TopicMissing:
        return {}
    targets: dict[str, str] = {}
    records = log.read(ALIASES, 0, begin, end)
    for offset, value in zip(records.offsets.tolist(), records.values.to_pylist(), strict=True):
        try:
            alias = Alias.from_json(value)
            check_name(alias.name)
            check_name(alias.topic)
        except ValueError as error:
            _skipped.note(ALIASES, offset, str(error))
            continue
        targets[alias.name] = alias.topic
    return {name: topic for name, topic in targets.items() if name != topic}
