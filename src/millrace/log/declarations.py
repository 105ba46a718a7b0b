"""A topic as it is declared against the topic as it exists."""

from millrace.errors import TopicMismatch

Kind = tuple[str, str, str, bool]
"""Codec, type, the fields of the type, and whether there is an envelope."""
RAW: Kind = ("raw", "", "", False)
"""Bytes without a type, such as dead letters."""
_REMEDY = "declare it as it is, or use another name"


def check(name: str, wanted: tuple[int, str, str, str, bool], known: tuple[int, str, str, str, bool]) -> None:
    """Refuses what differs, but for fields that were added at the end. Both begin with the number of partitions."""
    for what, said, there in zip(
        ("partitions", "codec", "type", "fields", "envelope"), wanted, known, strict=True
    ):
        grown = what == "fields" and (str(said).startswith(str(there)) or str(there).startswith(str(said)))
        if said != there and not grown:
            remedy = (
                "append new fields at the end, and keep the others as they are"
                if what == "fields"
                else _REMEDY
            )
            raise TopicMismatch(
                f"topic {name!r} exists with {what} {there!r}, but is declared with {said!r}; {remedy}"
            )
