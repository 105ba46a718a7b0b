"""Who has gone quiet, and after how many clicks: state and a timer per user."""

from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

import millrace as mr
from millrace import state, watermarks


@dataclass
class Click:
    """A user clicked."""

    user: str


CLICKS, GONE = mr.Topic("input.clicks", Click, key="user"), mr.Topic("analytics.gone", key="user")


class Quiet(mr.Processor):
    """Counts the clicks of a user, and says how many they were when no other came for half a minute."""

    outputs: ClassVar = {"clicks": pl.Int64}
    clicks = state.value(0, ttl="1h")

    def process(self, row: dict[str, Any], ctx: mr.Context) -> None:
        """One click."""
        self.clicks += 1
        ctx.set_timer("quiet", row["event_time"] + 30_000)

    def on_timer(self, ctx: mr.Context, name: str) -> None:  # noqa: ARG002 - there is one timer
        """No other came."""
        ctx.emit(clicks=self.clicks)
        del self.clicks


gone_quiet = mr.Job(
    "gone-quiet",
    mr.read(CLICKS, watermark=watermarks.bounded("1s")).group_by("user").process(Quiet()).write(GONE),
)
