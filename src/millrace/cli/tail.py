"""Events of a topic as plain values, to be printed."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from millrace.errors import ComponentMissing, DefinitionError, LogError
from millrace.graph import find_jobs
from millrace.log import Log, Records
from millrace.log.contract import pause
from millrace.stream import Job
from millrace.topics import Topic
from millrace.values.columns import OFFSET

BUILT_IN_TOPICS = "millrace.transit.topics"
"""The module in which topics are looked up by name."""
_MAX_VALUE_LENGTH = 1_000
"""The most characters of an unreadable value that are shown."""


def follow(
    log: Log,
    name: str,
    *,
    topic: str | None = None,
    from_start: bool = False,
    limit: int | None = None,
    wait: bool = True,
) -> Iterator[dict[str, Any]]:
    """Events as they come, each with its partition and offset; `topic` says where the Topic is defined, if
    millrace cannot know.
    """
    decode = _choose_decoder(log, name, topic)
    batches = log.tail(name, start="begin" if from_start else "end", wait=pause if wait else _never)
    return islice((event for partition, records in batches for event in decode(partition, records)), limit)


def _never() -> bool:
    return False


def _choose_decoder(
    log: Log, name: str, topic: str | None
) -> Callable[[int, Records], Iterator[dict[str, Any]]]:
    info = log.describe(name)
    if info.codec == "raw":
        return _decode_bytes
    declared = _resolve_topic(topic, name) if topic else _find_built_in(name)
    if declared is None:
        raise LogError(
            f"topic {name!r} holds {info.type_name}, which millrace does not know; name its Topic "
            "with --topic module:attribute or file.py:attribute, or the job that writes it"
        )
    if declared.type_name != info.type_name:
        raise LogError(
            f"topic {name!r} holds {info.type_name}, but --topic {topic} is of {declared.type_name}; name "
            "the right one"
        )
    return lambda partition, records: _decode_events(declared, partition, records)


def _resolve_topic(reference: str, name: str) -> Topic:
    """The Topic of this reference; of a job, the one with this name that it writes."""
    resolved = find_jobs.resolve(reference)
    if isinstance(resolved, Job):
        topics = {output.topic.name: output.topic for output in resolved.outputs}
        if name not in topics:
            raise DefinitionError(f"job {resolved.name!r} does not write {name!r}, but {', '.join(topics)}")
        return topics[name]
    if not isinstance(resolved, Topic):
        raise DefinitionError(
            f"{reference!r} is {resolved!r}, not a millrace.Topic; name the topic, or the job that writes it"
        )
    return resolved.typed()


def _find_built_in(name: str) -> Topic | None:
    import importlib

    try:
        module = importlib.import_module(BUILT_IN_TOPICS)
    except (ImportError, ComponentMissing):
        return None
    return next(
        (value for value in vars(module).values() if isinstance(value, Topic) and value.name == name), None
    )


def _decode_events(topic: Topic, partition: int, records: Records) -> Iterator[dict[str, Any]]:
    from millrace.log.codecs.codec import decode

    decoded = decode(topic, partition, records, panes=True)
    shown = [_describe_unreadable(partition, dead) for dead in decoded.dead.iter_rows(named=True)]
    for row in decoded.rows.iter_rows(named=True):
        offset = row.pop(OFFSET)
        shown.append(
            {
                "partition": partition,
                "offset": offset,
                **{name: value for name, value in row.items() if value is not None},
            }
        )
    if topic.compact and not topic.tombstones:
        shown += _removals(partition, records)
    yield from sorted(shown, key=lambda event: event["offset"])


def _removals(partition: int, records: Records) -> Iterator[dict[str, Any]]:
    """Tombstones: records without a value, which delete their key."""
    for offset, key, value in zip(
        records.offsets.tolist(), records.keys.to_pylist(), records.values.to_pylist(), strict=True
    ):
        if value is None:
            yield {"partition": partition, "offset": offset, "key": _to_text(key), "value": None}


def _describe_unreadable(partition: int, dead: dict[str, Any]) -> dict[str, Any]:
    """A record that is not an event of the topic's type, with the reason and its value."""
    value = _to_text(dead["value"])
    shown = (
        value
        if value is None or len(value) <= _MAX_VALUE_LENGTH
        else f"{value[:_MAX_VALUE_LENGTH]}… ({len(dead['value'])} bytes)"
    )
    return {"partition": partition, "offset": dead["offset"], "unreadable": dead["reason"], "value": shown}


def _decode_bytes(partition: int, records: Records) -> Iterator[dict[str, Any]]:
    all_headers = records.headers or [()] * len(records)
    for offset, appended, value, record_headers in zip(
        records.offsets.tolist(),
        records.timestamps.tolist(),
        records.values.to_pylist(),
        all_headers,
        strict=True,
    ):
        fields = {key: content.decode(errors="backslashreplace") for key, content in record_headers}
        yield {
            "partition": partition,
            "offset": offset,
            "appended": appended,
            **fields,
            "value": _to_text(value),
        }


def _to_text(value: bytes | None) -> str | None:
    """Text as it is, other bytes as hexadecimal."""
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()
