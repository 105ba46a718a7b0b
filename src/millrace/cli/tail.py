"""A topic's events as plain values, for people who want to look at them."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from millrace.errors import ComponentMissing, DefinitionError, LogError
from millrace.graph import find_jobs
from millrace.log import Log, Records
from millrace.log.contract import pause
from millrace.topics import Topic

BUILT_IN = "millrace.transit.topics"
"""Where topics are looked for when none is named."""
_SHOWN = 1_000
"""Characters of an unreadable value that are shown."""


def follow(
    log: Log,
    name: str,
    *,
    topic: str | None = None,
    from_start: bool = False,
    most: int | None = None,
    wait: bool = True,
) -> Iterator[dict[str, Any]]:
    """Events as they come, each with its partition and offset; `topic` says where the Topic is defined, if millrace cannot know."""
    show = _shower(log, name, topic)
    found = log.tail(name, start="begin" if from_start else "end", wait=pause if wait else _never)
    return islice((event for partition, records in found for event in show(partition, records)), most)


def _never() -> bool:
    return False


def _shower(log: Log, name: str, place: str | None) -> Callable[[int, Records], Iterator[dict[str, Any]]]:
    info = log.describe(name)
    if info.codec == "raw":
        return _bytes
    declared = _named(place) if place else _built_in(name)
    if declared is None:
        raise LogError(
            f"topic {name!r} holds {info.type_name}, which millrace does not know; say where its Topic is defined with --topic module:attribute or file.py:attribute"
        )
    if declared.type_name != info.type_name:
        raise LogError(
            f"topic {name!r} holds {info.type_name}, but --topic {place} is of {declared.type_name}; name the right one"
        )
    return lambda partition, records: _events(declared, partition, records)


def _named(place: str) -> Topic:
    found = find_jobs.resolve(place)
    if not isinstance(found, Topic):
        raise DefinitionError(f"{place!r} is {found!r}, not a millrace.Topic")
    return found


def _built_in(name: str) -> Topic | None:
    import importlib

    try:
        module = importlib.import_module(BUILT_IN)
    except (ImportError, ComponentMissing):
        return None
    return next(
        (value for value in vars(module).values() if isinstance(value, Topic) and value.name == name), None
    )


def _events(topic: Topic, partition: int, records: Records) -> Iterator[dict[str, Any]]:
    from millrace.log.codecs.codec import decode

    decoded = decode(topic, partition, records, panes=True)
    shown = [_unreadable(partition, dead) for dead in decoded.dead.iter_rows(named=True)]
    for row in decoded.rows.iter_rows(named=True):
        offset = row.pop("_off")
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
    """Records without a value, which say of a key that it is gone."""
    for offset, key, value in zip(
        records.offsets.tolist(), records.keys.to_pylist(), records.values.to_pylist(), strict=True
    ):
        if value is None:
            yield {"partition": partition, "offset": offset, "key": _readable(key), "value": None}


def _unreadable(partition: int, dead: dict[str, Any]) -> dict[str, Any]:
    """A record that is not an event of the topic's type: why, and what it holds."""
    value = _readable(dead["value"])
    shown = (
        value if value is None or len(value) <= _SHOWN else f"{value[:_SHOWN]}… ({len(dead['value'])} bytes)"
    )
    return {"partition": partition, "offset": dead["offset"], "unreadable": dead["reason"], "value": shown}


def _bytes(partition: int, records: Records) -> Iterator[dict[str, Any]]:
    headers = records.headers or [()] * len(records)
    for offset, at, value, said in zip(
        records.offsets.tolist(),
        records.timestamps.tolist(),
        records.values.to_pylist(),
        headers,
        strict=True,
    ):
        told = {key: content.decode(errors="backslashreplace") for key, content in said}
        yield {"partition": partition, "offset": offset, "appended": at, **told, "value": _readable(value)}


def _readable(value: bytes | None) -> str | None:
    """Text as it is, other bytes as hexadecimal."""
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()
