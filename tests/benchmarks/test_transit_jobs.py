"""Jobs that are measured together, and the events for them."""

from contextlib import closing
from pathlib import Path

import pytest

from bench import engine, transit_jobs
from millrace.engine.plan import Plan
from millrace.errors import ConfigError, DefinitionError
from millrace.log import open_log
from millrace.transit import ARRIVALS, POSITIONS


def test_five_stands_for_all_questions_and_a_job_counts_once() -> None:
    assert transit_jobs.expand_names(["emergency-stop", "five"]) == (
        "emergency-stop",
        *(name for name in transit_jobs.FIVE if name != "emergency-stop"),
    )
    assert transit_jobs.expand_names([]) == ()
    with pytest.raises(DefinitionError, match=r"^nonsense: there is no such job to measure; use five"):
        transit_jobs.expand_names(["five", "nonsense"])


def test_the_five_run_as_one_plan() -> None:
    plan = Plan.of(transit_jobs.make_jobs(transit_jobs.FIVE), slots=1)
    assert {topic.name for topic in plan.topics} == {POSITIONS.name, ARRIVALS.name}
    assert {job for operator in plan.operators for job in operator.jobs} == {*transit_jobs.FIVE}


def test_a_city_fills_a_log_with_positions_and_arrivals(tmp_path: Path) -> None:
    with closing(open_log(f"embedded:{tmp_path}/log")) as log:
        appended = transit_jobs.fill_with_city(log, 1_000)
        ends = {name: sum(log.end_offsets(name).values()) for name in (POSITIONS.name, ARRIVALS.name)}
    assert appended >= 1_000
    assert ends[POSITIONS.name] > ends[ARRIVALS.name] > 0


@pytest.mark.slow
def test_jobs_are_measured_together_on_one_runner() -> None:
    figures = list(engine.bench_jobs(["vehicle-distribution", "emergency-stop"], ["local"], scale=0.002))
    assert [one.rows_per_batch for one in figures] == [800, 200, 20, 1]
    assert all(one.events_per_s > 0 and one.name == "vehicle-distribution+emergency-stop" for one in figures)
    with pytest.raises(ConfigError, match="--only windows: named jobs are measured on spark and on local"):
        list(engine.bench_jobs(["emergency-stop"], ["windows"]))
