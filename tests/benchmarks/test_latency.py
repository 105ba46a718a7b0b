"""The measurement of latency: markers make results, and the floor is where the log says."""

import polars as pl
import pytest

from bench.city_flow import final_stop_distribution
from bench.latency import bench, find_floors
from bench.markers import MARKERS
from millrace.errors import DefinitionError
from millrace.runners.local import Engine
from millrace.transit.jobs import BUILT_IN


@pytest.mark.parametrize("job", MARKERS)
def test_each_marker_makes_results_that_can_be_told_apart(job: str) -> None:
    from millrace import replay

    marker = MARKERS[job]
    sent = marker.make_rows(1_000_000, 1_060_000)
    made = final_stop_distribution() if job == "final-stop-distribution" else BUILT_IN[job]()
    found = marker.find_results(replay(made, sent)).filter(pl.col("event") <= sent["event_time"].max())
    assert found.height >= 10
    assert set(found["event"]) <= set(sent["event_time"])
    assert found["event"].is_unique().all()
    assert (found["complete"] > found["event"]).all()
    plan = Engine([made]).plan
    assert (plan.topics, plan.outputs) == ((marker.input_topic,), (marker.output_topic,))


def test_all_five_jobs_have_markers() -> None:
    assert set(MARKERS) == BUILT_IN.keys() - {"pass-through", "event-count"}


def test_the_floor_is_when_the_last_partition_let_the_watermark_pass() -> None:
    quick = pl.DataFrame({"clock": [100, 200, 300], "at": [101, 201, 301]})
    slow = pl.DataFrame({"clock": [50, 250], "at": [60, 999]})
    assert find_floors(pl.Series([40, 190, 290]), [quick, slow], 10).to_list() == [101, 999, 301]


def test_a_job_without_markers_is_named() -> None:
    with pytest.raises(DefinitionError, match="fraud"):
        bench(["fraud"])


def test_results_of_markers_are_timed_on_jobs_that_run_together() -> None:
    for found in bench(list(MARKERS), scale=0.3, seconds=6):
        assert found.n > 0, found.job
        assert found.p50_ms is not None
        assert found.above_floor_p50_ms is not None
        assert 0 < found.above_floor_p50_ms < found.p50_ms
        assert found.p50_ms > MARKERS[found.job].delay, "the watermark waits for that long"
