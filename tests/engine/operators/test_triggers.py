"""Triggers on columns: each window is asked as the state machine is."""

import json
from typing import Any

import polars as pl

from millrace import triggers
from millrace.engine import trigger_state
from millrace.engine.operators.triggers import TriggerColumns

EARLY = triggers.at_watermark(early=triggers.after_count(2))


def cells(*states: Any) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "_trigger": [json.dumps(state, separators=(",", ":")) for state in states],
            "_end": [10] * len(states),
        }
    ).with_columns(_asked=pl.lit(value=True), _closed=pl.lit(value=False))


def test_rows_are_counted_in_each_window() -> None:
    windows = pl.DataFrame(
        {"_states": [[], ["[false,1]"]], "_came": [2, 1], "_was_passed": [False, False], "_base": [0, 0]},
        schema_overrides={"_states": pl.List(pl.String)},
    )
    added = TriggerColumns(EARLY).add_rows(windows, (0, 0), pl.DataFrame(), merges=False)
    assert added["_trigger"].to_list() == ["[false,2]", "[false,2]"]


def test_windows_fire_when_their_trigger_is_ready_and_go_on_from_the_state_after() -> None:
    fired = TriggerColumns(EARLY).fire(cells([False, 2], [False, 1]), watermark=5, clock=0)
    assert fired["_fires"].to_list() == [True, False]
    assert [json.loads(state) for state in fired["_trigger"]] == [[False, 0], [False, 1]]
    assert not fired["_closed"].any()


def test_a_window_that_is_not_asked_does_not_fire() -> None:
    unasked = cells([False, 2]).with_columns(_asked=pl.lit(value=False))
    assert TriggerColumns(EARLY).fire(unasked, watermark=20, clock=0)["_fires"].to_list() == [False]


def test_a_window_is_looked_at_again_at_the_first_time_that_its_trigger_waits_for() -> None:
    trigger = triggers.at_watermark(early=triggers.every(7))
    state = trigger_state.add_rows(
        trigger, trigger_state.initial_state(trigger), trigger_state.NewRows(1, 3, 0)
    )
    scheduled = TriggerColumns(trigger).schedule(cells(state), watermark=0, clock=3)
    assert scheduled.select("_due", "_tick").row(0) == (10, 7)
