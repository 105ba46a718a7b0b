"""Makes recordings of a broker: each message is a line, acknowledged when the file has it."""

import base64
import gzip
import os
from pathlib import Path
from typing import IO, Any

import msgspec

from millrace import durations
from millrace.durations import Duration
from millrace.errors import InputError
from millrace.ingest.clock import Clock, WallClock
from millrace.ingest.contract import Connector, MessageBatch, RawMessage
from millrace.ingest.pipeline import BATCH_LIMIT, IngestCounts, StopSignal
from millrace.ingest.progress import IngestProgress

_POLL_WAIT = 500
"""Milliseconds for which messages are gathered before they are written."""
_validate_json = msgspec.json.Decoder(msgspec.Raw).decode
_encode_json = msgspec.json.Encoder().encode


def record(
    connector: Connector,
    path: Path,
    *,
    stop: StopSignal,
    progress: IngestProgress,
    duration: Duration | None = None,
    messages: int | None = None,
    clock: Clock | None = None,
) -> IngestCounts:
    """Records until `stop` is requested, or for this duration or number of messages. The file must be new."""
    clock, counts = clock or WallClock(), IngestCounts()
    deadline = None if duration is None else clock.now() + durations.parse_positive(duration, name="duration")
    with _create_file(path) as file, connector:
        compressed = gzip.GzipFile(fileobj=file, mode="wb", mtime=0) if path.suffix == ".gz" else None
        while (
            not stop.is_requested
            and (deadline is None or clock.now() < deadline)
            and (messages is None or counts.received < messages)
        ):
            batch = connector.poll(
                limit=BATCH_LIMIT if messages is None else min(BATCH_LIMIT, messages - counts.received),
                wait=_POLL_WAIT,
            )
            if batch is None:
                break
            if len(batch):
                _write_batch(batch, file, compressed)
                connector.acknowledge(batch)
                counts.received += len(batch)
                counts.written[path.name] += len(batch)
            counts.recovered_errors = connector.recovered_errors()
            progress.update(counts)
        if compressed is not None:
            compressed.close()
    return counts


def _create_file(path: Path) -> IO[bytes]:
    try:
        return path.open("xb")
    except FileExistsError as error:
        raise InputError(
            f"{path} exists already, and a recording does not replace a file; name another, or remove it"
        ) from error
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error


def _write_batch(batch: MessageBatch, file: IO[bytes], compressed: gzip.GzipFile | None) -> None:
    """When it returns, the lines are on disk and readable, even if the process dies next."""
    lines = b"".join(encode_line(raw) for raw in batch)
    if compressed is None:
        file.write(lines)
    else:
        compressed.write(lines)
        compressed.flush()
    file.flush()
    os.fsync(file.fileno())


def encode_line(raw: RawMessage) -> bytes:
    """A line that `Recording` turns back into the same bytes: JSON as it is, other text as text, other bytes
    as base64.
    """
    fields: dict[str, Any] = {"received": raw.received, "topic": raw.topic}
    if _is_embeddable_json(raw.payload):
        fields["payload"] = msgspec.Raw(raw.payload)
    else:
        try:
            fields["payload"] = raw.payload.decode()
        except UnicodeDecodeError:
            fields.update(payload=base64.b64encode(raw.payload).decode(), encoding="base64")
    return _encode_json(fields) + b"\n"


def _is_embeddable_json(payload: bytes) -> bool:
    """Whether the payload can be part of a line as it is: a JSON object or list on one line, without space
    around it.
    """
    if (
        payload[:1] not in (b"{", b"[")
        or payload[-1:] not in (b"}", b"]")
        or b"\n" in payload
        or b"\r" in payload
    ):
        return False
    try:
        _validate_json(payload)
        payload.decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return True
