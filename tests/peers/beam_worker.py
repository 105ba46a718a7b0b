"""Runs trigger cases on Apache Beam's own trigger driver: a case as a line of JSON in, its panes as a line of
JSON out.

Started by `test_beam_triggers.py` with the interpreter of an environment that has apache-beam. One tick is
one second of Beam's.
"""

import json
import logging
import sys
from typing import Any

from apache_beam.transforms import trigger, window  # type: ignore[import-not-found]  # in an environment of its own
from apache_beam.transforms.core import Windowing  # type: ignore[import-not-found]  # in an environment of its own
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP  # type: ignore[import-not-found]  # in an environment of its own
from apache_beam.utils.windowed_value import PaneInfoTiming, WindowedValue  # type: ignore[import-not-found]  # in an environment of its own

logging.disable(logging.WARNING)
TIMINGS = {PaneInfoTiming.EARLY: "early", PaneInfoTiming.ON_TIME: "on_time", PaneInfoTiming.LATE: "late"}
ACCUMULATION = {"value": trigger.AccumulationMode.ACCUMULATING, "delta": trigger.AccumulationMode.DISCARDING}
SEVERAL = {
    "any": trigger.AfterAny,
    "all": trigger.AfterAll,
    "each": trigger.AfterEach,
    "or_finally": trigger.OrFinally,
}


def trigger_from(spec: Any) -> Any:
    """The trigger that a transcript's words name."""
    if spec == "default":
        return trigger.DefaultTrigger()
    if spec == "watermark":
        return trigger.AfterWatermark()
    [(kind, inner)] = spec.items()
    if kind == "watermark":
        return trigger.AfterWatermark(**{name: trigger_from(part) for name, part in inner.items()})
    if kind == "count":
        return trigger.AfterCount(inner)
    if kind == "repeat":
        return trigger.Repeatedly(trigger_from(inner))
    return SEVERAL[kind](*map(trigger_from, inner))


def window_from(spec: Any) -> Any:
    """The window function that a transcript's words name."""
    [(kind, inner)] = spec.items()
    if kind == "fixed":
        return window.FixedWindows(inner)
    if kind == "sliding":
        return window.SlidingWindows(inner["size"], inner["every"])
    return window.Sessions(inner + 0.5)


class Driver:
    """One case: the trigger driver, its state and the watermark."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.windows = window_from(case["window"])
        windowing = Windowing(
            self.windows,
            trigger_from(case["trigger"]),
            ACCUMULATION[case["output"]],
            window.TimestampCombiner.OUTPUT_AT_EOW,
            case["lateness"],
        )
        self.driver = trigger.GeneralTriggerDriver(windowing, None)
        self.state = trigger.InMemoryUnmergedState()
        self.watermark: Any = MIN_TIMESTAMP
        self.panes: list[dict[str, Any]] = []

    def step(self, step: dict[str, Any]) -> list[dict[str, Any]]:
        """The panes of one step."""
        self.panes = []
        if "events" in step:
            bundle = [
                WindowedValue(t, t, self.windows.assign(window.WindowFn.AssignContext(t, t)))
                for t in step["events"]
            ]
            self._note(self.driver.process_elements(self.state, bundle, self.watermark, self.watermark))
        else:
            self.watermark = MAX_TIMESTAMP if step["watermark"] == "end" else step["watermark"] + 0.75
        self._fire_timers()
        return self.panes

    def _fire_timers(self) -> None:
        while due := self.state.get_and_clear_timers(self.watermark):
            for of_window, (name, domain, at, _) in due:
                self._note(self.driver.process_timer(of_window, name, domain, at, self.state, self.watermark))

    def _note(self, results: Any) -> None:
        for result in results:
            [of] = result.windows
            info = result.pane_info
            self.panes.append(
                {
                    "window": [int(of.start), int(of.end)],
                    "values": sorted(result.value),
                    "timing": TIMINGS[info.timing],
                    "index": info.index,
                    "settled_index": info.nonspeculative_index,
                    "finished": bool(info.is_last),
                }
            )


def answer(case: dict[str, Any]) -> Any:
    """The panes of each step, or what Beam raised."""
    try:
        driver = Driver(case)
        return [driver.step(step) for step in case["steps"]]
    except Exception as error:  # noqa: BLE001 - the caller decides whether it expected this
        return {"error": f"{type(error).__name__}: {error}"}


for line in sys.stdin:
    sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
    sys.stdout.flush()
