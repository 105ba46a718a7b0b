"""The end of a stream in a topic: its columns must be the fields of the topic's type, or become them."""

from __future__ import annotations

import polars as pl

from millrace import graph
from millrace.errors import DefinitionError
from millrace.topics import SYSTEM_COLUMNS, Inferred, Topic
from millrace.values import event_types, event_values
from millrace.values.calls import require_type


def build_write(source: graph.Node, topic: Topic | str) -> graph.Write:
    """The node of a topic; refuses columns that its type does not have, lacks, or has in another form."""
    require_type("write", topic, (Topic, str), "a topic; say Topic('name', Type), or its name")
    topic = Topic(topic) if isinstance(topic, str) else topic
    if topic.type is Inferred:
        topic = topic.infer_type(
            {name: dtype for name, dtype in source.schema.items() if name not in SYSTEM_COLUMNS}
        )
    if topic.is_read_only:
        raise DefinitionError(
            f"write({topic.name}): millrace reads Avro and Confluent's header, and writes neither; write "
            "binary or json"
        )
    _check_names(source.schema, topic)
    for name, field_type in topic.schema.items():
        _check_type(topic, name, source.schema[name], field_type)
    return graph.Write((source,), source.schema, topic)


def _check_names(schema: pl.Schema, topic: Topic) -> None:
    missing = [column for column in topic.schema if column not in schema]
    extra = sorted({column for column in schema if column not in SYSTEM_COLUMNS} - set(topic.schema))
    if missing or extra:
        difference = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(extra)} besides"
        raise DefinitionError(
            f"write({topic.name}): the stream {difference}; {topic.type.__name__} has "
            f"{', '.join(topic.schema)}. Use select() to name the columns alike"
        )


def _check_type(topic: Topic, name: str, column_type: pl.DataType, field_type: pl.DataType) -> None:
    if column_type == pl.Null:
        if event_values.is_required(event_types.descriptor(topic.type).fields_by_name[name]):
            raise DefinitionError(
                f"write({topic.name}): {name} is always null, and the field must have a value; declare it "
                "optional (`... | None`), or fill it"
            )
    elif column_type.is_float() and isinstance(field_type, pl.Decimal):
        raise DefinitionError(
            f"write({topic.name}): {name} is {column_type}, and the field is {field_type}, which holds no "
            f"floats exactly; round it: pl.col({name!r}).cast(pl.{field_type!r})"
        )
    elif column_type.is_nested() != field_type.is_nested() and pl.Object not in (column_type, field_type):
        raise DefinitionError(
            f"write({topic.name}): {name} is {column_type}, and the field is {field_type}; convert it before"
        )
