"""How a job is named on the command line: `module:attribute`, `file.py:attribute`, `file.py`, or a built-in job's name."""

import difflib
import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

from millrace.errors import ComponentMissing, DefinitionError, MillraceError
from millrace.stream import Job

BUILT_IN = "millrace.transit.jobs"
"""The package whose modules are the built-in jobs: `vehicle_distribution.py` is `vehicle-distribution`."""


def load(spec: str) -> list[Job]:
    """The job or jobs that `spec` names; a file without an attribute means all jobs in it."""
    place, _, attribute = spec.partition(":")
    if place.endswith(".py"):
        return _of(_from_file(Path(place), spec), attribute, spec)
    if attribute:
        return _of(_imported(place, spec), attribute, spec)
    if place in built_in():
        return _of(_imported(f"{BUILT_IN}.{place.replace('-', '_')}", spec), "", spec)
    close = difflib.get_close_matches(place, built_in(), n=1)
    hint = f"did you mean {close[0]}? Otherwise " if close else ""
    raise DefinitionError(
        f"no job {spec!r}: {hint}name a built-in job ({', '.join(built_in()) or 'none'}), module:attribute or file.py:attribute"
    )


def load_all(specs: list[str]) -> list[Job]:
    """The jobs of several specs; one that is named twice is taken once."""
    found: dict[int, Job] = {id(job): job for spec in specs for job in load(spec)}
    return list(found.values())


def built_in() -> list[str]:
    """The names of the built-in jobs."""
    place = importlib.util.find_spec(BUILT_IN)
    modules = pkgutil.iter_modules(place.submodule_search_locations) if place and place.submodule_search_locations else ()
    return sorted(module.name.replace("_", "-") for module in modules if not module.name.startswith("_"))


def _from_file(path: Path, spec: str) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise DefinitionError(f"no job {spec!r}: there is no file {path}")
    if (known := sys.modules.get(path.stem)) is not None:
        if getattr(known, "__file__", None) != str(path):
            raise DefinitionError(f"job {spec!r}: {path.name} would hide the module {path.stem!r}, which is in use; rename the file")
        return known
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None, "the name ends in .py, so a loader is found"
    assert found.loader is not None
    _look_in(path.parent)
    module = importlib.util.module_from_spec(found)
    sys.modules[path.stem] = module
    try:
        found.loader.exec_module(module)
    except MillraceError:
        del sys.modules[path.stem]
        raise
    except Exception as error:
        del sys.modules[path.stem]
        raise DefinitionError(f"job {spec!r}: {path} fails when loaded: {type(error).__name__}: {error}") from error
    return module


def _imported(name: str, spec: str) -> ModuleType:
    _look_in(Path.cwd())
    try:
        return importlib.import_module(name)
    except MillraceError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise DefinitionError(f"no job {spec!r}: there is no module {error.name!r}; is it spelled right, and installed or in this folder?") from None
        raise ComponentMissing(f"job {spec!r} needs the module {error.name!r}, which is not installed{_extra(error.name)}") from error
    except Exception as error:
        raise DefinitionError(f"job {spec!r}: module {name} fails when loaded: {type(error).__name__}: {error}") from error


def _extra(module: str | None) -> str:
    extras = {"h3": "transit", "h3ronpy": "transit", "pyspark": "spark", "pandas": "spark"}
    return f"; run: pip install 'millrace[{extras[module]}]'" if module in extras else ""


def _look_in(folder: Path) -> None:
    """Programs import their neighbours, as they do when run by `python file.py`."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _of(module: ModuleType, attribute: str, spec: str) -> list[Job]:
    jobs = {name: value for name, value in vars(module).items() if _is_job(value)}
    if not attribute:
        if not jobs:
            raise DefinitionError(f"no job {spec!r}: {module.__name__} defines no millrace.Job at its top level")
        return list({id(job): job for job in jobs.values()}.values())
    value: object = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            known = f"its jobs are {', '.join(jobs)}" if jobs else "it defines no job"
            raise DefinitionError(f"no job {spec!r}: {module.__name__} has no {attribute!r}; {known}")
        value = getattr(value, part)
    if _is_job(value):
        return [value]
    if isinstance(value, list | tuple) and value and all(map(_is_job, value)):
        return list(value)
    raise DefinitionError(f"{spec!r} is a {type(value).__name__}, not a millrace.Job; name a job or a list of jobs")


def _is_job(value: object) -> TypeGuard[Job]:
    return isinstance(value, Job)
