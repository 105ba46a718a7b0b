"""How a job or a view is named on the command line: `module:attribute`, `file.py:attribute`, and for jobs
`file.py` or a built-in one's name.
"""

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
from millrace.topics import Topic
from millrace.values.calls import UserCodeExit, describe_error, ordinary_errors
from millrace.values.user_code import describe_failure
from millrace.views import View

BUILT_IN = "millrace.transit.jobs:BUILT_IN"
"""The table of built-in jobs: names, and functions that make them."""

NO_PARAMETERS: Mapping[str, Any] = MappingProxyType({})

_EXTRAS = {"h3": "transit", "h3ronpy": "transit", "pyspark": "spark", "pandas": "spark"}


JobParameters = Mapping[str, Mapping[str, Any]]
"""What `[jobs.NAME]` says, by name."""


def load_jobs(spec: str, parameters: JobParameters = NO_PARAMETERS) -> list[Job]:
    """The job or jobs that `spec` names. An attribute may be a job, a list of jobs, or a function that makes
    either; a file alone means all jobs in it.

    `parameters` are for functions that make a job: those under the name by which it is asked for.
    """
    location, _, attribute = spec.partition(":")
    if attribute:
        return _as_jobs(resolve(spec), spec, parameters.get(spec, NO_PARAMETERS))
    return (
        _jobs_of_module(_import_file(Path(location), spec), spec)
        if location.endswith(".py")
        else _load_built_in(spec, parameters.get(spec, NO_PARAMETERS))
    )


def resolve(spec: str) -> object:
    """What stands at `module:attribute` or `file.py:attribute`."""
    location, _, attribute = spec.partition(":")
    if not attribute:
        raise DefinitionError(f"{spec!r} names no attribute; write module:attribute or file.py:attribute")
    module = (
        _import_file(Path(location), spec) if location.endswith(".py") else _import_module(location, spec)
    )
    value: object = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise DefinitionError(
                f"{spec!r}: {module.__name__} has no {attribute!r}{_list_names(module, attribute)}"
            )
        value = getattr(value, part)
    return value


def _list_names(module: ModuleType, wanted: str) -> str:
    """The name that may be meant, and what a module defines that a command can use."""
    members = vars(module).items()
    close = difflib.get_close_matches(wanted, [name for name, _ in members if not name.startswith("_")], n=1)
    kinds = {
        "jobs": [name for name, member in members if _is_job(member)],
        "topics": [name for name, member in members if isinstance(member, Topic)],
        "views": [name for name, member in members if isinstance(member, View)],
    }
    known = "; ".join(f"its {kind} are {', '.join(names)}" for kind, names in kinds.items() if names)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"{hint}; {known or 'it defines no job, topic or view'}"


def load_all_jobs(specs: Sequence[str], parameters: JobParameters = NO_PARAMETERS) -> list[Job]:
    """The jobs of several specs; one that is named twice is taken once."""
    found = {id(job): job for spec in dict.fromkeys(specs) for job in load_jobs(spec, parameters)}
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


def _load_built_in(spec: str, parameters: Mapping[str, Any]) -> list[Job]:
    module, _, table = BUILT_IN.partition(":")
    known = getattr(_import_module(module, spec), table)
    if spec in known:
        return _as_jobs(known[spec], spec, parameters)
    close = difflib.get_close_matches(spec, known, n=1)
    hint = f"did you mean {close[0]}? Otherwise " if close else ""
    raise DefinitionError(
        f"no job {spec!r}: {hint}name a built-in job ({', '.join(known)}), module:attribute or "
        "file.py:attribute"
    )


def _import_file(path: Path, spec: str) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise DefinitionError(f"{spec!r}: there is no file {path}; check the path")
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) != str(path):
        raise DefinitionError(
            f"{spec!r}: {path.name} would hide the module {path.stem!r}, which is in use; rename the file"
        )
    _add_to_path(path.parent)
    return _import_module(path.stem, spec)


def _import_module(name: str, spec: str) -> ModuleType:
    _add_to_path(Path.cwd())
    try:
        with ordinary_errors():
            return importlib.import_module(name)
    except MillraceError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise DefinitionError(
                f"{spec!r}: there is no module {error.name!r}; is it spelled right, and "
                "installed or in this folder?"
            ) from None
        extra = _EXTRAS.get(error.name or "")
        remedy = f"run: pip install 'millrace-streams[{extra}]'" if extra else "install it"
        raise ComponentMissing(
            f"{spec!r} needs the module {error.name!r}, which is not installed; {remedy}"
        ) from error
    except Exception as error:
        raised = f"{describe_error(error)}{describe_failure(error)}"
        raise DefinitionError(
            f"{spec!r}: {name} fails when loaded: {raised}; --debug shows the traceback"
        ) from error


def _add_to_path(folder: Path) -> None:
    """Programs import their neighbours, as they do when run by `python file.py`;
    so do workers, which get this path too.
    """
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _jobs_of_module(module: ModuleType, spec: str) -> list[Job]:
    jobs = list({id(value): value for value in vars(module).values() if _is_job(value)}.values())
    if not jobs:
        raise DefinitionError(
            f"{spec!r}: {module.__name__} defines no millrace.Job at its top level; give one a name there"
        )
    return jobs


def _as_jobs(value: object, spec: str, parameters: Mapping[str, Any]) -> list[Job]:
    """A job, a list of them, or what a function makes of the parameters."""
    if callable(value) and not isinstance(value, type):
        value = _call_factory(value, spec, parameters)
    elif parameters:
        raise DefinitionError(
            f"[jobs.{spec}] names {', '.join(parameters)}, but {spec!r} is not a "
            "function that takes parameters"
        )
    if _is_job(value):
        return [value]
    if isinstance(value, list | tuple) and value and all(map(_is_job, value)):
        return list(value)
    raise DefinitionError(
        f"{spec!r} is {value!r}, not a millrace.Job; name a job, a list of jobs or a function that makes them"
    )


def _call_factory(make: Callable[..., object], spec: str, parameters: Mapping[str, Any]) -> object:
    accepted = inspect.signature(make).parameters
    for name in parameters:
        if name not in accepted and not any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()
        ):
            close = difflib.get_close_matches(name, accepted, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise DefinitionError(
                f"[jobs.{spec}]: there is no parameter {name!r}; {hint}it takes "
                f"{', '.join(accepted) or 'none'}"
            )
    try:
        with ordinary_errors():
            return make(**parameters)
    except TypeError as error:
        problem = f"does not take {dict(parameters)}" if parameters else "cannot be called without arguments"
        raise DefinitionError(f"{spec!r}: the function {problem}: {error}") from error
    except UserCodeExit as error:
        raise DefinitionError(
            f"{spec!r}: the function ends the process instead of giving a job ({error})"
        ) from error


def _is_job(value: object) -> TypeGuard[Job]:
    return isinstance(value, Job)
