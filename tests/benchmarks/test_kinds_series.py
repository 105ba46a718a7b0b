"""The measurements run; what they measure is not a test's matter."""

import pytest

from bench.engine import bench
from bench.kinds import all_kinds
from bench.kinds_series import Series, measure
from millrace.errors import ConfigError

pytestmark = pytest.mark.slow


def test_every_kind_is_a_job_of_its_own() -> None:
    labels = [kind.label for kind in all_kinds()]
    assert len(labels) == len(set(labels))
    for kind in all_kinds():
        assert kind.job("input.readings").outputs


def test_kinds_are_measured_one_after_the_other() -> None:
    labels = ["windows/fixed", "aggregates/top by", "sliding/30s every 5s", "state/1k keys sparsely"]
    figures = list(measure(Series("local", labels, batches=4, scale=0.01)))
    assert [made.name for made in figures] == labels
    for made in figures:
        assert made.events_per_s > 0
        assert made.cpu_us_per_event >= 0
        assert made.rss_mb > 10
        assert made.load >= 0


def test_what_is_not_measured_is_refused_with_what_is() -> None:
    with pytest.raises(
        ConfigError,
        match=(
            "--only speed: there is no such measurement; there are vehicle-distribution, "
            "emergency-stop, windows"
        ),
    ):
        list(bench(["speed"]))


def test_the_command_measures_a_kind_in_a_process_of_its_own() -> None:
    (figures,) = bench(["aggregates/sum", "local"], scale=0.01)
    assert (figures.name, figures.runner) == ("aggregates/sum", "local")
