"""Errors of transcripts, and values as text."""

import json
from collections.abc import Mapping
from typing import Any

from millrace.errors import MillraceError
from millrace.patterns.sql import require_sqlglot


class TranscriptError(MillraceError, ValueError):
    """A transcript cannot be parsed."""


class Unavailable(MillraceError):
    """A transcript needs what this version does not have."""


def to_text(value: Any) -> str:
    """A value on one line, as a transcript writes it."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def to_canonical_text(value: Any) -> str:
    """A value as text, equal for equal values: 1 and 1.0 are the same."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list):
        return f"[{', '.join(map(to_canonical_text, value))}]"
    if isinstance(value, dict):
        fields = (f"{_quote(key)}: {to_canonical_text(value[key])}" for key in sorted(value, key=str))
        return f"{{{', '.join(fields)}}}"
    return json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)


def _quote(key: Any) -> str:
    return json.dumps(str(key), ensure_ascii=False)


def parse_integer(value: Any, key: str, *, least: int | None = None) -> int:
    """A whole number under a key."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TranscriptError(f"`{key}: {to_text(value)}` is not a whole number")
    if least is not None and value < least:
        raise TranscriptError(f"`{key}: {value}` is less than {least}")
    return value


def check_keys(document: Mapping[Any, Any], keys: tuple[str, ...], where: str) -> None:
    """Refuses keys that do not exist."""
    for key in document:
        if key not in keys:
            raise TranscriptError(f"unknown key `{key}` in {where}; there are {', '.join(keys)}")


def is_row_transcript(document: Any) -> bool:
    """Whether a document is about row patterns; raises an error if the SQL parser is not installed."""
    is_row_pattern = isinstance(document, dict) and any(
        key in document for key in ("table", "match_recognize", "query")
    )
    if is_row_pattern:
        require_sqlglot()
    return is_row_pattern
