"""Runs several connectors, each in a thread of its own. They stop together."""

from collections.abc import Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TextIO

from millrace.config import IngestSettings
from millrace.errors import ConfigError
from millrace.ingest import registry
from millrace.ingest.connectors.copies import Copies
from millrace.ingest.contract import Connector, EventPassthrough, MessageProcessor
from millrace.ingest.pipeline import IngestCounts, StopSignal, ingest
from millrace.ingest.progress import IngestProgress
from millrace.log import Log


def ingest_all(
    sources: Mapping[str, IngestSettings], log: Log, *, out: TextIO, stop: StopSignal
) -> dict[str, IngestCounts]:
    """Runs until all connectors end, or `stop` is requested. All are created before any starts; one that
    fails stops the others.
    """
    if not sources:
        raise ConfigError(
            "there is nothing to ingest: add a section [ingest.NAME] with connector and processor to "
            "millrace.toml, "
            "or name a source: millrace ingest mqtt URL, recording FILE, files FILE, stdin or simulator"
        )
    pipelines = {name: _create_pipeline(name, source) for name, source in sources.items()}
    with ThreadPoolExecutor(len(pipelines), thread_name_prefix="ingest") as pool:
        progress = {name: IngestProgress(name, out, alone=len(pipelines) == 1) for name in pipelines}
        futures = {
            name: pool.submit(_run_pipeline, *pipeline, log, progress[name], stop)
            for name, pipeline in pipelines.items()
        }
        wait(futures.values(), return_when=FIRST_EXCEPTION)
        if any(future.done() and future.exception() for future in futures.values()):
            stop.request()
        return {name: future.result() for name, future in futures.items()}


def _create_pipeline(name: str, source: IngestSettings) -> tuple[Connector, MessageProcessor]:
    try:
        connector = registry.connector(source.connector, **source.options)
        return _add_copies(source, connector, _create_processor(source, connector))
    except ConfigError as error:
        raise ConfigError(f"[ingest.{name}]: {error}") from error


def _add_copies(
    source: IngestSettings, connector: Connector, processor: MessageProcessor
) -> tuple[Connector, MessageProcessor]:
    if source.copies == 1:
        return connector, processor
    if connector.topics:
        raise ConfigError(
            f"copies = {source.copies}: connector {source.connector!r} makes events itself, and those are "
            "not copied"
        )
    copies = Copies(connector, processor, copies=source.copies, spread=source.spread)
    return copies, EventPassthrough(copies.topics)


def _create_processor(source: IngestSettings, connector: Connector) -> MessageProcessor:
    if not source.processor:
        if connector.topics:
            return EventPassthrough(connector.topics)
        raise ConfigError(
            f"connector {source.connector!r} brings messages that need a processor to understand them; add "
            "processor = ..."
        )
    if connector.topics:
        raise ConfigError(
            f"processor = {source.processor!r} has nothing to do: connector {source.connector!r} makes "
            "events itself; leave processor out"
        )
    return registry.processor(source.processor)


def _run_pipeline(
    connector: Connector, processor: MessageProcessor, log: Log, progress: IngestProgress, stop: StopSignal
) -> IngestCounts:
    counts = ingest(connector, processor, log, stop=stop, report=progress.update)
    progress.finish(counts, stopped=stop.is_requested)
    return counts
