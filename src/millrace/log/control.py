"""Control topics (schemas, markers, aliases) are untrusted input: a record that cannot be read is passed over and named once."""

import json
import logging
from collections.abc import Mapping
from typing import Any

_log = logging.getLogger("millrace.log")
MAX_BYTES = 4_000_000
"""Bytes of a control record that are parsed at most."""


class SkippedRecords:
    """Counts the records of control topics that could not be used, and names the first of each topic."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def note(self, topic: str, offset: int | None, reason: str) -> None:
        """One record of `topic` is not used."""
        self.counts[topic] = self.counts.get(topic, 0) + 1
        if self.counts[topic] == 1:
            where = topic if offset is None else f"{topic}, offset {offset}"
            _log.warning(
                "%s: passed over a record that %s; further ones are only counted. Let nobody but millrace write there (see ACLs in docs/how-to/kafka.md)",
                where,
                reason,
            )


def parse_object(
    value: bytes | None, member_types: Mapping[str, tuple[type, ...]], required: frozenset[str]
) -> dict[str, Any]:
    """A JSON object with these members, each of one of its types; others are left out. `ValueError` says what is wrong."""
    if value is None or len(value) > MAX_BYTES:
        raise ValueError("has no value" if value is None else f"has {len(value)} bytes")
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON ({type(error).__name__})") from error
    if not isinstance(parsed, dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004 - of the same kind as the others
    if missing := sorted(required - parsed.keys()):
        raise ValueError(f"lacks {', '.join(missing)}")
    for name in member_types.keys() & parsed.keys():
        if type(parsed[name]) not in member_types[name]:
            raise ValueError(
                f"has {name}={str(parsed[name])[:40]!r}, which is not of the type {member_types[name][0].__name__}"
            )
    return {name: parsed[name] for name in member_types if name in parsed}
