"""How jobs are cut into stages, and what cannot be run."""

import pickle
from dataclasses import dataclass

import polars as pl
import pytest

from millrace import watermarks, windows
from millrace.engine.plan import Plan
from millrace.errors import DefinitionError
from millrace.runners.spark.serialized_plan import pickle_by_value
from millrace.stream import Job, Stream, read
from millrace.topics import Topic


@dataclass
class Ride:
    line: str
    stop: str
    riders: int


@dataclass
class Total:
    line: str
    riders: int


@dataclass
class Refused:
    line: str
    stop: str
    riders: int
    reason: str
    missed: int


RIDES = Topic("input.rides", Ride, key="line")
TOTALS = Topic("analytics.totals", Total, key="line")


def rides(idle: str | None = None) -> Stream:
    return read(RIDES, watermark=watermarks.bounded("1s", idle=idle)).window(windows.fixed("10s"))


def one_stage(name: str = "one", size: str = "10s") -> Job:
    return Job(name, rides().window(windows.fixed(size)).group_by("line").sum("riders").write(TOTALS))


def two_stages(name: str = "two") -> Job:
    return Job(
        name, rides("5s").group_by("line", "stop").max("riders").group_by("line").sum("riders").write(TOTALS)
    )


def test_a_change_of_key_begins_a_new_stage_and_jobs_share_stages() -> None:
    plan = Plan.of([one_stage(), two_stages()], slots=4)
    assert plan.depth == 2
    assert [o.id for o in plan.stage(1)] == ["one/aggregation-1", "two/aggregation-1"]
    assert [o.id for o in plan.stage(2)] == ["two/aggregation-2"]
    assert [topic.name for topic in plan.topics] == ["input.rides"]
    assert len(plan.clocks["input.rides"]) == 1, "both jobs read the same clock"


def test_batches_without_events_are_needed_only_where_something_waits_for_the_clock() -> None:
    assert not Plan.of([one_stage()], slots=1).needs_ticks
    assert Plan.of([two_stages()], slots=1).needs_ticks


def test_an_operators_id_does_not_depend_on_the_other_jobs() -> None:
    alone = Plan.of([two_stages()], slots=1).operators
    together = Plan.of([one_stage(), two_stages()], slots=1).operators
    assert {o.id for o in alone} < {o.id for o in together}


def test_a_given_name_becomes_part_of_the_id() -> None:
    job = Job("j", rides().group_by("line").sum("riders").named("per-line").write(TOTALS))
    assert [o.id for o in Plan.of([job], slots=1).operators] == ["j/per-line"]


def test_the_fingerprint_changes_with_what_state_depends_on_and_with_nothing_else() -> None:
    fingerprint = Plan.of([one_stage()], slots=2).fingerprint
    assert Plan.of([one_stage()], slots=2).fingerprint == fingerprint
    for other in (
        Plan.of([one_stage(size="20s")], slots=2),
        Plan.of([one_stage()], slots=3),
        Plan.of([one_stage("renamed")], slots=2),
    ):
        assert other.fingerprint != fingerprint


def test_the_fingerprint_of_a_join_changes_with_the_columns_of_its_sides() -> None:
    def joined(*columns: str) -> dict[str, str]:
        other = read(RIDES).select(*columns)
        pairs = (
            rides().select("line", "riders").group_by("line").join(other.group_by("line"), suffix="_there")
        )
        return Plan.of([Job("j", pairs.select("line", "riders").write(TOTALS))], slots=1).fingerprints

    assert joined("line", "riders") == joined("line", "riders")
    assert joined("line", "riders") != joined("line", "riders", "stop")


def test_a_plan_travels() -> None:
    plan = Plan.of([one_stage(), two_stages()], slots=2)
    there = pickle.loads(pickle_by_value(plan))
    assert there.fingerprint == plan.fingerprint
    assert [len(there.routes_from(o)) for o in there.operators] == [1, 1, 1]


def test_two_jobs_of_one_name_are_refused() -> None:
    with pytest.raises(DefinitionError, match="two jobs are named 'one'"):
        Plan.of([one_stage(), one_stage()], slots=1)


def test_slots_beyond_the_key_groups_are_refused() -> None:
    with pytest.raises(DefinitionError, match="between 1 and 128"):
        Plan.of([one_stage()], slots=129)


def test_one_topic_has_one_type() -> None:
    @dataclass
    class Other:
        line: str
        riders: int

    again = Topic("analytics.totals", Other, key="line")
    with pytest.raises(DefinitionError, match="declare it once"):
        Plan.of([one_stage(), Job("two", rides().group_by("line").sum("riders").write(again))], slots=1)


def test_a_job_without_windows_has_no_stage() -> None:
    plan = Plan.of(
        [Job("through", read(RIDES).filter(pl.col("riders") > 0).select("line", "riders").write(TOTALS))],
        slots=2,
    )
    assert plan.depth == 0
    assert plan.operators == ()


def wanted(stream: Stream, size: str = "10s") -> frozenset[str] | None:
    job = Job("job", stream.window(windows.fixed(size)).group_by("line").sum("riders").write(TOTALS))
    return Plan.of([job], slots=1).needed_columns["input.rides"]


def test_only_the_columns_that_something_looks_at_are_wanted() -> None:
    plain = frozenset({"line", "riders", "event_time", "ingestion_time"})
    assert wanted(rides()) == plain
    assert wanted(rides().filter(pl.col("stop") != "depot")) == plain | {"stop"}
    assert wanted(rides().with_columns(riders=pl.col("stop").str.len_chars().cast(pl.Int64))) == plain | {
        "stop"
    }


def test_all_columns_are_wanted_where_a_step_may_look_at_any() -> None:
    assert wanted(rides().map_batches(lambda frame: frame)) is None
    assert wanted(rides().with_columns(pl.all().name.suffix("_too"))) is None
    assert wanted(rides().flat_map(lambda row: [row], schema={"line": pl.String, "riders": pl.Int64})) is None


def test_all_columns_are_wanted_where_rows_leave_as_they_are() -> None:
    totals = rides().group_by("line").sum("riders")
    late = Topic("analytics.refused", Refused)
    job = Job("job", totals.write(TOTALS), totals.late().write(late))
    assert Plan.of([job], slots=1).needed_columns == {"input.rides": None}
    beside = Job("beside", rides().filter(pl.col("riders") > 5).write(Topic("analytics.full", Ride)))
    assert Plan.of([one_stage(), beside], slots=1).needed_columns == {"input.rides": None}
