"""Connectors and processors by name: those of millrace, and those that installed packages offer as entry points."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, TypeVar

from millrace.errors import ConfigError
from millrace.ingest.connectors.files import Files, Stdin
from millrace.ingest.connectors.mqtt import Mqtt
from millrace.ingest.connectors.recording import Recording
from millrace.ingest.connectors.simulator import Simulator
from millrace.ingest.contract import Connector, Processor
from millrace.ingest.processors.gtfs_rt import GtfsRt
from millrace.ingest.processors.hsl import Hsl

_Made = TypeVar("_Made")

CONNECTORS: dict[str, Callable[..., Connector]] = {
    "files": Files,
    "mqtt": Mqtt,
    "recording": Recording,
    "simulator": Simulator,
    "stdin": Stdin,
}
PROCESSORS: dict[str, Callable[..., Processor]] = {"gtfs-rt": GtfsRt, "hsl": Hsl}


def connector(name: str, **options: Any) -> Connector:
    """The connector of that name (or entry point in `millrace.connectors`) with its own options, which it checks."""
    return _made("connector", name, CONNECTORS, options)


def processor(name: str, **options: Any) -> Processor:
    """The processor of that name (or entry point in `millrace.processors`)."""
    return _made("processor", name, PROCESSORS, options)


def _made(kind: str, name: str, own: Mapping[str, Callable[..., _Made]], options: dict[str, Any]) -> _Made:
    factory = own.get(name) or _installed(kind, name, own)
    parameters = {p: v for p, v in inspect.signature(factory).parameters.items() if p != "clock"}
    for option in options:
        if option not in parameters and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            raise ConfigError(
                f"{kind} {name!r} has no option {option!r}; {_hint(option, parameters)}it takes {', '.join(parameters) or 'none'}"
            )
    for option, parameter in parameters.items():
        needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        if needed and option not in options:
            raise ConfigError(f"{kind} {name!r} needs the option {option!r}; add {option} = ...")
    return factory(**options)


def _installed(kind: str, name: str, own: Mapping[str, Callable[..., _Made]]) -> Callable[..., _Made]:
    found = {point.name: point for point in metadata.entry_points(group=f"millrace.{kind}s")}
    if name not in found:
        known = sorted({*own, *found})
        raise ConfigError(f"there is no {kind} {name!r}; {_hint(name, known)}there are {', '.join(known)}")
    try:
        factory: Callable[..., _Made] = found[name].load()
    except Exception as error:
        raise ConfigError(f"{kind} {name!r} ({found[name].value}) cannot be loaded: {error}") from error
    return factory


def _hint(word: str, known: Mapping[str, Any] | list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}? " if close else ""
