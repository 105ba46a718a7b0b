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
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


class NoSuchMethod(DefinitionError, AttributeError):
    """A step that exists, but not here."""


class Ended(RuntimeError):
    """What a user's code raised that is not an ordinary error: `sys.exit()`, or a panic of a Rust library. It must not end what called it."""


def ended(error: BaseException) -> Ended:
    """The same as an ordinary error."""
    said = str(error).strip().partition("\n")[0]
    made = Ended(f"{type(error).__name__}: {said}" if said else type(error).__name__)
    for note in getattr(error, "__notes__", []):
        made.add_note(note)
    return made


@contextmanager
def ordinary_errors() -> Iterator[None]:
    """Around a user's code: whatever it raises is an ordinary error. Only the user himself interrupts a run."""
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise ended(error) from error


def told(error: Exception) -> str:
    """What a user's code raised, with its type."""
    return str(error) if isinstance(error, Ended) else f"{type(error).__name__}: {error}"


def clear(cls: type[T]) -> type[T]:
    """A class whose public methods, when called wrongly, say so in one line."""
    for name, value in list(vars(cls).items()):
        if inspect.isfunction(value) and (not name.startswith("_") or name in _SPECIAL):
            shown = cls.__name__ if name == "__init__" else f"{cls.__name__}.{name}"
            setattr(cls, name, clear_call(value, shown, skip=1))
    return cls


def clear_functions(module: dict[str, Any], *names: str) -> None:
    """The same for functions of a module, given its globals."""
    for name in names:
        module[name] = clear_call(module[name], name)


def clear_call(fn: Callable[..., Any], name: str, skip: int = 0) -> Callable[..., Any]:
    """A function whose errors are of millrace's own, of one line."""

    @wraps(fn)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return fn(*args, **named)
        except MillraceError as error:
            if "\n" in str(error) and isinstance(error, DefinitionError):
                raise DefinitionError(one_line(error)) from error
            raise
        except Exception as error:
            if not _caused_here(error):
                raise
            said = one_line(error) or type(error).__name__
            raise DefinitionError(
                f"{name}({_arguments(args[skip:], named)}) cannot be understood: {said}"
            ) from error

    return call


def need(what: str, value: object, kind: type | tuple[type, ...] | UnionType, remedy: str) -> None:
    """Refuses an argument of another kind."""
    if not isinstance(value, kind):
        raise DefinitionError(f"{what}: {shown(value)} is not {remedy}")


def need_names(what: str, value: object) -> None:
    """Refuses anything but names of jobs."""
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str | bytes)
        or not all(isinstance(name, str) for name in value)
    ):
        raise DefinitionError(f"{what}: {shown(value)} is not a list of names; say ['name']")


def one_line(error: BaseException) -> str:
    """What an error says, without the rest of its report."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else ""


def shown(value: object) -> str:
    """A value as text, short, in one line, and whatever its own `repr` does."""
    try:
        return " ".join(_short.repr(value).split())
    except Exception:  # noqa: BLE001 - a repr of a user's own may do anything
        return f"a {type(value).__name__}"


def _arguments(args: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    return ", ".join([*map(shown, args), *(f"{name}={shown(value)}" for name, value in named.items())])


def _caused_here(error: Exception) -> bool:
    """Whether it is an error that wrong arguments cause; those of the machine (memory, files, warnings) stay what they are."""
    return not isinstance(error, MemoryError | OSError | Warning)
