"""Progress is one rewritten line on a terminal and few plain ones elsewhere."""

import io
from collections import Counter

from ingest.clocks import FakeClock
from millrace.ingest.pipeline import IngestCounts
from millrace.ingest.progress import IngestProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


COUNTS = IngestCounts(
    1_500,
    Counter({"input.x": 1_400}),
    Counter({"ARR": 60, "DEP": 30}),
    Counter({"malformed": 10}),
    1600657200963,
)


def shown(out: io.StringIO) -> str:
    clock = FakeClock()
    progress = IngestProgress("hsl", out, clock=clock)
    progress.update(IngestCounts())
    clock.sleep(1_000)
    progress.update(COUNTS)
    clock.sleep(500)
    progress.finish(COUNTS)
    return out.getvalue()


def test_a_terminal_sees_one_line_rewritten() -> None:
    lines = shown(Terminal()).split("\r\x1b[K")
    assert lines[1] == (
        "hsl: 1,500 messages: 1,400 written, 90 passed over, 10 rejected, 1,500/s, up to 2020-09-21 03:00:00"
    )
    assert lines[2].startswith("hsl: done: ")


def test_elsewhere_there_is_only_the_sum_with_its_reasons() -> None:
    assert shown(io.StringIO()) == (
        "hsl: done: 1,500 messages: 1,400 written, 90 passed over, 10 rejected in 1.5 s, up to 2020-09-21 "
        "03:00:00\n  passed over: ARR 60, DEP 30\n  rejected: malformed 10\n"
    )


def test_a_long_run_writes_a_plain_line_every_ten_seconds() -> None:
    out, clock = io.StringIO(), FakeClock()
    progress = IngestProgress("hsl", out, clock=clock)
    for _ in range(100):
        clock.sleep(1_000)
        progress.update(COUNTS)
    assert out.getvalue().count("\n") == 10
    assert "\r" not in out.getvalue()


def test_a_time_that_no_calendar_shows_is_left_out() -> None:
    out = io.StringIO()
    IngestProgress("hsl", out, clock=FakeClock()).finish(IngestCounts(1, max_event_time=10**18))
    assert "up to" not in out.getvalue()
