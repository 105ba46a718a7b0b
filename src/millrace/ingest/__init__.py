"""From the outside world to the log: connectors fetch messages, processors understand them, a pipeline writes them."""

from millrace.ingest.contract import Batch, Connector, Event, Processed, Processor, Raw, Reject, Rejected
from millrace.ingest.pipeline import Counts, ingest
from millrace.ingest.registry import connector, processor

__all__ = [
    "Batch",
    "Connector",
    "Counts",
    "Event",
    "Processed",
    "Processor",
    "Raw",
    "Reject",
    "Rejected",
    "connector",
    "ingest",
    "processor",
]
