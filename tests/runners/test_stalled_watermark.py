"""A run says which partition holds a watermark back that does not move."""

import logging

import pytest

from millrace.engine.progress import WatermarkHold
from millrace.runners import BatchReport
from millrace.runners.stalled_watermark import WARN_AFTER, StalledWatermarkMonitor

HELD = {"totals/aggregation-1": WatermarkHold("input.rides", 2, 12_000)}


class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def batch(watermark: int | None, holds: dict[str, WatermarkHold]) -> BatchReport:
    return BatchReport({"read": 1}, {"totals/aggregation-1": watermark}, holds)


def test_a_watermark_that_stands_still_is_said_once_with_who_holds_it_and_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    standstill = StalledWatermarkMonitor(clock)
    for clock.now in range(int(WARN_AFTER) + 20):
        standstill.update(batch(1_000, HELD))
    [message] = warnings(caplog)
    assert message.startswith(
        "the watermark of totals/aggregation-1 has not moved for 30s: input.rides[2] is 12s behind the others"
    )
    assert "idle='10s'" in message


def test_a_partition_that_has_brought_nothing_is_named(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    standstill = StalledWatermarkMonitor(clock)
    for clock.now in (0.0, WARN_AFTER):
        standstill.update(batch(None, {"totals/aggregation-1": WatermarkHold("input.rides", 3, None)}))
    [message] = warnings(caplog)
    assert "input.rides[3] has brought no event yet" in message


def test_a_topic_for_which_no_run_has_vouched_is_named(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    standstill = StalledWatermarkMonitor(clock, followed_topics=frozenset({"analytics.large"}))
    for clock.now in (0.0, WARN_AFTER):
        standstill.update(batch(None, {"totals/aggregation-1": WatermarkHold("analytics.large", 0, None)}))
    [message] = warnings(caplog)
    assert "no run has vouched for analytics.large yet" in message
    assert "another watermark, such as bounded('5s')" in message


def test_a_watermark_that_moves_is_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    standstill = StalledWatermarkMonitor(clock)
    for clock.now in range(200):
        standstill.update(batch(int(clock.now) * 100, HELD))
    for clock.now in range(200, 400):
        standstill.update(batch(19_900, {}))
    assert warnings(caplog) == []


def test_a_second_standstill_is_said_too(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    standstill = StalledWatermarkMonitor(clock)
    for clock.now in range(100):
        standstill.update(batch(1_000 if clock.now < 50 else 2_000, HELD))
    assert len(warnings(caplog)) == 2


def test_a_run_that_ends_without_a_result_says_what_its_windows_wait_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    standstill = StalledWatermarkMonitor(Clock())
    standstill.update(batch(1_000, HELD))
    standstill.close()
    [message] = warnings(caplog)
    assert message.startswith(
        "no result yet of totals/aggregation-1: input.rides[2] is 12s behind the "
        "others, so windows wait for it"
    )


def test_a_run_that_wrote_something_ends_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    standstill = StalledWatermarkMonitor(Clock())
    standstill.update(BatchReport({"read": 5, "written": 1}, {"totals/aggregation-1": 1_000}, HELD))
    standstill.close()
    assert warnings(caplog) == []


def test_a_run_that_is_told_nothing_more_says_why_nothing_came(caplog: pytest.LogCaptureFixture) -> None:
    standstill = StalledWatermarkMonitor(Clock(), quiet_seconds=0.01)
    standstill.update(batch(1_000, HELD))
    assert standstill.timer is not None
    standstill.timer.join(30)
    assert len(warnings(caplog)) == 1
    standstill.close()
    assert len(warnings(caplog)) == 1
