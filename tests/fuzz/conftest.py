"""Reports at the end how many inputs each fuzzer has tried."""

from collections.abc import Callable

import pytest


@pytest.fixture
def took(record_property: Callable[[str, object], None]) -> Callable[[int], None]:
    """Records the number of inputs that a fuzzer has tried."""
    return lambda inputs: record_property("inputs", inputs)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    inputs = {
        report.nodeid: dict(report.user_properties).get("inputs")
        for report in terminalreporter.getreports("passed")
    }
    counts = {name: int(str(count)) for name, count in inputs.items() if count is not None}
    if counts:
        terminalreporter.section("inputs that fuzzers took")
        for name, count in sorted(counts.items()):
            terminalreporter.write_line(f"{count:>9,} {name.rpartition('fuzz/')[2]}")
        terminalreporter.write_line(f"{sum(counts.values()):>9,} in all")
