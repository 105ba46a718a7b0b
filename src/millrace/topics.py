"""Topics: name, event type and key, declared once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal, TypeAlias

import polars as pl

from millrace import durations, panes
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.values import event_types, inferred_types
from millrace.values.calls import explain_errors

Codec: TypeAlias = Literal["binary", "json", "avro"]

SYSTEM_COLUMNS = frozenset({"event_time", "ingestion_time", *panes.COLUMNS})
"""Columns that millrace adds to those of a type. No field may have these names."""

_MAX_PARTITIONS = 1024


class Inferred:
    """Stands for the type of a topic that takes the columns of what is written to it."""


@dataclass
class _Inference:
    """The type that a topic was given by what is written to it."""

    kind: type | None = None


@explain_errors
@dataclass(frozen=True)
class Topic:
    """A named sequence of events of one type, kept in the log."""

    name: str
    type: type = Inferred
    """A protobuf message class or a dataclass; its fields are the columns. Without one, `write` makes it from
    the columns of the stream.
    """
    key: str | None = None
    """The column that determines the partition; without a key, events go to the partitions in turn."""
    _: KW_ONLY
    envelope: bool = True
    """False for a topic that millrace did not write: plain protobuf or JSON of the type,
    with event time in the field `time`.
    """
    time: str | None = None
    codec: Codec = "binary"
    """The encoding of records: protobuf (`binary`), JSON, or, only without an envelope, Avro."""
    avro: str | None = None
    """With codec `avro`: the schema of the records, as JSON."""
    confluent: bool = False
    """Only without an envelope: records begin with the header of Confluent's serializers, which is ignored.
    No schema registry is used.
    """
    partitions: int = 4
    retention: Duration | None = None
    """How long events are kept after they are appended; None: for ever."""
    compact: bool = False
    """A compacted topic: Kafka may keep only the last event of each key.
    An event without a value (a tombstone) deletes its key; jobs ignore it.
    """
    tombstones: bool = False
    """With `compact`: events without a value are rows whose fields are null but for the key, at the time when
    they were appended, and what a job withdraws is written as such.
    """
    replicas: int | None = None
    """How many of Kafka's brokers hold each event; None: as `kafka.replicas` or the brokers say."""
    _inference: _Inference = field(default_factory=_Inference, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuses settings that contradict each other or cannot be stored."""
        check_name(self.name)
        if self.type is not Inferred and not event_types.is_event_type(self.type):
            raise DefinitionError(
                f"topic {self.name!r}: type={self.type!r} is not an event type; give a dataclass, or the "
                "class of a protobuf message"
            )
        if self.codec not in ("binary", "json", "avro"):
            raise DefinitionError(
                f"topic {self.name!r}: codec={self.codec!r} is unknown; use 'binary' or 'json', or 'avro' "
                "for what others wrote"
            )
        self._check_foreign()
        if type(self.partitions) is not int or not 1 <= self.partitions <= _MAX_PARTITIONS:
            raise DefinitionError(
                f"topic {self.name!r}: partitions={self.partitions!r} must be a number from 1 to "
                f"{_MAX_PARTITIONS}"
            )
        if self.retention is not None:
            durations.parse_positive(self.retention, name="retention")
        if self.compact and (self.key is None or self.retention is not None):
            raise DefinitionError(
                f"topic {self.name!r}: compact=True keeps the last event of each key for ever; name the "
                "key, and no retention"
            )
        if self.tombstones and not (self.compact and (self.type is Inferred or len(self.schema) > 1)):
            raise DefinitionError(
                f"topic {self.name!r}: tombstones=True deletes keys; set compact=True, and give the type a "
                "field besides the key"
            )
        if self.replicas is not None and (type(self.replicas) is not int or self.replicas < 1):
            raise DefinitionError(
                f"topic {self.name!r}: replicas={self.replicas!r} must be a number from 1 on"
            )
        if self.type is Inferred:
            if self.is_read_only:
                raise DefinitionError(
                    f"topic {self.name!r} is written by others, so there is no stream to take columns from; "
                    "give the type"
                )
            return
        self._check_fields()
        self._check_time()

    def typed(self) -> Topic:
        """The topic with the type that it was given by what is written to it; itself where it has its own."""
        if self.type is not Inferred:
            return self
        if self._inference.kind is None:
            raise DefinitionError(
                f"topic {self.name!r} has no type, and no job that was defined before writes to it; give the "
                f"type, as in Topic({self.name!r}, Type), or define the job that writes it first"
            )
        return replace(self, type=self._inference.kind)

    def infer_type(self, schema: Mapping[str, pl.DataType]) -> Topic:
        """The topic with a type of these columns."""
        kind = inferred_types.infer_type(self.name, schema)
        if self._inference.kind not in (None, kind):
            earlier = event_types.columns(self._inference.kind)
            raise DefinitionError(
                f"write({self.name}): another stream writes the columns {_describe(earlier)} to this topic, "
                f"and this one {_describe(schema)}; make them alike, or use two topics"
            )
        self._inference.kind = kind
        return replace(self, type=kind)

    @property
    def schema(self) -> pl.Schema:
        """The columns of the type, without the times that every row has."""
        return event_types.columns(self.typed().type)

    @property
    def type_name(self) -> str:
        """The full protobuf name of the type."""
        return event_types.descriptor(self.typed().type).full_name

    @property
    def retention_ms(self) -> int | None:
        """The retention in whole milliseconds."""
        return None if self.retention is None else durations.parse_millis(self.retention)

    @property
    def is_read_only(self) -> bool:
        """Whether other programs write the topic, in a format that millrace does not write."""
        return self.codec == "avro" or self.confluent

    def _check_foreign(self) -> None:
        if self.envelope and self.is_read_only:
            setting = "codec='avro'" if self.codec == "avro" else "confluent=True"
            raise DefinitionError(
                f"topic {self.name!r}: {setting} is for topics that other programs write; set "
                "envelope=False and time="
            )
        if (self.codec == "avro") != (self.avro is not None):
            raise DefinitionError(
                f"topic {self.name!r}: codec='avro' and avro=, the schema of the records, need each other; "
                "give both or none"
            )

    def _check_fields(self) -> None:
        fields = self.schema
        if not fields:
            raise DefinitionError(
                f"topic {self.name!r}: {self.type.__name__} has no fields, so its "
                "events would have no columns"
            )
        for name in fields:
            if name in SYSTEM_COLUMNS or name.startswith("_"):
                raise DefinitionError(
                    f"topic {self.name!r}: {self.type.__name__}.{name} would collide with a column that "
                    "millrace adds; rename the field"
                )
        if self.key is not None and self.key not in fields:
            raise DefinitionError(
                f"topic {self.name!r}: key={self.key!r} is not a field of {self.type.__name__}; it has "
                f"{', '.join(fields)}"
            )
        if self.key is not None and fields[self.key].is_nested():
            raise DefinitionError(
                f"topic {self.name!r}: key={self.key!r} is {fields[self.key]}, but a key must be a single "
                "value; choose another field"
            )

    def _check_time(self) -> None:
        if self.envelope:
            if self.time is not None:
                raise DefinitionError(
                    f"topic {self.name!r}: time={self.time!r} has no effect, as the envelope carries event "
                    "time; set envelope=False"
                )
            return
        if self.time is None:
            raise DefinitionError(
                f"topic {self.name!r}: without an envelope events have no time; name the field that holds "
                "it with time="
            )
        dtype = self.schema.get(self.time)
        if dtype is None:
            raise DefinitionError(
                f"topic {self.name!r}: time={self.time!r} is not a field of {self.type.__name__}; it has "
                f"{', '.join(self.schema)}"
            )
        if not (dtype.is_integer() or isinstance(dtype, pl.Datetime | pl.String)):
            raise DefinitionError(
                f"topic {self.name!r}: time={self.time!r} is {dtype}; it must be whole milliseconds, a "
                "Timestamp, or ISO 8601 text"
            )


def _describe(schema: Mapping[str, pl.DataType]) -> str:
    return ", ".join(f"{name} {dtype}" for name, dtype in schema.items())


def check_name(name: str) -> None:
    """Refuses names that are not valid in a folder, a URL or Kafka."""
    if not name or len(name) > 200 or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in name):
        raise DefinitionError(
            f"topic name {name!r}: use up to 200 letters, digits, '-', '_' and '.', such as 'input.positions'"
        )
