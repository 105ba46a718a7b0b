"""How a job or a view is named on the command line: `module:attribute`, `file.py:attribute`, and for jobs `file.py` or a built-in one's name."""

import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, TypeGuard

from millrace.errors import ComponentMissing, DefinitionError, MillraceError
from millrace.stream import Job
from millrace.values.calls import Ended, ordinary_errors, told
from millrace.views import View

BUILT_IN = "millrace.transit.jobs:BUILT_IN"
"""The table of built-in jobs: names, and functions that make them."""

NONE: Mapping[str, Any] = MappingProxyType({})

_EXTRAS = {"h3": "transit", "h3ronpy": "transit", "pyspark": "spark", "pandas": "spark"}


Parameters = Mapping[str, Mapping[str, Any]]
"""What `[jobs.NAME]` says, by name."""


def load(spec: str, parameters: Parameters = NONE) -> list[Job]:
    """The job or jobs that `spec` names. An attribute may be a job, a list of jobs, or a function that makes either; a file alone means all jobs in it.

    `parameters` are for functions that make a job: those under the name by which it is asked for.
    """
    place, _, attribute = spec.partition(":")
    if attribute:
        return _jobs(resolve(spec), spec, parameters.get(spec, NONE))
    return (
        _all_in(_from_file(Path(place), spec), spec)
        if place.endswith(".py")
        else _built_in(spec, parameters.get(spec, NONE))
    )


def resolve(spec: str) -> object:
    """What stands at `module:attribute` or `file.py:attribute`."""
    place, _, attribute = spec.partition(":")
    if not attribute:
        raise DefinitionError(f"{spec!r} names no attribute; write module:attribute or file.py:attribute")
    module = _from_file(Path(place), spec) if place.endswith(".py") else _imported(place, spec)
    value: object = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            jobs = [name for name, there in vars(module).items() if _is_job(there)]
            known = f"its jobs are {', '.join(jobs)}" if jobs else "it defines no job"
            raise DefinitionError(f"{spec!r}: {module.__name__} has no {attribute!r}; {known}")
        value = getattr(value, part)
    return value


def load_all(specs: Sequence[str], parameters: Parameters = NONE) -> list[Job]:
    """The jobs of several specs; one that is named twice is taken once."""
    found = {id(job): job for spec in dict.fromkeys(specs) for job in load(spec, parameters)}
    return list(found.values())


def load_views(specs: Sequence[str]) -> list[View]:
    """The views at several places, each a view or a list of them; one that is named twice is taken once."""
    found: dict[int, View] = {}
    for spec in dict.fromkeys(specs):
        value = resolve(spec)
        views = list(value) if isinstance(value, list | tuple) else [value]
        for view in views:
            if not isinstance(view, View):
                raise DefinitionError(
                    f"{spec!r} is {value!r}, not a millrace.views.View; name a view or a list of views"
                )
            found[id(view)] = view
    return list(found.values())


def _built_in(spec: str, said: Mapping[str, Any]) -> list[Job]:
    module, _, table = BUILT_IN.partition(":")
    known = getattr(_imported(module, spec), table)
    if spec in known:
        return _jobs(known[spec], spec, said)
    close = difflib.get_close_matches(spec, known, n=1)
    hint = f"did you mean {close[0]}? Otherwise " if close else ""
    raise DefinitionError(
        f"no job {spec!r}: {hint}name a built-in job ({', '.join(known)}), module:attribute or file.py:attribute"
    )


def _from_file(path: Path, spec: str) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise DefinitionError(f"{spec!r}: there is no file {path}")
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) != str(path):
        raise DefinitionError(
            f"{spec!r}: {path.name} would hide the module {path.stem!r}, which is in use; rename the file"
        )
    _look_in(path.parent)
    return _imported(path.stem, spec)


def _imported(name: str, spec: str) -> ModuleType:
    _look_in(Path.cwd())
    try:
        with ordinary_errors():
            return importlib.import_module(name)
    except MillraceError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise DefinitionError(
                f"{spec!r}: there is no module {error.name!r}; is it spelled right, and installed or in this folder?"
            ) from None
        extra = f"; run: pip install 'millrace[{_EXTRAS[error.name]}]'" if error.name in _EXTRAS else ""
        raise ComponentMissing(
            f"{spec!r} needs the module {error.name!r}, which is not installed{extra}"
        ) from error
    except Exception as error:
        raise DefinitionError(f"{spec!r}: {name} fails when loaded: {told(error)}") from error


def _look_in(folder: Path) -> None:
    """Programs import their neighbours, as they do when run by `python file.py`; so do workers, which get this path too."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _all_in(module: ModuleType, spec: str) -> list[Job]:
    jobs = list({id(value): value for value in vars(module).values() if _is_job(value)}.values())
    if not jobs:
        raise DefinitionError(f"{spec!r}: {module.__name__} defines no millrace.Job at its top level")
    return jobs


def _jobs(value: object, spec: str, said: Mapping[str, Any]) -> list[Job]:
    """A job, a list of them, or what a function makes of the parameters."""
    if callable(value) and not isinstance(value, type):
        value = _called(value, spec, said)
    elif said:
        raise DefinitionError(
            f"[jobs.{spec}] names {', '.join(said)}, but {spec!r} is no function that takes parameters"
        )
    if _is_job(value):
        return [value]
    if isinstance(value, list | tuple) and value and all(map(_is_job, value)):
        return list(value)
    raise DefinitionError(
        f"{spec!r} is {value!r}, not a millrace.Job; name a job, a list of jobs or a function that makes them"
    )


def _called(make: Callable[..., object], spec: str, said: Mapping[str, Any]) -> object:
    taken = inspect.signature(make).parameters
    for name in said:
        if name not in taken and not any(one.kind is one.VAR_KEYWORD for one in taken.values()):
            close = difflib.get_close_matches(name, taken, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise DefinitionError(
                f"[jobs.{spec}]: there is no parameter {name!r}; {hint}it takes {', '.join(taken) or 'none'}"
            )
    try:
        with ordinary_errors():
            return make(**said)
    except TypeError as error:
        refused = f"does not take {dict(said)}" if said else "cannot be called without arguments"
        raise DefinitionError(f"{spec!r}: the function {refused}: {error}") from error
    except Ended as error:
        raise DefinitionError(
            f"{spec!r}: the function ends the process instead of giving a job ({error})"
        ) from error


def _is_job(value: object) -> TypeGuard[Job]:
    return isinstance(value, Job)
