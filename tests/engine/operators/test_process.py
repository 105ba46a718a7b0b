"""Processors: state, timers, alarms, side outputs and broadcast rows; engine and model agree at every step,
in any cuts and after restarts.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import polars as pl
import pytest

import millrace as mr
from millrace import state, watermarks, windows
from millrace.engine.operators import process
from millrace.errors import DefinitionError
from millrace.graph.explain import explain
from millrace.processors import Context
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import On, OnEngine, OnModel, Script


@dataclass
class Happening:
    who: str
    kind: str
    value: int


@dataclass
class Rule:
    kind: str
    least: int


@dataclass
class Report:
    who: str
    label: str
    number: int


@dataclass
class Alert:
    who: str
    kind: str


@dataclass
class Counted:
    label: str
    count: int


HAPPENINGS, RULES = mr.Topic("input.happenings", Happening, partitions=2), mr.Topic("input.rules", Rule)
REPORTS, ALERTS, COUNTED = (
    mr.Topic("reports", Report),
    mr.Topic("alerts", Alert),
    mr.Topic("counted", Counted),
)
ALL = {"input.happenings": 2, "input.rules": 1}


class Everything(mr.Processor):
    """Uses all that there is."""

    outputs: ClassVar = {"label": pl.String, "number": pl.Int64}
    side_outputs: ClassVar = {"alerts": {"kind": pl.String}}
    total = state.value(0, ttl=9)
    last = state.value()
    kinds = state.map(ttl=6)
    values = state.list(ttl=7)
    least = state.map(shared=True)

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        self.total += row["value"]
        self.kinds[row["kind"]] = self.kinds.get(row["kind"], 0) + 1
        self.values.append([row["value"], {"at": ctx.time}])
        ctx.emit(label="total", number=self.total)
        ctx.emit(
            label=f"kinds {sorted(self.kinds.items())} {len(self.values)}",
            number=sum(value for value, _ in self.values),
        )
        if row["value"] >= self.least.get(row["kind"], 4):
            ctx.emit(to="alerts", kind=f"{row['kind']}{self.least.get(row['kind'])}")
        match row["value"]:
            case 0:
                ctx.set_timer("every", ctx.time + 3)
            case 1:
                ctx.set_timer("once", ctx.time - 5)
            case 2:
                ctx.set_timer("clock", ctx.now + 4, time="processing")
            case 3:
                ctx.cancel_timer("every")
                self.kinds.pop("a", None)
            case 4:
                del self.total
                del self.last
                del self.values
                del self.kinds

    def on_timer(self, ctx: Context, name: str) -> None:
        ctx.emit(label=f"{name} {ctx.key['who']} {self.last}", number=self.total)
        self.last = ctx.time
        if name == "every":
            ctx.set_timer("every", ctx.time + 5)
        if name == "clock":
            ctx.set_timer("once", ctx.time + 1)

    def process_broadcast(self, row: dict[str, Any], ctx: Context) -> None:
        assert ctx.key == {}
        self.least[row["kind"]] = row["least"]
        if row["least"] == 1 and len(self.least) > 1:
            del self.least[row["kind"]]


def rows() -> mr.Stream:
    return mr.read(HAPPENINGS, watermark=watermarks.bounded(2, idle=30))


def jobs() -> dict[str, mr.Job]:
    plain = rows().group_by("who").process(Everything())
    rules = mr.read(RULES, watermark=watermarks.bounded(1, idle=9))
    ruled = rows().filter(pl.col("value") >= 0).group_by("who").process(Everything(), broadcast=rules)
    unique = (
        rows()
        .group_by("who")
        .deduplicate("kind", "event_time", within=10)
        .group_by("who")
        .process(Everything())
    )
    counted = plain.window(windows.fixed(10)).group_by("label").count()
    return {
        "plain": mr.Job("plain", plain.write(REPORTS), plain.side_output("alerts").write(ALERTS)),
        "ruled": mr.Job("ruled", ruled.write(REPORTS), ruled.side_output("alerts").write(ALERTS)),
        "unique": mr.Job("unique", unique.write(REPORTS)),
        "chained": mr.Job("chained", counted.write(COUNTED), plain.side_output("alerts").write(ALERTS)),
    }


def events(seed: str, most: int = 110) -> Iterator[SourceEvent]:
    chance, ends, now = random.Random(seed), Counter[tuple[str, int]](), 0
    for _ in range(most):
        now += chance.choice((0, 0, 1, 1, 2))
        at = now - chance.choice((0, 0, 1, 2, 3, 4, 8))
        if chance.randint(0, 4):
            place, values = (
                ("input.happenings", chance.randint(0, 1)),
                {"who": chance.choice("xyz"), "value": chance.randint(-1, 5)},
            )
        else:
            place, values = ("input.rules", 0), {"least": chance.randint(1, 5)}
        yield SourceEvent(*place, ends[place], at, now, {**values, "kind": chance.choice("aab")})
        ends[place] += 1


def cut(made: list[SourceEvent], size: int) -> list[list[SourceEvent]]:
    return [made[i : i + size] for i in range(0, len(made), size)]


def bag(written: Any) -> Counter[Any]:
    return Counter(
        (topic, *sorted(row.items(), key=lambda item: item[0]))
        for topic, shown in written.items()
        for row in shown
    )


def refusals(late: Any) -> Counter[Any]:
    names = ("topic", "partition", "offset", "reason")
    return Counter((job, *(row[name] for name in names)) for job, refused in late.items() for row in refused)


@pytest.mark.parametrize("name", jobs())
@pytest.mark.parametrize("seed", range(2))
def test_engine_and_model_show_and_refuse_the_same_at_every_step(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MAX_DELETED_KEYS", 2)
    job = jobs()[name]
    engine, model = OnEngine([job], ALL, slots=1 + 2 * seed), OnModel([job], ALL)
    batches = cut([event for event in events(f"{name} {seed}") if event.topic in engine.topics], 4 + seed)
    whats, alerts, refused = Counter[str](), 0, 0
    for number, batch in enumerate(batches):
        now = max((event.ingestion_time for event in batch), default=0) + (60 if number == 12 else 0)
        if number % 3 == 2:
            engine.restart()
        ours, theirs = (
            backend.feed(batch, now, end=number == len(batches) - 1) for backend in (engine, model)
        )
        assert bag(ours.written) == bag(theirs.written)
        assert refusals(ours.late) == refusals(theirs.late)
        assert {name: engine.watermarks[name] for name in model.watermarks} == model.watermarks
        whats.update(
            row["label"].split()[0]
            for row in [*ours.written.get("reports", []), *ours.written.get("counted", [])]
        )
        alerts += len(ours.written.get("alerts", []))
        refused += sum(map(len, ours.late.values()))
    assert {"every", "once", "clock", "total", "kinds"} <= whats.keys()
    assert alerts or name == "unique"
    assert refused


def test_what_is_emitted_does_not_depend_on_how_batches_were_cut() -> None:
    made = list(events("cuts"))
    job = mr.Job("ruled", jobs_without_alarms().write(REPORTS))
    answers = []
    for size in (1, 7, len(made)):
        engine, answer = OnEngine([job], ALL, slots=3), Counter[Any]()
        for batch in [*cut(made, size), []]:
            answer += bag(engine.feed(batch, made[-1].ingestion_time, end=not batch).written)
        answers.append(answer)
    assert answers[0] == answers[1] == answers[2]
    assert answers[0].total() > 50


def jobs_without_alarms() -> mr.Stream:
    rules = mr.read(RULES, watermark=watermarks.bounded(1))
    kept = mr.read(HAPPENINGS, watermark=watermarks.bounded(2)).filter(pl.col("value") != 2)
    return kept.group_by("who").process(Everything(), broadcast=rules)


class Counts(mr.Processor):
    """How often its timers fire."""

    outputs: ClassVar = {"label": pl.String, "number": pl.Int64}
    seen = state.value(0)

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        self.seen += 1
        ctx.set_timer(row["kind"], row["event_time"] + row["value"])

    def on_timer(self, ctx: Context, name: str) -> None:
        ctx.emit(label=name, number=self.seen)


@pytest.mark.parametrize("on", ["model", "engine", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_timer_fires_once_after_the_rows_before_it_and_before_the_others(on: On) -> None:
    script = Script(mr.Job("counts", rows().group_by("who").process(Counts()).write(REPORTS)), on=on)

    def fired() -> list[tuple[str, int, int]]:
        return [(row["label"], row["number"], row["event_time"]) for row in script.panes()]

    row = {"who": "x", "kind": "late", "value": 10, "event_time": 5}
    script.events(
        {**row, "event_time": 15, "kind": "other", "value": 100},
        row,
        {**row, "event_time": 14, "value": 50, "kind": "third"},
    )
    script.watermark(15)
    assert fired() == [("late", 2, 15)]
    script.restart()
    script.watermark(16)
    assert fired() == []
    script.events({**row, "kind": "third", "event_time": 70, "value": 1})
    script.watermark(70)
    assert fired() == [("third", 3, 64)]
    script.watermark(100)
    assert fired() == [("third", 4, 71)]
    script.end()
    assert fired() == [("other", 4, 115)]
    script.close()


def test_only_keys_that_something_happens_to_are_written_and_old_ones_are_forgotten() -> None:
    class Lasting(Counts):
        seen = state.value(0, ttl=20)

        def process(self, row: dict[str, Any], ctx: Context) -> None:
            self.seen += 1

    job = mr.Job(
        "counts",
        mr.read(HAPPENINGS, watermark=watermarks.bounded(0))
        .group_by("who")
        .process(Lasting())
        .write(REPORTS),
    )
    engine = OnEngine([job], {"input.happenings": 1}, slots=1)
    sizes = []
    for at in range(0, 900, 3):
        engine.feed(
            [SourceEvent("input.happenings", 0, at, at, at, {"who": f"{at}", "kind": "a", "value": 0})], at
        )
        sizes.append(engine.engine.states[1, 0].table("counts/process-1", "kept").rows)
    assert sizes[1] == 1
    assert max(sizes) < 6 * 20 / 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rows().group_by("who").process(cast(Any, Everything)), "Everything is a class"),
        (
            lambda: (
                rows()
                .window(windows.fixed(5), lateness=1)
                .group_by("who")
                .count()
                .group_by("who")
                .process(Everything())
            ),
            "may still be refined",
        ),
        (lambda: rows().group_by("who").process(Everything()).side_output("nothing"), "has 'alerts'"),
        (lambda: rows().side_output("nothing"), "follows process"),
        (
            lambda: (
                rows().group_by("who").process(type("Same", (Everything,), {"outputs": {"who": pl.String}})())
            ),
            "have a column of that name",
        ),
        (
            lambda: (
                rows().group_by("who").process(type("To", (Everything,), {"outputs": {"to": pl.String}})())
            ),
            "emit\\(to=...\\) names a side output; use another name",
        ),
        (lambda: Everything().total, "state belongs to a key"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        make()


class Wrong(Counts):
    """Does what it must not."""

    rules = state.map(shared=True)

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        match row["kind"]:
            case "tuple":
                self.seen = (1, 2)  # type: ignore[assignment]  # refused at run time, too
            case "shared":
                self.rules["a"] = 1
            case "missing":
                ctx.emit(label="a")
            case "elsewhere":
                ctx.emit(label="a", number=1, to="alert")
            case _:
                self.rules = {}  # type: ignore[assignment]  # refused at run time, too


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("tuple", "is tuple, which would not come back"),
        ("shared", "process_broadcast"),
        ("missing", "has the columns label, number"),
        (
            "elsewhere",
            "emit\\(to='alert'\\) names no side output, so the row would be lost; .* which has none",
        ),
        ("set", "change it in place"),
    ],
)
def test_a_mistake_in_a_processor_is_named(kind: str, message: str) -> None:
    script = Script(mr.Job("wrong", rows().group_by("who").process(Wrong()).write(REPORTS)))
    script.events({"who": "x", "kind": kind, "value": 1, "event_time": 1})
    with pytest.raises(DefinitionError, match=message):
        script.watermark(5)


def test_a_processor_explains_itself() -> None:
    message = explain([jobs()["ruled"]])
    assert "process ruled/process-1" in message
    assert (
        "Everything(kinds=map(), last=value(), least=map(shared), total=value(), values=list()) by who"
        in message
    )


class Announces(Counts):
    """Emits for a rule, which belongs to no key."""

    def process_broadcast(self, row: dict[str, Any], ctx: Context) -> None:
        ctx.emit(label="rule", number=1)


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_broadcast_row_emits_nothing_as_it_has_no_key(on: On) -> None:
    rules = mr.read(RULES, watermark=watermarks.bounded(1))
    job = mr.Job("announces", rows().group_by("who").process(Announces(), broadcast=rules).write(REPORTS))
    script = Script(job, on=on)
    script.events({"kind": "a", "least": 1, "event_time": 1}, topic=RULES)
    with pytest.raises(DefinitionError, match=r"emit\(\) belongs to a key, .*; call it in process\(\)"):
        script.watermark(5)
