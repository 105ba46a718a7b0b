"""A wrong call of the public API ends in one line, whatever went wrong behind it.

What is likely to be mistaken is checked where it is taken, by value and remedy. This is the last resort for the rest: an error of Python's or polars'
that a wrong argument causes somewhere inside becomes a `DefinitionError` that names the call; the cause stays attached.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from types import UnionType
from typing import Any, TypeVar

from millrace.errors import DefinitionError, MillraceError

T = TypeVar("T")
_SPECIAL = ("__init__", "__or__", "__and__", "__invert__")
_shortener = reprlib.Repr()
_shortener.maxstring = _shortener.maxother = 60


class NoSuchMethod(DefinitionError, AttributeError):
    """A step that exists, but not here."""


class UserCodeExit(RuntimeError):
    """What a user's code raised that is not an ordinary error: `sys.exit()`, or a panic of a Rust library. It must not end what called it."""


def to_ordinary_error(error: BaseException) -> UserCodeExit:
    """The same as an ordinary error."""
    message = str(error).strip().partition("\n")[0]
    ordinary = UserCodeExit(f"{type(error).__name__}: {message}" if message else type(error).__name__)
    for note in getattr(error, "__notes__", []):
        ordinary.add_note(note)
    return ordinary


@contextmanager
def ordinary_errors() -> Iterator[None]:
    """Around a user's code: whatever it raises is an ordinary error. Only the user himself interrupts a run."""
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise to_ordinary_error(error) from error


def describe_error(error: Exception) -> str:
    """What a user's code raised, with its type."""
    return str(error) if isinstance(error, UserCodeExit) else f"{type(error).__name__}: {error}"


def explain_errors(cls: type[T]) -> type[T]:
    """A class whose public methods, when called wrongly, say so in one line."""
    for name, value in list(vars(cls).items()):
        if inspect.isfunction(value) and (not name.startswith("_") or name in _SPECIAL):
            label = cls.__name__ if name == "__init__" else f"{cls.__name__}.{name}"
            setattr(cls, name, explain_call_errors(value, label, skip=1))
    return cls


def explain_errors_of(module: dict[str, Any], *names: str) -> None:
    """The same for functions of a module, given its globals."""
    for name in names:
        module[name] = explain_call_errors(module[name], name)


def explain_call_errors(fn: Callable[..., Any], name: str, skip: int = 0) -> Callable[..., Any]:
    """A function whose errors are of millrace's own, of one line."""

    @wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except MillraceError as error:
            if "\n" in str(error) and isinstance(error, DefinitionError):
                raise DefinitionError(first_line(error)) from error
            raise
        except Exception as error:
            if not _is_usage_error(error):
                raise
            message = first_line(error) or type(error).__name__
            raise DefinitionError(
                f"{name}({_format_arguments(args[skip:], kwargs)}) cannot be understood: {message}"
            ) from error

    return wrapper


def require_type(subject: str, value: object, kind: type | tuple[type, ...] | UnionType, remedy: str) -> None:
    """Refuses an argument of another kind."""
    if not isinstance(value, kind):
        raise DefinitionError(f"{subject}: {short_repr(value)} is not {remedy}")


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuses a value that is not one of the choices."""
    if value not in choices:
        raise DefinitionError(f"{name}={value!r} is unknown; use one of {', '.join(map(repr, choices))}")


def require_names(subject: str, value: object) -> None:
    """Refuses anything but names of jobs."""
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str | bytes)
        or not all(isinstance(name, str) for name in value)
    ):
        raise DefinitionError(f"{subject}: {short_repr(value)} is not a list of names; say ['name']")


def first_line(error: BaseException) -> str:
    """What an error says, without the rest of its report."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else ""


def short_repr(value: object) -> str:
    """A value as text, short, in one line, and whatever its own `repr` does."""
    try:
        return " ".join(_shortener.repr(value).split())
    except Exception:  # noqa: BLE001 - a repr of a user's own may do anything
        return f"a {type(value).__name__}"


def _format_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    return ", ".join(
        [*map(short_repr, args), *(f"{name}={short_repr(value)}" for name, value in kwargs.items())]
    )


def _is_usage_error(error: Exception) -> bool:
    """Whether it is an error that wrong arguments cause; those of the machine (memory, files, warnings) stay what they are."""
    return not isinstance(error, MemoryError | OSError | Warning)
