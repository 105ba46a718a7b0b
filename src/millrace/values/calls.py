"""Errors of wrong calls of the public API: one line each, whatever failed inside.

Likely mistakes are checked where the argument is used, with value and remedy. This module is the last resort
for the rest: an error of Python or polars that a wrong argument causes somewhere inside becomes a
`DefinitionError` that names the call, with the error as its cause.
"""

from __future__ import annotations

import difflib
import inspect
import re
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
    """A method that exists, but not on this class."""


class UserCodeExit(RuntimeError):
    """Stands for a BaseException of user code, such as `sys.exit()` or a panic of a Rust library,
    which must not end the caller.
    """


def to_ordinary_error(error: BaseException) -> UserCodeExit:
    """The error as an ordinary exception."""
    message = str(error).strip().partition("\n")[0]
    ordinary = UserCodeExit(f"{type(error).__name__}: {message}" if message else type(error).__name__)
    for note in getattr(error, "__notes__", []):
        ordinary.add_note(note)
    return ordinary


@contextmanager
def ordinary_errors() -> Iterator[None]:
    """Surrounds user code: what it raises becomes an ordinary error,
    except KeyboardInterrupt, which the user causes.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise to_ordinary_error(error) from error


def describe_error(error: Exception) -> str:
    """The text of an error of user code, with its type."""
    return str(error) if isinstance(error, UserCodeExit) else f"{type(error).__name__}: {error}"


def explain_errors(cls: type[T]) -> type[T]:
    """Class decorator: wrong calls of public methods raise errors of one line."""
    for name, value in list(vars(cls).items()):
        if inspect.isfunction(value) and (not name.startswith("_") or name in _SPECIAL):
            label = cls.__name__ if name == "__init__" else f"{cls.__name__}.{name}"
            setattr(cls, name, explain_call_errors(value, label, skip=1))
    return cls


def explain_errors_of(module: dict[str, Any], *names: str) -> None:
    """The same for functions of a module, named in its globals."""
    for name in names:
        module[name] = explain_call_errors(module[name], name)


def explain_call_errors(fn: Callable[..., Any], name: str, skip: int = 0) -> Callable[..., Any]:
    """The function, with errors of one line; `skip` arguments, such as self, are not shown."""

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
            message = f"{first_line(error) or type(error).__name__}{_suggest_argument(fn, error)}"
            raise DefinitionError(
                f"{name}({_format_arguments(args[skip:], kwargs)}) cannot be understood: {message}"
            ) from error

    return wrapper


def _suggest_argument(fn: Callable[..., Any], error: Exception) -> str:
    """The name that is meant by a keyword argument that does not exist."""
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if unknown is None:
        return ""
    known = [name for name in inspect.signature(fn).parameters if name != "self"]
    close = difflib.get_close_matches(unknown[1], known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; it takes {', '.join(known)}"


def require_type(subject: str, value: object, kind: type | tuple[type, ...] | UnionType, remedy: str) -> None:
    """Refuses an argument of another type."""
    if not isinstance(value, kind):
        raise DefinitionError(f"{subject}: {short_repr(value)} is not {remedy}")


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuses a value that is not one of the choices."""
    if value not in choices:
        raise DefinitionError(f"{name}={value!r} is unknown; use one of {', '.join(map(repr, choices))}")


def require_names(subject: str, value: object) -> None:
    """Refuses all but a list of names."""
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str | bytes)
        or not all(isinstance(name, str) for name in value)
    ):
        raise DefinitionError(f"{subject}: {short_repr(value)} is not a list of names; write ['name']")


def first_line(error: BaseException) -> str:
    """The first line of the text of an error that is not empty."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else ""


def short_repr(value: object) -> str:
    """A short text of a value in one line, even if its `repr` raises."""
    try:
        return " ".join(_shortener.repr(value).split())
    except Exception:  # noqa: BLE001 - a repr of a user's own may do anything
        return f"a {type(value).__name__}"


def _format_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    return ", ".join(
        [*map(short_repr, args), *(f"{name}={short_repr(value)}" for name, value in kwargs.items())]
    )


def _is_usage_error(error: Exception) -> bool:
    """Whether it is an error that wrong arguments cause; those of the machine (memory, files,
    warnings) stay what they are.
    """
    return not isinstance(error, MemoryError | OSError | Warning)
