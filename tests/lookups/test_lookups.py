"""Rows are enriched by asking a real HTTP service, which is slow, fails, or changes its mind."""

import runpy
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import polars as pl
import pytest

import millrace as mr
from lookup_server import Service, serving
from millrace import watermarks, windows
from millrace.engine.exchange import Body
from millrace.engine.plan import Plan
from millrace.engine.source import PartitionBatch, route_batch
from millrace.errors import DefinitionError, JobQuarantined, LookupFailed
from millrace.log import Log, open_log
from millrace.log.codecs.codec import Decoded, decode, encode
from millrace.log.dead_letters import DEAD_SCHEMA
from millrace.log.status import parse_statuses, status_topic
from millrace.lookups import LookupOptions
from millrace.lookups.client import CircuitBreaker
from millrace.runners.local import Engine, Hooks, run_local
from millrace.runners.replay import replay
from runners.stopping_jobs import settings


@dataclass
class Call:
    """A vehicle calls at a stop."""

    vehicle: str
    stop: str | None


@dataclass
class Stop:
    """What is known of it."""

    cell: str | None
    zone: int | None


@dataclass
class Placed:
    """A call, with what was found out."""

    vehicle: str
    stop: str | None
    cell: str | None
    zone: int | None


@dataclass
class Count:
    """How many."""

    cell: str | None
    count: int


CALLS = mr.Topic("input.calls", Call, key="vehicle", partitions=2)
PLACED = mr.Topic("analytics.placed", Placed)
COUNTS = mr.Topic("analytics.counts", Count)
SCHEMA = {"cell": pl.String(), "zone": pl.Int64()}


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as service:
        yield service


def placed(fn: Any, **options: Unpack[LookupOptions]) -> mr.Job:
    options.setdefault("schema", SCHEMA)
    options.setdefault("backoff", 1)
    options["name"] = "stops"
    return mr.Job("placed", mr.read(CALLS).lookup(fn, "stop", **options).write(PLACED))


def calls(*stops: str | None, start: int = 1_000) -> pl.DataFrame:
    return pl.DataFrame(
        [{"vehicle": f"v{i}", "stop": stop, "event_time": start + i} for i, stop in enumerate(stops)],
        schema={"vehicle": pl.String, "stop": pl.String, "event_time": pl.Int64},
    )


def cells(job: mr.Job, *stops: str | None) -> list[str | None]:
    return replay(job, calls(*stops))["cell"].to_list()


class Steps:
    """The same job, a batch at a time."""

    def __init__(self, job: mr.Job) -> None:
        self.engine = Engine([job], partitions={CALLS.name: 1})
        self.off = 0

    def step(self, *stops: str | None, now: int = 0) -> tuple[list[str | None], dict[str, int]]:
        frame = calls(*stops).with_columns(
            ingestion_time=pl.col("event_time"),
            _off=pl.int_range(self.off, self.off + len(stops), dtype=pl.Int64),
        )
        self.off += len(stops)
        results = self.engine.step(
            [PartitionBatch(CALLS.name, 0, Decoded(frame, pl.DataFrame(schema=DEAD_SCHEMA)))], now
        )
        counts = {
            name.removeprefix("lookup/stops/"): n
            for name, n in results.counts.items()
            if name.startswith("lookup/")
        }
        return results.outputs[PLACED.name]["cell"].to_list(), counts


@pytest.mark.parametrize("kind", ["get", "get_async"])
def test_each_different_key_is_asked_once_and_rows_keep_their_order(service: Service, kind: str) -> None:
    assert cells(placed(getattr(service, kind)), "b", "a", None, "b", "a", "c") == [
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


def test_many_are_asked_at_once_but_not_more_than_allowed(service: Service) -> None:
    met = threading.Barrier(5, timeout=60)

    def together(stop: str, nth: int) -> int:
        met.wait()
        return 200

    service.behave = together
    names = [f"s{i}" for i in range(20)]
    assert cells(placed(service.get_async, concurrency=5, timeout="60s"), *names) == [
        f"cell of {name}" for name in names
    ]
    assert service.most_at_once == 5


def test_answers_are_remembered_until_they_are_too_old(service: Service) -> None:
    steps = Steps(placed(service.get, ttl="10s"))
    assert steps.step("a", "b", now=1_000) == (["cell of a", "cell of b"], {"asked": 2})
    service.known = lambda stop: {"cell": "moved", "zone": 0}
    assert steps.step("b", "a", now=10_999) == (["cell of b", "cell of a"], {"cached": 2})
    assert steps.step("a", now=11_000) == (["moved"], {"asked": 1})


def test_that_there_is_nothing_is_remembered_too_but_for_its_own_time(service: Service) -> None:
    service.known = lambda stop: None
    steps = Steps(placed(service.get, negative_ttl="2s"))
    assert steps.step("a", now=0) == ([None], {"asked": 1, "missing": 1})
    assert steps.step("a", now=1_999) == ([None], {"cached": 1, "missing": 1})
    service.known = lambda stop: {"cell": "built"}
    assert steps.step("a", now=2_000) == (["built"], {"asked": 1})


def test_the_answer_that_was_not_used_longest_is_forgotten_first(service: Service) -> None:
    steps = Steps(placed(service.get, cache=2))
    steps.step("a", "b")
    steps.step("a")
    steps.step("c")
    assert steps.step("a", "c")[1] == {"cached": 2}
    assert steps.step("b")[1] == {"asked": 1}


def test_what_fails_is_tried_again(service: Service) -> None:
    service.behave = lambda stop, nth: 503 if nth <= 2 else 200
    assert cells(placed(service.get, retries=2), "a", "b") == ["cell of a", "cell of b"]
    assert service.asked == {"a": 3, "b": 3}


@pytest.mark.parametrize("kind", ["get", "get_async"])
def test_what_stays_wrong_is_null_counted_and_asked_again_in_the_next_batch(
    service: Service, kind: str
) -> None:
    service.behave = lambda stop, nth: 500 if stop == "bad" and nth <= 2 else 200
    steps = Steps(placed(getattr(service, kind), retries=1))
    assert steps.step("bad", "good", "bad") == ([None, "cell of good", None], {"asked": 2, "failed": 1})
    assert steps.step("bad", "good") == (["cell of bad", "cell of good"], {"asked": 1, "cached": 1})


@pytest.mark.parametrize("kind", ["get", "get_async"])
def test_who_is_too_slow_is_not_waited_for(service: Service, kind: str) -> None:
    never = threading.Event()
    service.behave = lambda stop, nth: 200 if stop != "slow" or never.wait(60) else 500
    steps = Steps(placed(getattr(service, kind), timeout="300ms", retries=0))
    found, counts = steps.step("slow")
    assert (found, counts) == ([None], {"asked": 1, "failed": 1})
    never.set()
    assert Steps(placed(getattr(service, kind), timeout="60s")).step("slow", "fast")[0] == [
        "cell of slow",
        "cell of fast",
    ]


def test_when_too_many_fail_in_a_row_nobody_is_asked_for_a_while(service: Service) -> None:
    service.behave = lambda stop, nth: 500
    steps = Steps(placed(service.get, retries=0, breaker=3, breaker_reset="1h", concurrency=1))
    assert steps.step(*"abcdefgh")[1] == {"asked": 3, "failed": 8, "refused": 5}
    service.behave = lambda stop, nth: 200
    assert steps.step("a") == ([None], {"failed": 1, "refused": 1})
    assert service.asked.total() == 3


def test_a_service_that_comes_back_is_asked_again(service: Service) -> None:
    service.behave = lambda stop, nth: 500
    steps = Steps(placed(service.get, retries=0, breaker=2, breaker_reset="50ms", concurrency=1))
    assert steps.step("a", "b", "c")[1]["failed"] == 3
    service.behave = lambda stop, nth: 200
    for _ in range(10_000):  # until the breaker lets one through; batches ask as long as it takes
        found, _counts = steps.step("a", "b", "c")
        if found == ["cell of a", "cell of b", "cell of c"]:
            return
    pytest.fail(f"still {found}")


def test_a_breaker_tries_one_key_when_the_time_is_over() -> None:
    now = [0.0]
    breaker = CircuitBreaker(2, 10, lambda: now[0])
    for _ in range(2):
        assert breaker.allow_call()
        breaker.record_result(is_answered=False)
    assert breaker.is_open
    assert not breaker.allow_call()
    now[0] = 10
    assert breaker.allow_call()
    assert not breaker.allow_call(), "one decides"
    breaker.record_result(is_answered=False)
    assert not breaker.allow_call()
    now[0] = 20
    assert breaker.allow_call()
    breaker.record_result(is_answered=True)
    assert not breaker.is_open
    assert breaker.lets_through()
    assert breaker.lets_through()


@pytest.mark.parametrize(
    "answer",
    ["text", {"cell": "x", "colour": "red"}, {"cell": ["a"], "zone": 1}, 7, {"zone": 3.7}, {"zone": 2**63}],
)
def test_an_answer_that_does_not_fit_is_a_failure(answer: Any) -> None:
    assert Steps(placed(lambda _stop: answer, retries=0)).step("a") == ([None], {"asked": 1, "failed": 1})


def test_one_answer_goes_to_every_way_of_a_batch(service: Service) -> None:
    service.known = lambda stop: {"cell": f"answer {service.asked[stop]}", "zone": 0}
    rows = mr.read(CALLS, watermark=watermarks.bounded("1s")).lookup(
        service.get, "stop", name="stops", schema=SCHEMA, cache=0
    )
    counts = rows.window(windows.fixed("10s")).by("cell").count().write(COUNTS)
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


def test_behind_a_deduplication_too_one_answer_goes_to_every_way(service: Service) -> None:
    service.behave = lambda stop, nth: 500 if nth == 1 else 200
    rows = mr.read(CALLS).by("vehicle").deduplicate("stop", within="1m")
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


def test_a_failure_too_is_the_same_for_every_way_of_a_batch(service: Service) -> None:
    service.behave = lambda stop, nth: 500 if nth == 1 else 200
    rows = mr.read(CALLS).lookup(service.get, "stop", name="stops", schema=SCHEMA, retries=0)
    other = mr.Topic("analytics.placed-again", Placed)
    plan = Plan.of([mr.Job("one", rows.write(PLACED)), mr.Job("two", rows.write(other))], slots=1)
    frame = calls("a").with_columns(ingestion_time=pl.col("event_time"), _off=pl.lit(0, pl.Int64))
    [packet] = route_batch(
        plan, [PartitionBatch(CALLS.name, 0, Decoded(frame, pl.DataFrame(schema=DEAD_SCHEMA)))], 0
    )
    assert service.asked["a"] == 1
    assert [block.frame["cell"].to_list() for block in Body.decode(packet.body).blocks] == [[None], [None]]


def test_the_example_of_the_documentation_works(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOPS", f"{service.address[0]}:{service.address[1]}")
    service.behave = lambda stop, nth: 404 if stop == "gone" else 200
    example = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "examples" / "stops.py"))
    rows = pl.DataFrame({"vehicle": ["v", "w"], "stop_id": ["main", "gone"], "event_time": [1, 2]})
    assert replay(example["placed"], rows).select("stop_id", "cell", "zone").rows() == [
        ("main", "cell of main", 4),
        ("gone", None, None),
    ]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(CALLS)
    yield log
    log.close()


def written(log: Log) -> list[str | None]:
    topic = PLACED
    found = [
        decode(topic, p, log.read(topic.name, p, 0, end)).rows
        for p, end in log.end_offsets(topic.name).items()
    ]
    return pl.concat(found).sort("event_time")["cell"].to_list()


def test_a_run_says_in_its_status_how_its_lookups_fare(service: Service, log: Log, tmp_path: Path) -> None:
    service.behave = lambda stop, nth: 500 if stop == "bad" else 200
    log.append(
        CALLS.name,
        encode(CALLS, calls("a", "bad", "a", "b").with_columns(ingestion_time=pl.col("event_time"))),
    )
    told: list[Any] = []
    chosen = settings(log, tmp_path / "state", "state")
    run_local(
        [placed(service.get, retries=0)],
        settings=chosen,
        until_caught_up=True,
        hooks=Hooks(report=told.append),
    )
    assert written(log) == ["cell of a", None, "cell of a", "cell of b"]
    assert told[0].counts["lookup/stops/failed"] == 1
    topic = status_topic(chosen.run.name)
    [first, *_] = parse_statuses(log.read(topic, 0, 0, log.end_offsets(topic)[0]))
    assert first.lookups == {"stops": {"asked": 3, "failed": 1}}


def test_a_failure_stops_the_job_where_it_is_asked_to(service: Service, log: Log, tmp_path: Path) -> None:
    service.behave = lambda stop, nth: 500 if stop == "bad" else 200
    log.append(CALLS.name, encode(CALLS, calls("a", "bad").with_columns(ingestion_time=pl.col("event_time"))))
    with pytest.raises(JobQuarantined, match="lookup stops of 'bad': OSError: HTTP Error 500"):
        run_local(
            [placed(service.get, retries=0, on_error="fail")],
            settings=settings(log, tmp_path / "state", "state"),
            until_caught_up=True,
        )
    assert service.asked["bad"] == 1, "to find the offending row nobody is asked again"


def test_what_cannot_be_asked_is_refused() -> None:
    rows = mr.read(CALLS)

    def find(stop: str) -> Stop | None: ...

    with pytest.raises(DefinitionError, match="needs the column whose values are asked for"):
        rows.lookup(find)
    with pytest.raises(DefinitionError, match="there is no such column; there are vehicle"):
        rows.lookup(find, "halt")
    with pytest.raises(DefinitionError, match="which columns does it give"):
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

    panes = mr.read(CALLS).window(windows.fixed("1m")).by("vehicle").latest("stop")
    panes.lookup(find, "stop")
    with pytest.raises(DefinitionError, match="ask before the first aggregation, or after the last"):
        panes.lookup(find, "stop").by("cell")
    retracting = (
        mr.read(CALLS).window(windows.fixed("1m"), output="value_and_retract").by("vehicle").latest("stop")
    )
    with pytest.raises(DefinitionError, match="use output='value', or ask before the aggregation"):
        retracting.lookup(find, "stop")


class Odd(BaseException):
    """What some libraries raise so that nobody catches it."""


def _leaves(stop: str) -> dict[str, Any]:
    if stop == "odd":
        raise Odd("of its own kind")
    if stop == "gone":
        sys.exit(0)
    return {"cell": f"cell of {stop}", "zone": 1}


async def _leaves_async(stop: str) -> dict[str, Any]:
    return _leaves(stop)


@pytest.mark.parametrize("fn", [_leaves, _leaves_async])
def test_a_function_that_would_end_the_process_has_failed_and_the_next_batch_is_asked(fn: Any) -> None:
    begun = time.monotonic()
    for _ in range(2):
        assert cells(placed(fn, timeout="20s", retries=0), "a", "gone", "odd", "b") == [
            "cell of a",
            None,
            None,
            "cell of b",
        ]
    assert time.monotonic() - begun < 20, "nobody waited for an answer that could not come"
    with pytest.raises(LookupFailed, match=r"SystemExit: 0"):
        cells(placed(fn, on_error="fail", retries=0), "gone")
