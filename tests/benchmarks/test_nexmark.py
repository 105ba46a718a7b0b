"""Every query of Nexmark is measured; how fast it is is not a test's matter."""

import pytest

from bench.nexmark import bench
from millrace.errors import ConfigError

pytestmark = pytest.mark.slow


def test_queries_are_measured_over_what_they_read() -> None:
    q3, q7 = bench(["q3", "q7"], events=2_000, rows_per_batch=1_000)
    assert (q3.name, q3.events) == ("q3", 160)
    assert (q7.name, q7.events) == ("q7", 1_840)
    for figures in (q3, q7):
        assert figures.results > 0
        assert figures.events_per_s > 0
        assert figures.cpu_us_per_event > 0
        assert figures.load >= 0


def test_an_unknown_query_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"--only q24: there is no such query; there are q0, q1, .*, q23"):
        list(bench(["q24"]))
