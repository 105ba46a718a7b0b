"""Recordings are made from a broker: each message as a line, acknowledged when the file has it."""

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
from millrace.ingest.contract import Batch, Connector, Raw
from millrace.ingest.pipeline import LIMIT, Counts, Stop
from millrace.ingest.progress import Progress

_WAIT = 500
"""How long messages are gathered before they are written, in milliseconds."""
_check = msgspec.json.Decoder(msgspec.Raw).decode
_encode = msgspec.json.Encoder().encode


def record(
    connector: Connector,
    path: Path,
    *,
    stop: Stop,
    progress: Progress,
    duration: Duration | None = None,
    messages: int | None = None,
    clock: Clock | None = None,
) -> Counts:
    """Until `stop` is asked for, this much time has passed, or there are as many messages; the file must be new."""
    clock, counts = clock or WallClock(), Counts()
    until = None if duration is None else clock.now() + durations.positive(duration, name="duration")
    with _new(path) as file, connector:
        out = gzip.GzipFile(fileobj=file, mode="wb", mtime=0) if path.suffix == ".gz" else None
        while (
            not stop.asked
            and (until is None or clock.now() < until)
            and (messages is None or counts.received < messages)
        ):
            batch = connector.poll(
                limit=LIMIT if messages is None else min(LIMIT, messages - counts.received), wait=_WAIT
            )
            if batch is None:
                break
            if len(batch):
                _write(batch, file, out)
                connector.acknowledge(batch)
                counts.received += len(batch)
                counts.written[path.name] += len(batch)
            counts.troubles = connector.troubles()
            progress.update(counts)
        if out is not None:
            out.close()
    return counts


def _new(path: Path) -> IO[bytes]:
    try:
        return path.open("xb")
    except FileExistsError as error:
        raise InputError(
            f"{path} is there already, and a recording replaces none; name another file, or remove it"
        ) from error
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error


def _write(batch: Batch, file: IO[bytes], packed: gzip.GzipFile | None) -> None:
    """When it returns the lines are on disk, and can be read even if nothing follows."""
    lines = b"".join(line(raw) for raw in batch)
    if packed is None:
        file.write(lines)
    else:
        packed.write(lines)
        packed.flush()
    file.flush()
    os.fsync(file.fileno())


def line(raw: Raw) -> bytes:
    """A message as `Recording` reads it back, byte for byte: JSON as it is, other text as text, other bytes as base64."""
    said: dict[str, Any] = {"received": raw.received, "topic": raw.topic}
    if _is_object(raw.payload):
        said["payload"] = msgspec.Raw(raw.payload)
    else:
        try:
            said["payload"] = raw.payload.decode()
        except UnicodeDecodeError:
            said.update(payload=base64.b64encode(raw.payload).decode(), encoding="base64")
    return _encode(said) + b"\n"


def _is_object(payload: bytes) -> bool:
    """Whether it can stand in a line as it is: a JSON object or list in one line, with no space around it."""
    if (
        payload[:1] not in (b"{", b"[")
        or payload[-1:] not in (b"}", b"]")
        or b"\n" in payload
        or b"\r" in payload
    ):
        return False
    try:
        _check(payload)
        payload.decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return True
