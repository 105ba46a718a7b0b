"""Connectors and processors by name: those of millrace, and entry points of installed packages."""

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
from millrace.ingest.contract import Connector, MessageProcessor
from millrace.ingest.processors.gtfs_rt import GtfsRt
from millrace.ingest.processors.hsl import Hsl

_Component = TypeVar("_Component")

CONNECTORS: dict[str, Callable[..., Connector]] = {
    "files": Files,
    "mqtt": Mqtt,
    "recording": Recording,
    "simulator": Simulator,
    "stdin": Stdin,
}
PROCESSORS: dict[str, Callable[..., MessageProcessor]] = {"gtfs-rt": GtfsRt, "hsl": Hsl}


def connector(name: str, **options: Any) -> Connector:
    """Creates the connector of this name (or entry point in `millrace.connectors`), which checks its
    options.
    """
    return _create("connector", name, CONNECTORS, options)


def processor(name: str, **options: Any) -> MessageProcessor:
    """Creates the processor of this name (or entry point in `millrace.processors`)."""
    return _create("processor", name, PROCESSORS, options)


def _create(
    kind: str, name: str, built_in: Mapping[str, Callable[..., _Component]], options: dict[str, Any]
) -> _Component:
    factory = built_in.get(name) or _load_entry_point(kind, name, built_in)
    parameters = {p: v for p, v in inspect.signature(factory).parameters.items() if p != "clock"}
    for option in options:
        if option not in parameters and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            raise ConfigError(
                f"{kind} {name!r} has no option {option!r}; {_suggest(option, parameters)}it takes "
                f"{', '.join(parameters) or 'none'}"
            )
    for option, parameter in parameters.items():
        is_required = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        if is_required and option not in options:
            raise ConfigError(f"{kind} {name!r} needs the option {option!r}; add {option} = ...")
    return factory(**options)


def _load_entry_point(
    kind: str, name: str, built_in: Mapping[str, Callable[..., _Component]]
) -> Callable[..., _Component]:
    entry_points = {point.name: point for point in metadata.entry_points(group=f"millrace.{kind}s")}
    if name not in entry_points:
        known = sorted({*built_in, *entry_points})
        raise ConfigError(f"there is no {kind} {name!r}; {_suggest(name, known)}there are {', '.join(known)}")
    try:
        factory: Callable[..., _Component] = entry_points[name].load()
    except Exception as error:
        raise ConfigError(
            f"{kind} {name!r} ({entry_points[name].value}) cannot be loaded: {error}"
        ) from error
    return factory


def _suggest(word: str, known: Mapping[str, Any] | list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}? " if close else ""
