"""Several connectors at once, each in a thread of its own; they stop together."""

from collections.abc import Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TextIO

from millrace.config import IngestSettings
from millrace.errors import ConfigError
from millrace.ingest import registry
from millrace.ingest.connectors.copies import Copies
from millrace.ingest.contract import Connector, Processor, Ready
from millrace.ingest.pipeline import Counts, Stop, ingest
from millrace.ingest.progress import Progress
from millrace.log import Log


def ingest_all(
    sources: Mapping[str, IngestSettings], log: Log, *, out: TextIO, stop: Stop
) -> dict[str, Counts]:
    """Until every connector ends, or `stop` is asked for; one that fails stops the others. All are made before any starts."""
    if not sources:
        raise ConfigError(
            "there is nothing to ingest: add a section [ingest.NAME] with connector and processor to millrace.toml, or say --recording FILE, --mqtt URL or --simulator"
        )
    made = {name: _made(name, source) for name, source in sources.items()}
    with ThreadPoolExecutor(len(made), thread_name_prefix="ingest") as pool:
        progress = {name: Progress(name, out, alone=len(made) == 1) for name in made}
        running = {name: pool.submit(_one, *pair, log, progress[name], stop) for name, pair in made.items()}
        wait(running.values(), return_when=FIRST_EXCEPTION)
        if any(future.done() and future.exception() for future in running.values()):
            stop.ask()
        return {name: future.result() for name, future in running.items()}


def _made(name: str, source: IngestSettings) -> tuple[Connector, Processor]:
    try:
        connector = registry.connector(source.connector, **source.options)
        return _copied(source, connector, _processor(source, connector))
    except ConfigError as error:
        raise ConfigError(f"[ingest.{name}]: {error}") from error


def _copied(
    source: IngestSettings, connector: Connector, processor: Processor
) -> tuple[Connector, Processor]:
    if source.copies == 1:
        return connector, processor
    if connector.topics:
        raise ConfigError(
            f"copies = {source.copies}: connector {source.connector!r} makes events itself, and those are not copied"
        )
    copied = Copies(connector, processor, copies=source.copies, spread=source.spread)
    return copied, Ready(copied.topics)


def _processor(source: IngestSettings, connector: Connector) -> Processor:
    if not source.processor:
        if connector.topics:
            return Ready(connector.topics)
        raise ConfigError(
            f"connector {source.connector!r} brings messages that need a processor to understand them; add processor = ..."
        )
    if connector.topics:
        raise ConfigError(
            f"processor = {source.processor!r} has nothing to do: connector {source.connector!r} makes events itself; leave processor out"
        )
    return registry.processor(source.processor)


def _one(connector: Connector, processor: Processor, log: Log, progress: Progress, stop: Stop) -> Counts:
    counts = ingest(connector, processor, log, stop=stop, report=progress.update)
    progress.done(counts, stopped=stop.asked)
    return counts
