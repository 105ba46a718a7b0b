"""How transcripts are read and spoken of: errors, numbers, and values as text."""

import json
from collections.abc import Mapping
from typing import Any

from millrace.errors import MillraceError
from millrace.patterns.sql import need_sqlglot


class Wrong(MillraceError, ValueError):
    """A transcript that says something impossible."""


class Unavailable(MillraceError):
    """A transcript that asks for what this version does not have."""


def text(thing: Any) -> str:
    """Anything, as it would stand in a transcript on one line."""
    return thing if isinstance(thing, str) else json.dumps(thing, default=str, ensure_ascii=False)


def plain(value: Any) -> str:
    """A value as text that is equal for equal values, be a whole number written 1 or 1.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list):
        return f"[{', '.join(map(plain, value))}]"
    return json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)


def number(said: Any, key: str, *, least: int | None = None) -> int:
    """A whole number under a key."""
    if isinstance(said, bool) or not isinstance(said, int):
        raise Wrong(f"`{key}: {text(said)}` is no whole number")
    if least is not None and said < least:
        raise Wrong(f"`{key}: {said}` is less than {least}")
    return said


def known(said: Mapping[Any, Any], keys: tuple[str, ...], where: str) -> None:
    """Refuses keys that do not exist."""
    for key in said:
        if key not in keys:
            raise Wrong(f"unknown key `{key}` in {where}; there are {', '.join(keys)}")


def is_row_transcript(document: Any) -> bool:
    """Whether a document is about row patterns; where the parser of SQL is missing, that is said."""
    found = isinstance(document, dict) and any(
        key in document for key in ("table", "match_recognize", "query")
    )
    if found:
        need_sqlglot()
    return found
