"""What moves between tasks: frames as Arrow bytes, bundled with the progress that rides along."""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

COMPRESS_FROM_BYTES = 1 << 16
"""From so many bytes on, compressing a frame costs less than carrying it through the JVM."""


def encode_frame(frame: pl.DataFrame) -> bytes:
    """A frame as Arrow IPC stream bytes."""
    buffer = io.BytesIO()
    large = frame.estimated_size() >= COMPRESS_FROM_BYTES
    frame.rechunk().write_ipc_stream(
        buffer, compression="lz4" if large else "uncompressed", compat_level=pl.CompatLevel.newest()
    )
    return buffer.getvalue()


def decode_frame(data: bytes) -> pl.DataFrame:
    """The frame of `dump`."""
    return pl.read_ipc_stream(io.BytesIO(data))


@dataclass(frozen=True)
class Block:
    """Rows on their way to an operator or to the end of the query."""

    target: str
    """An operator's id, or `out/TOPIC`, `late/JOB`, `dead`."""
    kind: str
    """What the rows are: `rows`, `partials`, `changes`, or whatever the end expects."""
    channel: str
    """Where they come from, for those who judge rows by their source."""
    data: bytes

    @classmethod
    def of(cls, target: str, kind: str, frame: pl.DataFrame, *, channel: str = "") -> "Block":
        """A block of a frame's rows."""
        return cls(target, kind, channel, encode_frame(frame))

    @property
    def frame(self) -> pl.DataFrame:
        """The rows."""
        return decode_frame(self.data)


@dataclass(frozen=True)
class SourcePartition:
    """What one batch says about one partition of a topic."""

    topic: str
    partition: int
    has_rows: bool
    clocks: Mapping[str, int | None]
    """For each clock that reads it, how far it came in this batch (null: no row said anything)."""
    lags: Sequence[Any] = ()
    """Where a delay is learned, what its rows say of their lags: `learning.Told`."""
    idle_after_if_empty: int | None = None
    """Of a partition that has never held a record: after how many milliseconds it no longer counts, where no `idle` is given."""


@dataclass
class Body:
    """The contents of a packet: the batch's clock, progress, and blocks."""

    now: int
    at_end: bool = False
    sources: list[SourcePartition] = field(default_factory=list)
    low_watermarks: dict[str, int | None] = field(default_factory=dict)
    """The low watermark of each operator passed so far."""
    partition_watermarks: dict[str, list[Any]] = field(default_factory=dict)
    """How far the partitions are that the operators over rows read: `progress.Reach`. One slot says it for all."""
    counts: dict[str, int] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)

    def encode(self) -> bytes:
        """As bytes: a JSON header behind its length, then the blocks' data."""
        header: dict[str, Any] = {
            "now": self.now,
            "end": self.at_end,
            "sources": [
                [
                    source.topic,
                    source.partition,
                    source.has_rows,
                    dict(source.clocks),
                    list(source.lags),
                    source.idle_after_if_empty,
                ]
                for source in self.sources
            ],
            "lows": self.low_watermarks,
            "reaches": self.partition_watermarks,
            "counts": self.counts,
            "blocks": [[block.target, block.kind, block.channel, len(block.data)] for block in self.blocks],
        }
        head = json.dumps(header, separators=(",", ":")).encode()
        return b"".join([len(head).to_bytes(4, "little"), head, *(block.data for block in self.blocks)])

    @classmethod
    def decode(cls, data: bytes) -> "Body":
        """The body of `encode`."""
        at = 4 + int.from_bytes(data[:4], "little")
        header = json.loads(data[4:at])
        blocks = []
        for target, kind, channel, length in header["blocks"]:
            blocks.append(Block(target, kind, channel, data[at : at + length]))
            at += length
        sources = [SourcePartition(*source) for source in header["sources"]]
        return cls(
            header["now"], header["end"], sources, header["lows"], header["reaches"], header["counts"], blocks
        )


@dataclass(frozen=True)
class Packet:
    """A body addressed to a slot: what Spark shuffles."""

    slot: int
    body: bytes


def merge_bodies(bodies: Iterable[bytes]) -> Body:
    """All bodies that reached one slot in one batch, as one. A low watermark is the least that anyone says; null says: not yet."""
    merged: Body | None = None
    for body in map(Body.decode, bodies):
        if merged is None:
            merged = body
            continue
        merged.now = max(merged.now, body.now)
        merged.at_end = merged.at_end or body.at_end
        merged.sources += body.sources
        merged.blocks += body.blocks
        merged.partition_watermarks |= body.partition_watermarks
        for operator, watermark in body.low_watermarks.items():
            known = merged.low_watermarks.get(operator, watermark)
            merged.low_watermarks[operator] = (
                None if watermark is None or known is None else min(watermark, known)
            )
        for name, count in body.counts.items():
            merged.counts[name] = merged.counts.get(name, 0) + count
    if merged is None:
        raise ValueError(
            "a batch without a single packet: the source sends one to every slot, whatever it has read"
        )
    return merged
