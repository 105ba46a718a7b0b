"""How far time has come: clocks of partitions, idleness, the low watermark. Pure functions of what the batches said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.engine.lag_estimate import Lags, Stretch, Told, learn
from millrace.watermarks import Percentile

END = 2**62
"""The watermark at the end of a bounded stream: nothing more is expected."""


@dataclass(frozen=True)
class Channel:
    """One partition, as one operator sees it."""

    clock: int | None = None
    floor: int | None = None
    """The low watermark when it last woke up; it is not judged more leniently than that."""
    last_active: int = 0
    idle: bool = False
    mark: int | None = None
    """How far the watermark has come, where the delay is learned."""
    lags: Lags | None = None

    def watermark(self, delay: int) -> int | None:
        """How far this partition vouches; null before its first row."""
        behind = self.mark if self.lags is not None else None if self.clock is None else self.clock - delay
        return _greatest(behind, self.floor)


@dataclass(frozen=True)
class Reach:
    """How far a partition of a topic vouches; null before its first row."""

    topic: str
    partition: int
    watermark: int | None
    idle: bool = False


@dataclass(frozen=True)
class Hold:
    """What holds a watermark back."""

    topic: str
    partition: int
    behind: int | None
    """How much further the watermark would be without this partition, in milliseconds; null: it has brought nothing yet."""


def hold(reaches: Sequence[Reach]) -> Hold | None:
    """The partition without which the watermark would be further; none if all are equally far."""
    awake = [reach for reach in reaches if not reach.idle]
    for reach in awake:
        if reach.watermark is None:
            return Hold(reach.topic, reach.partition, None)
    known = sorted(
        (reach.watermark, reach.topic, reach.partition) for reach in reaches if reach.watermark is not None
    )
    waiting = sorted(
        (reach.watermark, reach.topic, reach.partition) for reach in awake if reach.watermark is not None
    )
    others = waiting[1:2] or known[-1:]
    if not waiting or others[0][0] <= waiting[0][0]:
        return None
    least, topic, partition = waiting[0]
    return Hold(topic, partition, others[0][0] - least)


@dataclass(frozen=True)
class Said:
    """What one batch says of one channel."""

    clock: int | None
    active: bool
    delay: int
    idle_after: int | None
    learning: Percentile | None = None
    """How the delay is learned, and from what, where it is."""
    lags: tuple[Told, ...] = ()


@dataclass(frozen=True)
class Progress:
    """The channels and the low watermark of one operator."""

    channels: dict[str, Channel] = field(default_factory=dict)
    low: int | None = None
    gone: int | None = None
    """Windows that end up to here were dropped, as the lateness was shorter then: no row begins them anew."""
    since: Mapping[str, int] = field(default_factory=dict)
    """Aggregates that were added to windows that had begun, each with the last start of such a window."""

    def wake(self, said: dict[str, Said], now: int) -> Progress:
        """Channels that are new are known from now on; those that bring rows may not be behind the low watermark, as windows are dropped by it.

        They are behind it where they were idle, came later, or have a watermark of another delay than before.
        """
        channels = dict(self.channels)
        for name, words in said.items():
            channel = channels.get(name, Channel(last_active=now))
            if words.active and self.low is not None:
                own = channel.watermark(words.delay)
                if channel.idle or own is None or own < self.low:
                    channel = replace(channel, floor=_greatest(channel.floor, self.low))
            channels[name] = replace(channel, idle=False) if channel.idle and words.active else channel
        return replace(self, channels=channels)

    def stretches(self, name: str, words: Said) -> list[Stretch]:
        """How the rows of a batch are judged, where the delay is learned."""
        channel = self.channels[name]
        assert words.learning is not None
        return learn(words.learning, channel.lags or Lags(), channel.clock, channel.mark, words.lags)[2]

    def move(self, said: dict[str, Said], now: int, *, end: bool) -> Progress:
        """After the rows of a batch: clocks advance, the quiet fall idle, and the low watermark follows."""
        channels = dict(self.channels)
        for name, words in said.items():
            channel = channels[name]
            if words.learning is not None:
                lags, mark, _ = learn(
                    words.learning, channel.lags or Lags(), channel.clock, channel.mark, words.lags
                )
                channel = replace(channel, mark=mark, lags=lags)
            if words.active:
                channel = replace(
                    channel, clock=_greatest(channel.clock, words.clock), last_active=now, idle=False
                )
            elif words.idle_after is not None and now - channel.last_active >= words.idle_after:
                channel = replace(channel, idle=True)
            channels[name] = channel
        if end:
            return replace(self, channels=channels, low=END)
        return replace(self, channels=channels, low=_greatest(self.low, _candidate(channels, said)))

    def reaches(self, said: dict[str, Said]) -> list[Reach]:
        """How far each partition is."""
        found = []
        for name, words in said.items():
            _, topic, partition = name.split("/")
            channel = self.channels[name]
            found.append(Reach(topic, int(partition), channel.watermark(words.delay), channel.idle))
        return found

    def to_json(self) -> Any:
        """As plain values."""
        plain = {"low": self.low, "channels": {n: _channel_json(c) for n, c in self.channels.items()}}
        return (
            plain
            | ({} if self.gone is None else {"gone": self.gone})
            | ({"since": dict(self.since)} if self.since else {})
        )

    @classmethod
    def from_json(cls, said: Any) -> Progress:
        """The progress of `to_json`; none yet if null."""
        if said is None:
            return cls()
        channels = {n: _channel(*c) for n, c in said["channels"].items()}
        return cls(channels, said["low"], said.get("gone"), said.get("since", {}))


def _channel_json(channel: Channel) -> list[Any]:
    plain = [channel.clock, channel.floor, channel.last_active, channel.idle]
    return plain if channel.lags is None else [*plain, channel.mark, channel.lags.to_json()]


def _channel(
    clock: int | None,
    floor: int | None,
    last_active: int,
    idle: bool,
    mark: int | None = None,
    lags: Any = None,
) -> Channel:
    return Channel(clock, floor, last_active, idle, mark, Lags.from_json(lags))


def _candidate(channels: dict[str, Channel], said: dict[str, Said]) -> int | None:
    marks = {name: channels[name].watermark(words.delay) for name, words in said.items()}
    waiting = [marks[name] for name in said if not channels[name].idle]
    if waiting:
        known = [mark for mark in waiting if mark is not None]
        return min(known) if len(known) == len(waiting) else None
    return max((mark for mark in marks.values() if mark is not None), default=None)


def _greatest(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)
