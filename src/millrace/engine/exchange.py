"""What moves between tasks: packets of blocks, with the progress that rides along.

Within a process a packet is passed as it is, and its blocks hold frames. Bytes are made only where a process
ends: `Body.encode` before Spark carries a packet to another process, `Body.decode` behind that.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import polars as pl

from millrace.engine.lag_estimate import LagReport
from millrace.engine.progress import PartitionWatermark

COMPRESS_FROM_BYTES = 1 << 16
"""Frames of at least this size are compressed: that costs less than carrying them through the JVM."""


def encode_frame(frame: pl.DataFrame) -> bytes:
    """A frame as Arrow IPC stream bytes."""
    buffer = io.BytesIO()
    large = frame.estimated_size() >= COMPRESS_FROM_BYTES
    frame.rechunk().write_ipc_stream(
        buffer, compression="lz4" if large else "uncompressed", compat_level=pl.CompatLevel.newest()
    )
    return buffer.getvalue()


def decode_frame(data: bytes) -> pl.DataFrame:
    """The frame of `encode_frame`."""
    return pl.read_ipc_stream(io.BytesIO(data))


class Block:
    """Rows on their way to an operator or to the end of the query.

    A block that was made in this process holds a frame. A block from another process holds bytes: it is
    decoded once, on first use, so a block that a stage only passes on is never decoded, and leaves as the
    bytes that it came as.
    """

    __slots__ = ("_rows", "channel", "kind", "target")

    def __init__(self, target: str, kind: str, channel: str, rows: pl.DataFrame | bytes) -> None:
        """Addresses rows.

        `target`: an operator's id, or `out/TOPIC`, `late/OPERATOR`, `failed/JOB`, `dead`.
        `kind`: `rows`, `partials`, `changes`, or a word that only the end of the query reads.
        `channel`: the edge and the topic that the rows come from, as `EDGE/TOPIC`.
        """
        self.target, self.kind, self.channel, self._rows = target, kind, channel, rows

    @classmethod
    def of(cls, target: str, kind: str, frame: pl.DataFrame, *, channel: str = "") -> Block:
        """A block of a frame's rows."""
        return cls(target, kind, channel, frame)

    def with_frame(self, frame: pl.DataFrame) -> Block:
        """The same address with other rows."""
        return Block(self.target, self.kind, self.channel, frame)

    @property
    def frame(self) -> pl.DataFrame:
        """The rows."""
        if isinstance(self._rows, bytes):
            self._rows = decode_frame(self._rows)
        return self._rows

    def encode(self) -> bytes:
        """The rows as bytes: those that came from another process, unless they were decoded here."""
        return self._rows if isinstance(self._rows, bytes) else encode_frame(self._rows)


@dataclass(frozen=True)
class SourcePartition:
    """What one batch reports about one partition of a topic."""

    topic: str
    partition: int
    has_rows: bool
    clocks: Mapping[str, int | None]
    """For each clock that reads it, the largest time in this batch; None if no row has one."""
    lags: Mapping[str, Sequence[LagReport]] = field(default_factory=dict)
    """The lags of its rows by clock, where a delay is learned from them.
    Clocks differ in the rows they set aside.
    """
    idle_after_if_empty: int | None = None
    """For a partition that has never held a record: the milliseconds after which it counts as idle."""
    is_ended: bool = False
    """Whether no row follows, as its topic has ended."""


@dataclass
class Body:
    """The contents of a packet: the batch's clock, progress, and blocks."""

    now: int
    sources: list[SourcePartition] = field(default_factory=list)
    low_watermarks: dict[str, int | None] = field(default_factory=dict)
    """The low watermark of each operator passed so far."""
    idle_operators: frozenset[str] = frozenset()
    """Those among them whose inputs are all idle: nobody waits for them."""
    partition_watermarks: dict[str, list[PartitionWatermark]] = field(default_factory=dict)
    """The watermarks of the partitions that each operator over rows reads. One slot reports them for all."""
    counts: dict[str, int] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)

    @property
    def ended_topics(self) -> frozenset[str]:
        """The topics of which no row follows."""
        return frozenset(source.topic for source in self.sources if source.is_ended)

    def encode(self) -> bytes:
        """A JSON header behind its length, then the bytes of the blocks."""
        encoded = [block.encode() for block in self.blocks]
        header: dict[str, Any] = {
            "now": self.now,
            "sources": [
                [
                    s.topic,
                    s.partition,
                    s.has_rows,
                    dict(s.clocks),
                    dict(s.lags),
                    s.idle_after_if_empty,
                    s.is_ended,
                ]
                for s in self.sources
            ],
            "lows": self.low_watermarks,
            "idle": sorted(self.idle_operators),
            "partitions": {id: [*map(astuple, marks)] for id, marks in self.partition_watermarks.items()},
            "counts": self.counts,
            "blocks": [
                [block.target, block.kind, block.channel, len(data)]
                for block, data in zip(self.blocks, encoded, strict=True)
            ],
        }
        head = json.dumps(header, separators=(",", ":")).encode()
        return b"".join([len(head).to_bytes(4, "little"), head, *encoded])

    @classmethod
    def decode(cls, data: bytes) -> Body:
        """The body of `encode`. Its blocks stay bytes until they are used."""
        at = 4 + int.from_bytes(data[:4], "little")
        header = json.loads(data[4:at])
        body = cls(
            header["now"],
            low_watermarks=header["lows"],
            idle_operators=frozenset(header["idle"]),
            counts=header["counts"],
        )
        for topic, partition, has_rows, clocks, lags, *rest in header["sources"]:
            reports = {clock: [LagReport(*lag) for lag in some] for clock, some in lags.items()}
            body.sources.append(SourcePartition(topic, partition, has_rows, clocks, reports, *rest))
        for operator, marks in header["partitions"].items():
            body.partition_watermarks[operator] = [PartitionWatermark(*mark) for mark in marks]
        for target, kind, channel, length in header["blocks"]:
            body.blocks.append(Block(target, kind, channel, data[at : at + length]))
            at += length
        return body


@dataclass(frozen=True)
class Packet:
    """A body addressed to a slot."""

    slot: int
    body: Body


def merge_bodies(bodies: Iterable[Body]) -> Body:
    """All bodies that reached one slot in one batch, as a new one.

    A low watermark is the minimum of those that the bodies carry; None, "not yet", is less than any. An
    operator is idle if it is so in all slots.
    """
    received = list(bodies)
    if not received:
        raise ValueError(
            "a batch without a single packet: the source sends one to every slot, whatever it has read"
        )
    merged = Body(max(body.now for body in received))
    merged.idle_operators = frozenset.intersection(*(body.idle_operators for body in received))
    for body in received:
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
    return merged
