"""Records of control topics (schemas, markers, aliases, owners). They are untrusted input.

A user who may write to the topics of a log may write anything into a control topic. A record that
cannot be used is skipped and named once, so no record stops a command or changes what was known.
"""

import logging
from functools import lru_cache
from typing import Any, Self

import msgspec

_log = logging.getLogger("millrace.log")
MAX_BYTES = 4_000_000
"""Bytes of a control record that are parsed at most."""


class ControlRecord(msgspec.Struct, frozen=True):
    """A JSON object with these members, strictly of these types. Members of later versions are ignored."""

    def to_json(self) -> bytes:
        """The value of the record."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, value: bytes | None) -> Self:
        """The content of a record; `ValueError` completes the sentence "a record that ..."."""
        if value is None or len(value) > MAX_BYTES:
            raise ValueError("has no value" if value is None else f"has {len(value)} bytes")
        try:
            record: Self = _decoder(cls).decode(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is not a {cls.__name__}: {error}") from error
        return record


@lru_cache(maxsize=16)
def _decoder(record_type: type[ControlRecord]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(record_type)


class SkippedRecords:
    """Counts the records of control topics that could not be used, and names the first of each topic."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def note(self, topic: str, offset: int | None, reason: str) -> None:
        """Counts one record of `topic`, and warns of the first."""
        self.counts[topic] = self.counts.get(topic, 0) + 1
        if self.counts[topic] == 1:
            place = topic if offset is None else f"{topic}, offset {offset}"
            _log.warning(
                "%s: skipped a record that %s; further ones are only counted. Let nobody but millrace write "
                "there (see ACLs in docs/how-to/kafka.md)",
                place,
                reason,
            )
