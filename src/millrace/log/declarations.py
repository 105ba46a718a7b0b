"""Compares a topic as declared with the topic that exists."""

from typing import Literal

from millrace.errors import TopicMismatch

TopicFormat = tuple[Literal["binary", "json", "avro", "raw"], str, str, bool]
"""Codec, type, the fields of the type, and whether there is an envelope."""
RAW_FORMAT: TopicFormat = ("raw", "", "", False)
"""Bytes without a type, such as dead letters."""
_REMEDY = "declare it as it is, or use another name"


def check_declaration(
    name: str, wanted: tuple[int, str, str, str, bool], known: tuple[int, str, str, str, bool]
) -> None:
    """Refuses differences, but for fields added at the end. Both tuples begin with the partitions."""
    for aspect, declared, existing in zip(
        ("partitions", "codec", "type", "fields", "envelope"), wanted, known, strict=True
    ):
        is_extended = aspect == "fields" and (
            str(declared).startswith(str(existing)) or str(existing).startswith(str(declared))
        )
        if declared != existing and not is_extended:
            remedy = (
                "append new fields at the end, and keep the others as they are"
                if aspect == "fields"
                else _REMEDY
            )
            raise TopicMismatch(
                f"topic {name!r} exists with {aspect} {existing!r}, but is declared with "
                f"{declared!r}; {remedy}"
            )
