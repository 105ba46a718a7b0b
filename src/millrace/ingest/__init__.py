"""From the outside world to the log: connectors fetch messages, processors understand them, a pipeline writes
them.
"""

from millrace.ingest.contract import (
    Connector,
    Event,
    MessageBatch,
    MessageProcessor,
    MessageRejected,
    ProcessedBatch,
    RawMessage,
    Reject,
)
from millrace.ingest.pipeline import IngestCounts, ingest
from millrace.ingest.registry import connector, processor

__all__ = [
    "Connector",
    "Event",
    "IngestCounts",
    "MessageBatch",
    "MessageProcessor",
    "MessageRejected",
    "ProcessedBatch",
    "RawMessage",
    "Reject",
    "connector",
    "ingest",
    "processor",
]
