"""When panes fire: what can be said, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from millrace import triggers
from millrace.errors import DefinitionError
from millrace.triggers import Trigger

COUNT, DELAY = triggers.after_count(3), triggers.after_delay("5s")
WRITTEN: list[tuple[Trigger, str]] = [
    (triggers.at_watermark(), "at_watermark()"),
    (triggers.at_watermark(late=triggers.never()), "at_watermark(late=never())"),
    (triggers.at_watermark(early=COUNT, late=DELAY), "at_watermark(early=after_count(3), late=after_delay('5s'))"),
    (triggers.every("1s"), "every('1s')"),
    (triggers.every_event_time("1m"), "every_event_time('1m')"),
    (triggers.repeatedly(triggers.any_of(COUNT, DELAY)), "repeatedly(any_of(after_count(3), after_delay('5s')))"),
    (triggers.all_of(COUNT, triggers.at_end()), "all_of(after_count(3), at_end())"),
    (triggers.in_order(COUNT, triggers.at_clock()), "in_order(after_count(3), at_clock())"),
    (triggers.every("1s").until(COUNT), "every('1s').until(after_count(3))"),
]


def test_only_a_trigger_without_late_panes_fires_once() -> None:
    assert triggers.at_watermark(late=triggers.never()).once
    assert not triggers.at_watermark().once
    assert not triggers.at_watermark(early=triggers.never()).once


def test_triggers_compare_by_value() -> None:
    assert triggers.at_watermark(late=triggers.never()) == triggers.at_watermark(late=triggers.never())
    assert triggers.at_watermark(late=triggers.never()) != triggers.at_watermark()
    assert triggers.at_watermark(early=triggers.never()) == triggers.at_watermark()
    assert triggers.any_of(COUNT, DELAY) != triggers.any_of(DELAY, COUNT)


@pytest.mark.parametrize(("trigger", "text"), WRITTEN, ids=[text for _, text in WRITTEN])
def test_triggers_read_as_they_are_written(trigger: Trigger, text: str) -> None:
    assert str(trigger) == text


@pytest.mark.parametrize(
    ("trigger", "finishes"),
    [
        (COUNT, True),
        (triggers.every("1s"), False),
        (triggers.repeatedly(COUNT), False),
        (triggers.any_of(COUNT, triggers.every("1s")), True),
        (triggers.all_of(COUNT, triggers.every("1s")), False),
        (triggers.in_order(COUNT, triggers.repeatedly(COUNT)), False),
        (triggers.every("1s").until(COUNT), True),
        (triggers.at_watermark(early=COUNT), False),
    ],
    ids=str,
)
def test_it_is_known_whether_a_trigger_can_finish(trigger: Trigger, finishes: bool) -> None:
    assert trigger.finishes is finishes


def test_a_trigger_waits_for_the_clock_if_anything_in_it_does() -> None:
    assert triggers.at_watermark(early=triggers.repeatedly(triggers.any_of(COUNT, DELAY))).waits_for_clock
    assert not triggers.at_watermark(early=triggers.every_event_time("1s")).waits_for_clock


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: triggers.after_count(0), "n=0"),
        (lambda: triggers.after_count(1.5), "n=1.5"),  # type: ignore[arg-type]  # a user's mistake
        (lambda: triggers.every("0s"), "period='0s'"),
        (lambda: triggers.after_delay("-1s"), "delay='-1s'"),
        (lambda: triggers.any_of(), "any_of"),
        (lambda: triggers.at_watermark(early=3), "early=3"),  # type: ignore[arg-type]  # a user's mistake
        (lambda: triggers.repeatedly("often"), "trigger='often'"),  # type: ignore[arg-type]  # a user's mistake
        (lambda: COUNT.until(7), "until=7"),  # type: ignore[arg-type]  # a user's mistake
    ],
)
def test_what_is_impossible_is_named(make: Callable[[], Any], named: str) -> None:
    with pytest.raises(DefinitionError, match=named):
        make()
