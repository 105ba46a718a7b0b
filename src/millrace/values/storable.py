"""Values that state may hold: those that come back from storage as they were."""

from __future__ import annotations

from typing import TypeVar

from millrace.errors import DefinitionError

T = TypeVar("T")
STORABLE_TYPES = "text, numbers, booleans, bytes, None, and lists and dicts of them"


def check_storable(value: T, name: str) -> T:
    """A copy of a value that comes back from storage as it was; refuses others."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, list):
        return [check_storable(item, name) for item in value]  # type: ignore[return-value]  # as above
    if isinstance(value, dict):
        return {check_storable(key, name): check_storable(item, name) for key, item in value.items()}  # type: ignore[return-value]  # as above
    raise DefinitionError(
        f"{name}: {value!r} is {type(value).__name__}, which would not come back from storage as it was; "
        f"keep {STORABLE_TYPES}"
    )


def copy_storable(value: T) -> T:
    """The same value, of which nothing that can be changed is shared."""
    if isinstance(value, list):
        return [copy_storable(item) for item in value]  # type: ignore[return-value]  # a list as it was
    if isinstance(value, dict):
        return {key: copy_storable(item) for key, item in value.items()}  # type: ignore[return-value]  # as above
    return value
