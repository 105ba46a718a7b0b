"""The trigger of transcripts that stands for one of a user's own: the values of events decide."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from millrace import state
from millrace.testing.transcripts.words import TranscriptError, check_keys, parse_integer, to_text
from millrace.triggers import CONTINUE, FINISH, FIRE, TriggerContext, TriggerFn, TriggerResult

_KEYS = ("count", "fire", "finish", "timer", "alarm")


class ValuesDecide(TriggerFn):
    """Asks for a pane after so many events, at events of some values, and at the times that others set."""

    count = state.value(0)
    times: state.ListState[int] = state.list()
    clock_times: state.ListState[int] = state.list()

    def __init__(self, spec: Mapping[str, Any]) -> None:
        """`spec`: as in the transcript."""
        self.spec = spec

    def on_element(self, row: dict[str, Any], ctx: TriggerContext) -> TriggerResult:
        """The value of an event may fire, finish and set timers; and it counts."""
        value = json.loads(row["value"]) if isinstance(row["value"], str) else row["value"]
        for key, at in self.spec.get("timer", {}).items():
            if key == value:
                ctx.set_timer(at)
                self.times.append(at)
        for key, at in self.spec.get("alarm", {}).items():
            if key == value:
                ctx.set_timer(at, time="processing")
                self.clock_times.append(at)
        self.count += 1
        if "finish" in self.spec and self.spec["finish"] == value:
            return FINISH
        return FIRE if "fire" in self.spec and self.spec["fire"] == value else self._by_count()

    def on_event_time(self, time: int, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002 - it asks always
        """Asks for a pane."""
        return FIRE

    def on_processing_time(self, time: int, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002 - it asks always
        """Asks for a pane."""
        return FIRE

    def on_merge(self, parts: Sequence[Mapping[str, Any]], ctx: TriggerContext) -> TriggerResult:
        """Counts are added, and all timers set again that are still to come."""
        for part in parts:
            self.count += part["count"]
            for at in part["times"]:
                if ctx.watermark is None or at > ctx.watermark:
                    ctx.set_timer(at)
                    self.times.append(at)
            for at in part["clock_times"]:
                if at > ctx.now:
                    ctx.set_timer(at, time="processing")
                    self.clock_times.append(at)
        return self._by_count()

    def on_fire(self, ctx: TriggerContext) -> None:  # noqa: ARG002 - whenever it is
        """It counts anew."""
        self.count = 0

    def _by_count(self) -> TriggerResult:
        return FIRE if self.count >= self.spec.get("count", self.count + 1) else CONTINUE


def parse_own_trigger(spec: Any) -> ValuesDecide:
    """`own: {...}` of a transcript."""
    if not isinstance(spec, dict) or not spec:
        raise TranscriptError(f"`own: {to_text(spec)}` needs a map with some of {', '.join(_KEYS)}")
    check_keys(spec, _KEYS, "own")
    for key in ("timer", "alarm"):
        if not isinstance(spec.get(key, {}), dict):
            raise TranscriptError(
                f"`{key}: {to_text(spec[key])}` needs a map of values to times, such as {{1: 10}}"
            )
        for at in spec.get(key, {}).values():
            parse_integer(at, key)
    if "count" in spec:
        parse_integer(spec["count"], "count", least=1)
    return ValuesDecide(spec)
