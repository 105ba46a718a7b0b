"""Rows are enriched by a real HTTP service, whose answers are cached."""

import runpy
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millrace as mr
from lookup_server import Service
from lookups.stops import (
    CALLS,
    COUNTS,
    PLACED,
    SCHEMA,
    Placed,
    Steps,
    Stop,
    calls,
    cells,
    make_job,
)
from millrace import watermarks, windows
from millrace.engine.source import PartitionBatch
from millrace.errors import DefinitionError
from millrace.log.codecs.codec import Decoded
from millrace.log.dead_letters import DEAD_SCHEMA
from millrace.runners.local import Engine
from millrace.runners.replay import replay


@pytest.mark.parametrize("kind", ["get", "get_async"])
def test_each_distinct_key_is_asked_once_and_rows_keep_their_order(service: Service, kind: str) -> None:
    assert cells(make_job(getattr(service, kind)), "b", "a", None, "b", "a", "c") == [
        "cell of b",
        "cell of a",
        None,
        "cell of b",
        "cell of a",
        "cell of c",
    ]
    assert service.asked == {"a": 1, "b": 1, "c": 1}


def test_the_columns_may_be_those_of_the_dataclass_that_is_returned(service: Service) -> None:
    def find(stop: str) -> Stop | None:
        return Stop(**service.get(stop)) if stop != "nowhere" else None

    found = replay(
        mr.Job("placed", mr.read(CALLS).lookup(find, "stop").write(PLACED)), calls("main", "nowhere")
    )
    assert found.select("cell", "zone").rows() == [("cell of main", 4), (None, None)]


def test_several_columns_are_several_arguments() -> None:
    def join(vehicle: str, stop: str) -> dict[str, Any]:
        return {"cell": f"{vehicle} at {stop}", "zone": None}

    job = mr.Job("placed", mr.read(CALLS).lookup(join, "vehicle", "stop", schema=SCHEMA).write(PLACED))
    assert cells(job, "x", None, "y") == ["v0 at x", None, "v2 at y"]


def test_calls_are_concurrent_up_to_the_limit(service: Service) -> None:
    met = threading.Barrier(5, timeout=60)

    def together(stop: str, nth: int) -> int:
        met.wait()
        return 200

    service.behave = together
    names = [f"s{i}" for i in range(20)]
    assert cells(make_job(service.get_async, concurrency=5, timeout="60s"), *names) == [
        f"cell of {name}" for name in names
    ]
    assert service.most_at_once == 5


def test_answers_are_cached_until_they_expire(service: Service) -> None:
    steps = Steps(make_job(service.get, ttl="10s"))
    assert steps.step("a", "b", now=1_000) == (["cell of a", "cell of b"], {"asked": 2})
    service.known = lambda stop: {"cell": "moved", "zone": 0}
    assert steps.step("b", "a", now=10_999) == (["cell of b", "cell of a"], {"cached": 2})
    assert steps.step("a", now=11_000) == (["moved"], {"asked": 1})


def test_the_answer_none_is_cached_for_its_own_time(service: Service) -> None:
    service.known = lambda stop: None
    steps = Steps(make_job(service.get, negative_ttl="2s"))
    assert steps.step("a", now=0) == ([None], {"asked": 1, "missing": 1})
    assert steps.step("a", now=1_999) == ([None], {"cached": 1, "missing": 1})
    service.known = lambda stop: {"cell": "built"}
    assert steps.step("a", now=2_000) == (["built"], {"asked": 1})


def test_the_least_recently_used_answer_is_evicted_first(service: Service) -> None:
    steps = Steps(make_job(service.get, cache=2))
    steps.step("a", "b")
    steps.step("a")
    steps.step("c")
    assert steps.step("a", "c")[1] == {"cached": 2}
    assert steps.step("b")[1] == {"asked": 1}


def test_all_jobs_of_a_batch_get_the_same_answer(service: Service) -> None:
    service.known = lambda stop: {"cell": f"answer {service.asked[stop]}", "zone": 0}
    rows = mr.read(CALLS, watermark=watermarks.bounded("1s")).lookup(
        service.get, "stop", name="stops", schema=SCHEMA, cache=0
    )
    counts = rows.window(windows.fixed("10s")).group_by("cell").count().write(COUNTS)
    job = mr.Job("both", rows.write(PLACED), counts)
    frame = calls(*["a"] * 20).with_columns(
        ingestion_time=pl.col("event_time"), _off=pl.int_range(20, dtype=pl.Int64)
    )
    engine = Engine([job], slots=4, partitions={CALLS.name: 1})
    results = [
        engine.step(
            [
                PartitionBatch(
                    CALLS.name,
                    0,
                    Decoded(frame.with_columns(pl.col("_off") + 20 * n), pl.DataFrame(schema=DEAD_SCHEMA)),
                )
            ],
            n,
        )
        for n in range(3)
    ]
    assert [set(each.outputs[PLACED.name]["cell"]) for each in results] == [
        {"answer 1"},
        {"answer 2"},
        {"answer 3"},
    ]
    last = engine.step([], 9, end=True).outputs[COUNTS.name]
    assert dict(last.select("cell", "count").rows()) == {"answer 1": 20, "answer 2": 20, "answer 3": 20}


def test_all_jobs_get_the_same_answer_behind_a_deduplication(service: Service) -> None:
    service.behave = lambda stop, nth: 500 if nth == 1 else 200
    rows = mr.read(CALLS).group_by("vehicle").deduplicate("stop", within="1m")
    asked = rows.lookup(service.get, "stop", name="stops", schema=SCHEMA, retries=0)
    other = mr.Topic("analytics.placed-again", Placed)
    engine = Engine([mr.Job("both", asked.write(PLACED), asked.write(other))], partitions={CALLS.name: 1})
    frame = calls("a").with_columns(ingestion_time=pl.col("event_time"), _off=pl.lit(0, pl.Int64))
    first = engine.step([PartitionBatch(CALLS.name, 0, Decoded(frame, pl.DataFrame(schema=DEAD_SCHEMA)))], 0)
    last = engine.step([], 0, end=True)
    cells = [
        each.outputs[topic.name]["cell"][0]
        for each in (first, last)
        for topic in (PLACED, other)
        if topic.name in each.outputs
    ]
    assert cells == [None, None]
    assert first.counts.get("lookup/stops/failed", 0) + last.counts.get("lookup/stops/failed", 0) == 1


def test_the_example_of_the_documentation_works(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOPS", f"{service.address[0]}:{service.address[1]}")
    service.behave = lambda stop, nth: 404 if stop == "gone" else 200
    example = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "examples" / "stops.py"))
    rows = pl.DataFrame({"vehicle": ["v", "w"], "stop_id": ["main", "gone"], "event_time": [1, 2]})
    assert replay(example["placed"], rows).select("stop_id", "cell", "zone").rows() == [
        ("main", "cell of main", 4),
        ("gone", None, None),
    ]


def test_lookups_that_cannot_work_are_refused() -> None:
    rows = mr.read(CALLS)

    def find(stop: str) -> Stop | None: ...

    with pytest.raises(DefinitionError, match="needs a column of keys"):
        rows.lookup(find)
    with pytest.raises(DefinitionError, match=r"there is no column .*; there are vehicle"):
        rows.lookup(find, "halt")
    with pytest.raises(DefinitionError, match="its columns are not known"):
        rows.lookup(lambda stop: {}, "stop")
    with pytest.raises(DefinitionError, match="which rows already have"):
        rows.lookup(find, "stop", schema={"vehicle": pl.String()})
    with pytest.raises(DefinitionError, match="on_error='ignore' is unknown"):
        rows.lookup(find, "stop", on_error="ignore")  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(DefinitionError, match="has no option 'retry'"):
        rows.lookup(find, "stop", retry=3)  # type: ignore[call-arg] # wrong on purpose
    with pytest.raises(DefinitionError, match="concurrency=0 must be a whole number from 1 on"):
        rows.lookup(find, "stop", concurrency=0)


def test_a_lookup_between_aggregations_is_refused() -> None:
    def find(stop: str) -> Stop | None: ...

    panes = mr.read(CALLS).window(windows.fixed("1m"), lateness="1m").group_by("vehicle").latest("stop")
    panes.lookup(find, "stop")
    with pytest.raises(DefinitionError, match="ask before the first aggregation, or after the last"):
        panes.lookup(find, "stop").group_by("cell")
    retracting = (
        mr.read(CALLS)
        .window(windows.fixed("1m"), lateness="1m", accumulation="retracting")
        .group_by("vehicle")
        .latest("stop")
    )
    with pytest.raises(
        DefinitionError, match="use accumulation='accumulating', or ask before the aggregation"
    ):
        retracting.lookup(find, "stop")
