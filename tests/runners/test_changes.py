"""Which changes of a job its state survives: the table of docs/reference/changes.md."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, config, patterns, triggers, watermarks, windows
from millrace.engine import fingerprints
from millrace.engine.plan import Plan
from millrace.errors import StateMismatch
from millrace.log import open_log
from millrace.log.codecs.codec import encode
from millrace.runners import run
from millrace.stream import Stream


@dataclass
class Ride:
    who: str
    cell: int
    speed: float


@dataclass
class Other:
    who: str
    cell: int
    speed: float


RIDES, OTHERS = mr.Topic("rides", Ride, key="who"), mr.Topic("others", Other, key="who")


def rides(**how: Any) -> Stream:
    return mr.read(RIDES, **how)


def windowed(stream: Stream | None = None, size: str = "10s", **how: Any) -> Stream:
    return (stream or rides()).window(windows.fixed(size), **how)


def per_cell(key: pl.Expr, **how: Any) -> Stream:
    """Two aggregations, with a step between them."""
    return windowed(**how).group_by("who").latest("cell").with_columns(area=key).group_by("area").count()


def plan_of(stream: Stream) -> Plan:
    fields = {
        name: {"String": str, "Int64": int, "Float64": float}.get(str(dtype), int)
        for name, dtype in stream.node.schema.items()
    }
    made = [name for name in fields if name not in mr.topics.SYSTEM_COLUMNS]
    kind = type("Result", (), {"__annotations__": {name: fields[name] for name in made}})
    return Plan.of([mr.Job("job", stream.write(mr.Topic("out", dataclass(kind))))], slots=1)


def refusals(before: Stream, after: Stream) -> list[str]:
    was = plan_of(before).fingerprints
    now = plan_of(after)
    return [
        why
        for operator in now.operators
        if operator.id in was and (why := fingerprints.find_difference(was[operator.id], operator))
    ]


def within(step: pl.Expr, seconds: int = 60) -> Stream:
    return (
        rides()
        .group_by("who")
        .match(mr.pattern("a", step).within(f"{seconds}s"), select={"n": patterns.count("a")})
    )


ONCE, EARLY = (
    triggers.at_watermark(late=triggers.never()),
    triggers.at_watermark(early=triggers.after_count(3)),
)
FAST, SLOW = pl.col("speed") > 3, pl.col("speed") > 2
SAFE: dict[str, tuple[Any, Any]] = {
    "nothing": (lambda: windowed().group_by("who").count(), lambda: windowed().group_by("who").count()),
    "another watermark": (
        lambda: windowed().group_by("who").count(),
        lambda: windowed(rides(watermark=watermarks.bounded("1m"))).group_by("who").count(),
    ),
    "a step after the last operator": (
        lambda: windowed().group_by("who").count(),
        lambda: windowed().group_by("who").count().filter(pl.col("count") > 1),
    ),
    "another topic in a union": (
        lambda: windowed().group_by("who").count(),
        lambda: windowed(rides().union(rides())).group_by("who").count(),
    ),
    "a longer lateness": (
        lambda: windowed().group_by("who").count(),
        lambda: windowed(lateness="1m").group_by("who").count(),
    ),
    "an added aggregate": (
        lambda: windowed().group_by("who").aggregate(n=aggregates.count()),
        lambda: windowed().group_by("who").aggregate(n=aggregates.count(), top=aggregates.max("speed")),
    ),
    "another trigger": (
        lambda: windowed(trigger=EARLY).group_by("who").latest("cell").group_by("cell").count(),
        lambda: (
            windowed(trigger=triggers.every("1s"), lateness="1m")
            .group_by("who")
            .latest("cell")
            .group_by("cell")
            .count()
        ),
    ),
}
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "a filter before": (
        lambda: windowed().group_by("who").count(),
        lambda: windowed(rides().filter(FAST)).group_by("who").count(),
        "other steps",
    ),
    "a changed filter": (
        lambda: windowed(rides().filter(FAST)).group_by("who").count(),
        lambda: windowed(rides().filter(SLOW)).group_by("who").count(),
        "other steps",
    ),
    "the key expression before a second aggregation": (
        lambda: per_cell(pl.col("cell") // 10),
        lambda: per_cell(pl.col("cell") // 100),
        "other steps",
    ),
    "a step before a pattern": (
        lambda: within(FAST),
        lambda: (
            rides()
            .filter(SLOW)
            .group_by("who")
            .match(mr.pattern("a", FAST).within("60s"), select={"n": patterns.count("a")})
        ),
        "other steps",
    ),
    "a condition of a pattern": (lambda: within(FAST), lambda: within(SLOW), "another pattern"),
    "a step before a deduplication": (
        lambda: windowed(rides().group_by("who").deduplicate("cell", within="1m")).group_by("who").count(),
        lambda: (
            windowed(rides().filter(FAST).group_by("who").deduplicate("cell", within="1m"))
            .group_by("who")
            .count()
        ),
        "other steps",
    ),
    "other keys": (
        lambda: windowed().group_by("who").count(),
        lambda: windowed().group_by("cell").count(),
        "other keys",
    ),
    "another window": (
        lambda: windowed().group_by("who").count(),
        lambda: windowed(size="5s").group_by("who").count(),
        "another window",
    ),
    "a shorter lateness": (
        lambda: windowed(lateness="2m").group_by("who").count(),
        lambda: windowed(lateness="1m").group_by("who").count(),
        "lateness",
    ),
    "a longer lateness of windows that close at once": (
        lambda: windowed(trigger=ONCE).group_by("who").count(),
        lambda: windowed(trigger=ONCE, lateness="1m").group_by("who").count(),
        "lateness",
    ),
    "the first early panes of sliding windows": (
        lambda: windowed().group_by("who").count(),
        lambda: windowed(trigger=EARLY).group_by("who").count(),
        "trigger",
    ),
    "no more early panes of sliding windows": (
        lambda: windowed(trigger=EARLY).group_by("who").count(),
        lambda: windowed(trigger=ONCE).group_by("who").count(),
        "trigger",
    ),
    "another trigger with a shorter lateness": (
        lambda: windowed(trigger=EARLY, lateness="2m").group_by("who").count(),
        lambda: windowed(trigger=triggers.every("1s"), lateness="1m").group_by("who").count(),
        "lateness",
    ),
    "another output": (
        lambda: windowed().group_by("who").count(),
        lambda: windowed(accumulation="discarding").group_by("who").count(),
        "output",
    ),
    "an aggregate added to a second aggregation": (
        lambda: windowed().group_by("who").latest("cell").group_by("cell").aggregate(n=aggregates.count()),
        lambda: (
            windowed()
            .group_by("who")
            .latest("cell")
            .group_by("cell")
            .aggregate(n=aggregates.count(), top=aggregates.max("who"))
        ),
        "other aggregates",
    ),
    "an added aggregate of windows that rows cut": (
        lambda: rides().window(windows.counted(3)).group_by("who").aggregate(n=aggregates.count()),
        lambda: (
            rides()
            .window(windows.counted(3))
            .group_by("who")
            .aggregate(n=aggregates.count(), top=aggregates.max("speed"))
        ),
        "other aggregates",
    ),
    "an aggregate removed or replaced": (
        lambda: windowed().group_by("who").aggregate(n=aggregates.count(), top=aggregates.max("speed")),
        lambda: windowed().group_by("who").aggregate(n=aggregates.count(), top=aggregates.min("speed")),
        "other aggregates",
    ),
}


@pytest.mark.parametrize("change", SAFE)
def test_a_safe_change_goes_on_with_the_state(change: str) -> None:
    before, after = SAFE[change]
    assert refusals(before(), after()) == []


@pytest.mark.parametrize("change", REFUSED)
def test_a_change_that_the_state_does_not_survive_is_refused_by_name(change: str) -> None:
    before, after, message = REFUSED[change]
    [why] = refusals(before(), after())
    assert message in why


WHO, CELL = pl.col("who"), pl.col("cell")


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (CELL.is_in(list(range(100))), CELL.is_in([*range(50), 777, *range(51, 100)])),
        (
            CELL.replace(dict.fromkeys(range(30), 0)) == 0,
            CELL.replace({n: int(n == 15) for n in range(30)}) == 0,
        ),
        (pl.col("speed").round(1) == 0, pl.col("speed").round(2) == 0),
        (WHO.str.to_datetime("%Y-%m-%d").is_null(), WHO.str.to_datetime("%d-%m-%Y").is_null()),
        (WHO.str.contains("a.b"), WHO.str.contains("a.b", literal=True)),
        (WHO.str.extract("(a)b", 0) == "a", WHO.str.extract("(a)b", 1) == "a"),
        (CELL.hash(1) > 0, CELL.hash(2) > 0),
    ],
)
def test_a_change_that_the_text_of_an_expression_does_not_show_is_refused(was: pl.Expr, now: pl.Expr) -> None:
    assert str(was) == str(now)
    makes: list[tuple[Any, str]] = [
        (lambda expr: windowed(rides().filter(expr)).group_by("who").count(), "other steps"),
        (lambda expr: windowed(rides().with_columns(new=expr)).group_by("new").count(), "other steps"),
        (lambda expr: windowed(rides().select("cell", new=expr)).group_by("new").count(), "other steps"),
        (within, "another pattern"),
        (lambda expr: rides().window(windows.punctuated(expr)).group_by("who").count(), "another window"),
    ]
    for make, message in makes:
        [why] = refusals(make(was), make(now))
        assert message in why
        assert refusals(make(was), make(was)) == []


def test_state_of_another_version_of_polars_is_compared_by_text_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [was] = plan_of(windowed(rides().filter(CELL.hash(1) > 0)).group_by("who").count()).operators
    [now] = plan_of(windowed(rides().filter(CELL.hash(2) > 0)).group_by("who").count()).operators
    described = fingerprints.describe(was)
    monkeypatch.setattr(pl, "__version__", "99.9")
    assert fingerprints.find_difference(described, now) is None


def test_every_change_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/changes.md").read_text()
    assert [change for change in (*SAFE, *REFUSED) if f"| {change} |" not in page] == []


def test_a_changed_key_before_a_second_aggregation_does_not_run(tmp_path: Path) -> None:
    @dataclass
    class Area:
        area: int
        count: int

    areas = mr.Topic("areas", Area)
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(RIDES)
    rows = {
        "who": ["a", "b"],
        "cell": [12, 34],
        "speed": [1.0, 2.0],
        "event_time": [1_000, 30_000],
        "ingestion_time": [1_000, 30_000],
    }
    log.append(RIDES.name, encode(RIDES, pl.DataFrame(rows)))
    settings = config.Settings().with_options(log_url=log.url, state_dir=tmp_path / "state")

    def run_with_key(key: pl.Expr) -> None:
        run(
            mr.Job("areas", per_cell(key, lateness="1h").write(areas)),
            on="local",
            settings=settings,
            until_caught_up=True,
        )

    run_with_key(pl.col("cell") // 10)
    with pytest.raises(StateMismatch, match=r"areas/aggregation-2 has other steps .* before it"):
        run_with_key(pl.col("cell") // 100)
    run_with_key(pl.col("cell") // 10)


def test_state_that_was_kept_in_another_form_is_refused() -> None:
    framed = rides().group_by("who").over(before=mr.frames.lag("cell"), lateness="10s")
    made = plan_of(windowed(framed).group_by("cell").count())
    corrected, counted = (stage[0] for stage in (made.stage(1), made.stage(2)))
    for operator in (corrected, counted):
        stored = json.loads(fingerprints.describe(operator))
        assert stored.pop("form") == 2
        why = fingerprints.find_difference(json.dumps(stored), operator)
        assert why == "keeps what it remembers in another form than its state was made with"
    assert all(
        "form" not in json.loads(fingerprints.describe(one))
        for one in plan_of(windowed().group_by("who").count()).stage(1)
    )
