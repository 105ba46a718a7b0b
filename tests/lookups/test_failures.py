"""A service that is slow, fails, or gives wrong answers costs its own rows and no others."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millrace as mr
from lookup_server import Service
from lookups.stops import CALLS, PLACED, SCHEMA, Placed, Steps, calls, cells, make_job
from millrace.engine.plan import Plan
from millrace.engine.source import PartitionBatch, route_batch
from millrace.errors import JobQuarantined, LookupFailed
from millrace.log import Log, open_log
from millrace.log.codecs.codec import Decoded, decode, encode
from millrace.log.dead_letters import DEAD_SCHEMA
from millrace.log.status import parse_statuses, status_topic
from millrace.lookups.client import CircuitBreaker
from millrace.runners.local import Hooks, run_local
from runners.stopping_jobs import settings


def test_a_failed_call_is_retried(service: Service) -> None:
    service.behave = lambda stop, nth: 503 if nth <= 2 else 200
    assert cells(make_job(service.get, retries=2), "a", "b") == ["cell of a", "cell of b"]
    assert service.asked == {"a": 3, "b": 3}


@pytest.mark.parametrize("kind", ["get", "get_async"])
def test_a_key_that_keeps_failing_is_null_counted_and_asked_again_in_the_next_batch(
    service: Service, kind: str
) -> None:
    service.behave = lambda stop, nth: 500 if stop == "bad" and nth <= 2 else 200
    steps = Steps(make_job(getattr(service, kind), retries=1))
    assert steps.step("bad", "good", "bad") == ([None, "cell of good", None], {"asked": 2, "failed": 1})
    assert steps.step("bad", "good") == (["cell of bad", "cell of good"], {"asked": 1, "cached": 1})


@pytest.mark.parametrize("kind", ["get", "get_async"])
def test_a_call_ends_at_its_timeout(service: Service, kind: str) -> None:
    never = threading.Event()
    service.behave = lambda stop, nth: 200 if stop != "slow" or never.wait(60) else 500
    steps = Steps(make_job(getattr(service, kind), timeout="300ms", retries=0))
    found, counts = steps.step("slow")
    assert (found, counts) == ([None], {"asked": 1, "failed": 1})
    never.set()
    assert Steps(make_job(getattr(service, kind), timeout="60s")).step("slow", "fast")[0] == [
        "cell of slow",
        "cell of fast",
    ]


def test_after_too_many_failures_in_a_row_the_breaker_refuses_calls(service: Service) -> None:
    service.behave = lambda stop, nth: 500
    steps = Steps(make_job(service.get, retries=0, breaker=3, breaker_reset="1h", concurrency=1))
    assert steps.step(*"abcdefgh")[1] == {"asked": 3, "failed": 8, "refused": 5}
    service.behave = lambda stop, nth: 200
    assert steps.step("a") == ([None], {"failed": 1, "refused": 1})
    assert service.asked.total() == 3


def test_a_service_that_recovers_is_asked_again(service: Service) -> None:
    service.behave = lambda stop, nth: 500
    steps = Steps(make_job(service.get, retries=0, breaker=2, breaker_reset="50ms", concurrency=1))
    assert steps.step("a", "b", "c")[1]["failed"] == 3
    service.behave = lambda stop, nth: 200
    for _ in range(10_000):  # until the breaker lets one through; batches ask as long as it takes
        found, _counts = steps.step("a", "b", "c")
        if found == ["cell of a", "cell of b", "cell of c"]:
            return
    pytest.fail(f"still {found}")


def test_a_breaker_tries_one_key_after_its_reset_time() -> None:
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
    assert breaker.allow_call()
    assert breaker.allow_call()


@pytest.mark.parametrize(
    "answer",
    ["text", {"cell": "x", "colour": "red"}, {"cell": ["a"], "zone": 1}, 7, {"zone": 3.7}, {"zone": 2**63}],
)
def test_an_answer_that_does_not_fit_the_columns_is_a_failure(answer: Any) -> None:
    assert Steps(make_job(lambda _stop: answer, retries=0)).step("a") == ([None], {"asked": 1, "failed": 1})


def test_all_jobs_of_a_batch_see_the_same_failure(service: Service) -> None:
    service.behave = lambda stop, nth: 500 if nth == 1 else 200
    rows = mr.read(CALLS).lookup(service.get, "stop", name="stops", schema=SCHEMA, retries=0)
    other = mr.Topic("analytics.placed-again", Placed)
    plan = Plan.of([mr.Job("one", rows.write(PLACED)), mr.Job("two", rows.write(other))], slots=1)
    frame = calls("a").with_columns(ingestion_time=pl.col("event_time"), _off=pl.lit(0, pl.Int64))
    [packet] = route_batch(
        plan, [PartitionBatch(CALLS.name, 0, Decoded(frame, pl.DataFrame(schema=DEAD_SCHEMA)))], 0
    )
    assert service.asked["a"] == 1
    assert [block.frame["cell"].to_list() for block in packet.body.blocks] == [[None], [None]]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(CALLS)
    yield log
    log.close()


def read_cells(log: Log) -> list[str | None]:
    topic = PLACED
    found = [
        decode(topic, p, log.read(topic.name, p, 0, end)).rows
        for p, end in log.end_offsets(topic.name).items()
    ]
    return pl.concat(found).sort("event_time")["cell"].to_list()


def test_the_status_of_a_run_has_the_counters_of_its_lookups(
    service: Service, log: Log, tmp_path: Path
) -> None:
    service.behave = lambda stop, nth: 500 if stop == "bad" else 200
    log.append(
        CALLS.name,
        encode(CALLS, calls("a", "bad", "a", "b").with_columns(ingestion_time=pl.col("event_time"))),
    )
    reports: list[Any] = []
    chosen = settings(log, tmp_path / "state", "state")
    run_local(
        [make_job(service.get, retries=0)],
        settings=chosen,
        until_caught_up=True,
        hooks=Hooks(report=reports.append),
    )
    assert read_cells(log) == ["cell of a", None, "cell of a", "cell of b"]
    assert reports[0].counts["lookup/stops/failed"] == 1
    topic = status_topic(chosen.run.name)
    [first, *_] = parse_statuses(log.read(topic, 0, 0, log.end_offsets(topic)[0]))
    assert first.lookups == {"stops": {"asked": 3, "failed": 1}}


def test_a_failure_stops_the_job_if_on_error_is_fail(service: Service, log: Log, tmp_path: Path) -> None:
    service.behave = lambda stop, nth: 500 if stop == "bad" else 200
    log.append(CALLS.name, encode(CALLS, calls("a", "bad").with_columns(ingestion_time=pl.col("event_time"))))
    with pytest.raises(JobQuarantined, match="lookup stops of 'bad': OSError: HTTP Error 500"):
        run_local(
            [make_job(service.get, retries=0, on_error="fail")],
            settings=settings(log, tmp_path / "state", "state"),
            until_caught_up=True,
        )
    assert service.asked["bad"] == 1, "to find the offending row nobody is asked again"


class Odd(BaseException):
    """An exception as some libraries raise it, so that `except Exception` does not catch it."""


def _leaves(stop: str) -> dict[str, Any]:
    if stop == "odd":
        raise Odd("of its own kind")
    if stop == "gone":
        sys.exit(0)
    return {"cell": f"cell of {stop}", "zone": 1}


async def _leaves_async(stop: str) -> dict[str, Any]:
    return _leaves(stop)


@pytest.mark.parametrize("fn", [_leaves, _leaves_async])
def test_a_function_that_would_end_the_process_is_a_failure_and_the_next_batch_calls_again(fn: Any) -> None:
    begun = time.monotonic()
    for _ in range(2):
        assert cells(make_job(fn, timeout="20s", retries=0), "a", "gone", "odd", "b") == [
            "cell of a",
            None,
            None,
            "cell of b",
        ]
    assert time.monotonic() - begun < 20, "nobody waited for an answer that could not come"
    with pytest.raises(LookupFailed, match=r"SystemExit: 0"):
        cells(make_job(fn, on_error="fail", retries=0), "gone")
