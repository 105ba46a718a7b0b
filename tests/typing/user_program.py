"""Every public name, as a user writes it. `test_types.py` checks it from the outside, as a user of the
installed package does.

`assert_type` pins the type of a result, and mypy refuses every expression of type Any.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, assert_type

import polars as pl

import millrace as mr
from millrace import aggregates, evictors, frames, patterns, state, testing, triggers, watermarks, windows
from millrace.stream import Output

Row: TypeAlias = dict[str, object]


@dataclass
class Reading:
    sensor: str
    value: float
    is_last: bool
    round: int = 0


@dataclass
class Total:
    sensor: str
    value: float


READINGS = mr.Topic("input.readings", Reading, key="sensor")
TOTALS = mr.Topic("analytics.totals", Total, key="sensor", compact=True)
assert_type(READINGS, mr.Topic)
assert_type(READINGS.schema, pl.Schema)
assert_type(mr.__version__, str)

# Streams

readings = mr.read(READINGS, watermark=watermarks.bounded("5s", idle="10s"))
assert_type(readings, mr.Stream)
assert_type(readings.columns, list[str])
assert_type(readings.filter(pl.col("value") > 0, is_last=False), mr.Stream)
assert_type(readings.select("sensor", doubled=pl.col("value") * 2), mr.Stream)
assert_type(readings.with_columns(doubled=pl.col("value") * 2), mr.Stream)
assert_type(readings.select(tags=pl.col("sensor").str.split("/")).explode("tags"), mr.Stream)
assert_type(readings.map_batches(lambda frame: frame.head()), mr.Stream)
assert_type(readings.union(readings), mr.Stream)
assert_type(readings.named("all-readings"), mr.Stream)
assert_type(readings.spread(8), mr.Keyed)
assert_type(readings.group_by("sensor").deduplicate("event_time", within="1m").parallelism(2), mr.Stream)


def double(row: Row) -> Iterator[Row]:
    """A row twice."""
    yield row
    yield row


async def place_of(sensor: str) -> dict[str, str]:
    """Where a sensor is."""
    return {"place": sensor}


assert_type(readings.flat_map(double, schema={"sensor": pl.String}), mr.Stream)
assert_type(readings.lookup(place_of, "sensor", schema={"place": pl.String}), mr.Stream)

# Where, when, how

each_window = [
    windows.fixed("1m", offset="5s"),
    windows.sliding("1m", every="10s"),
    windows.sessions("30s"),
    windows.global_window(),
    windows.processing_time(windows.fixed("1m")),
    windows.counted(10, every=5),
    windows.delta("value", 0.5),
    windows.punctuated(pl.col("is_last")),
]
assert_type(each_window[0], windows.WindowFn)
bounds: windows.Window = (0, 60_000)


class Hours(windows.WindowFn):
    """Windows of a user's own."""

    def assign(self, at: int) -> list[windows.Window]:
        """The hour that contains `at`."""
        start = at // 3_600_000 * 3_600_000
        return [(start, start + 3_600_000)]


each_trigger: list[triggers.Trigger] = [
    triggers.at_watermark(early=triggers.every("1s"), late=triggers.never()),
    triggers.every("5s", time="event"),
    triggers.repeatedly(triggers.after_count(100)),
    triggers.any_of(triggers.after_delay("1s"), triggers.at_end()),
    triggers.all_of(triggers.after_count(1), triggers.after_delay("1s")),
    triggers.in_order(triggers.after_count(1), triggers.at_window_end()),
    triggers.after_count(3).until(triggers.at_end()),
]


class AfterValues(triggers.TriggerFn):
    """A trigger of a user's own: after so many values, at a time that a row asks for, and finished by 0."""

    count = state.value(0)
    seen: state.ListState[float] = state.list()

    def __init__(self, values: int) -> None:
        """After how many."""
        self.values = values

    def on_start(self, ctx: triggers.TriggerContext) -> None:
        """It begins."""
        assert_type(ctx.window, tuple[int, int])
        ctx.set_timer(ctx.window[1])

    def on_element(self, row: Row, ctx: triggers.TriggerContext) -> triggers.TriggerResult:
        """One row."""
        self.count += 1
        self.seen.append(0.5)
        assert_type(self.count, int)
        ctx.set_timer(ctx.now + 1_000, time="processing")
        return triggers.FIRE if self.count >= self.values else triggers.CONTINUE

    def on_event_time(self, time: int, ctx: triggers.TriggerContext) -> triggers.TriggerResult:
        """The end of the window."""
        assert_type(ctx.watermark, int | None)
        ctx.cancel_timer(time)
        return triggers.FINISH

    def on_processing_time(self, time: int, ctx: triggers.TriggerContext) -> triggers.TriggerResult:
        """A second later."""
        return triggers.FIRE

    def on_merge(
        self, parts: Sequence[Mapping[str, object]], ctx: triggers.TriggerContext
    ) -> triggers.TriggerResult:
        """Windows become one."""
        self.count = len(parts)
        return triggers.CONTINUE

    def on_fire(self, ctx: triggers.TriggerContext) -> None:
        """A pane was shown."""
        self.count = 0
        del self.seen


each_trigger.append(triggers.repeatedly(AfterValues(3)).until(triggers.at_end()))
each_evictor: list[evictors.Evictor] = [
    evictors.last(3),
    evictors.within("10s"),
    evictors.delta("value", 0.5),
    evictors.custom(lambda rows: rows.head(3)),
]
each_watermark: list[watermarks.Watermark] = [
    watermarks.ascending(),
    watermarks.bounded("1s"),
    watermarks.ingestion_time(),
    watermarks.percentile(0.99, start="10s"),
    watermarks.punctuation(pl.col("is_last")),
    watermarks.upstream(),
]
windowed = readings.window(
    windows.fixed("1m"),
    trigger=triggers.at_watermark(),
    lateness="1m",
    accumulation="retracting",
    on_time="if_new",
    closing="always",
    time="latest",
)
assert_type(windowed, mr.Stream)
assert_type(readings.window(windows.sessions("1m"), evict=each_evictor[0]), mr.Stream)

# What


class Spread(aggregates.Aggregate):
    """An aggregate of a user's own: the greatest value less the smallest."""

    returns = pl.Float64()

    def create(self) -> list[float]:
        """No value yet."""
        return [math.inf, -math.inf]

    def add(self, state: list[float], value: float) -> list[float]:
        """One more value."""
        return [min(state[0], value), max(state[1], value)]

    def merge(self, one: list[float], other: list[float]) -> list[float]:
        """The values of either."""
        return [min(one[0], other[0]), max(one[1], other[1])]

    def result(self, state: list[float]) -> float:
        """The difference."""
        return state[1] - state[0]


every_aggregate: dict[str, aggregates.Reduction] = {
    "count": aggregates.count(),
    "sum": aggregates.sum("value"),
    "mean": aggregates.mean("value"),
    "stddev": aggregates.stddev("value"),
    "min": aggregates.min("value"),
    "max": aggregates.max("value"),
    "latest": aggregates.latest("value"),
    "earliest": aggregates.earliest("value"),
    "collect": aggregates.collect("value"),
    "distinct": aggregates.distinct("value", approx=True),
    "quantiles": aggregates.quantiles("value", [0.5, 0.99]),
    "top": aggregates.top(3, "value"),
}
by_sensor = windowed.group_by("sensor")
assert_type(by_sensor, mr.Keyed)
for grouped in (windowed, by_sensor):
    assert_type(grouped.aggregate(**every_aggregate, spread=Spread("value")), mr.Stream)
    assert_type(grouped.count(name="n"), mr.Stream)
    assert_type(grouped.sum("value"), mr.Stream)
    assert_type(grouped.mean("value"), mr.Stream)
    assert_type(grouped.stddev("value"), mr.Stream)
    assert_type(grouped.min("value"), mr.Stream)
    assert_type(grouped.max("value"), mr.Stream)
    assert_type(grouped.latest("value"), mr.Stream)
    assert_type(grouped.earliest("value"), mr.Stream)
    assert_type(grouped.collect("value"), mr.Stream)
    assert_type(grouped.distinct("value"), mr.Stream)
    assert_type(grouped.quantiles("value", [0.5]), mr.Stream)
    assert_type(grouped.top(3, by="value"), mr.Stream)
    assert_type(grouped.count("sensor", where=pl.col("value") > 0, distinct=True), mr.Stream)
    assert_type(grouped.mean(pl.col("value") * 2, name="twice", where="is_last"), mr.Stream)
    assert_type(
        grouped.top(3, "is_last", by=["value", pl.col("round") % 2], descending=[True, False], explode=True),
        mr.Stream,
    )
assert_type(windowed.group_by("sensor", hour=pl.col("event_time") // 3_600_000), mr.Keyed)
large = pl.col("value") > 100
some_rows: dict[str, aggregates.Reduction | aggregates.Aggregate] = {
    "n": aggregates.count(where=large),
    "total": aggregates.sum(pl.col("value") * pl.col("round"), where="is_last", distinct=True),
    "rounds": aggregates.collect("round", distinct=True),
    "top": aggregates.top(3, "sensor", by=["value", "round"], descending=[True, False], ranks=True),
    "spread": Spread(pl.col("value").abs(), where=large),
}
assert_type(windowed.aggregate(**some_rows), mr.Stream)
totals = by_sensor.sum("value")
assert_type(totals.late(), mr.Stream)

# Joins

limits = mr.table(TOTALS, deleted=pl.col("value") < 0)
assert_type(limits, mr.Table)
assert_type(by_sensor.join(by_sensor, how="left"), mr.Stream)
assert_type(readings.group_by("sensor").join(limits), mr.Stream)
assert_type(readings.group_by("sensor").join(readings.group_by("sensor"), how="semi", ttl="1h"), mr.Stream)
assert_type(readings.join_scalar(readings.count()), mr.Stream)
assert_type(readings.group_by("sensor").join(readings.group_by("sensor"), within=("-5s", "5s")), mr.Stream)
assert_type(by_sensor.cogroup(by_sensor), mr.Stream)
assert_type(readings.group_by("sensor").deduplicate("event_time", within="1m"), mr.Stream)

# Row frames

around = readings.group_by("sensor").over(
    total=aggregates.sum("value"),
    spread=Spread("value"),
    before=frames.lag("value", 2),
    after=frames.lead("value", within="1m"),
    first=frames.first("value"),
    last=frames.last("value"),
    number=frames.row_number(),
    rows=10,
    ttl="1d",
    lateness="1m",
)
assert_type(around, mr.Stream)
assert_type(readings.group_by("sensor").over(total=aggregates.sum("value"), rows=(None, -1)), mr.Stream)
assert_type(readings.group_by("sensor").over(n=aggregates.count(), range=("-10m", "-1ms")), mr.Stream)
functions: list[frames.FrameFunction] = [frames.lag("value"), frames.row_number()]

# Patterns

rising: patterns.Pattern = (
    mr.pattern("start", pl.col("value") < 1)
    .next("rise", pl.col("value") > patterns.previous("value"))
    .one_or_more()
    .followed_by("top", pl.col("value") > patterns.first("start", "value") + patterns.avg("rise", "value"))
    .within("1m")
    .skip_past_last()
)
assert_type(patterns.pattern("one"), patterns.Pattern)
found = readings.group_by("sensor").match(
    rising,
    select={
        "last": patterns.last("top", "value"),
        "rises": patterns.count("rise"),
        "least": patterns.min("rise", "value"),
        "most": patterns.max("rise", "value"),
        "sum": patterns.sum("rise", "value"),
        "all": patterns.collect("rise", "value"),
    },
)
assert_type(found, mr.Stream)
assert_type(found.timeouts(), mr.Stream)
in_sql = mr.match_recognize(
    "UP+", define={"UP": "value > PREV(value)"}, measures={"n": "COUNT(*)"}, within="1m"
)
assert_type(in_sql, patterns.RowPattern)
assert_type(patterns.match_recognize("UP+"), patterns.RowPattern)
assert_type(patterns.parse_match_recognize("PATTERN (UP+)"), patterns.RowPattern)
assert_type(readings.group_by("sensor").match_recognize(in_sql), mr.Stream)
RULES = mr.Topic("input.rules", patterns.Rule, key="name")
assert_type(readings.group_by("sensor").match_rules(mr.read(RULES), show=["value"]), mr.Stream)
assert_type(mr.sql("SELECT 1", frame=pl.DataFrame()), pl.DataFrame)

# Processors, state and timers


class Quiet(mr.Processor):
    """Reports sensors that are quiet."""

    outputs = {"seen": pl.Int64, "last": pl.List(pl.Float64)}  # noqa: RUF012 - a class need not say so
    side_outputs: ClassVar = {"alerts": {"value": pl.Float64}}
    seen = state.value(0, ttl="1h")
    newest: state.ValueState[float | None] = state.value(None)
    values: state.ListState[float] = state.list(ttl="1h")
    counts: state.MapState[str, int] = state.map()
    limits: state.MapState[str, float] = state.map(shared=True)

    def process(self, row: Row, ctx: mr.Context) -> None:
        """One reading."""
        sensor, value = str(row["sensor"]), row["value"]
        assert isinstance(value, float)
        self.seen += 1
        self.newest = value
        self.values.append(value)
        self.counts[sensor] = self.counts.get(sensor, 0) + 1
        assert_type(self.seen, int)
        assert_type([*self.values], list[float])
        assert_type(self.counts[sensor], int)
        assert_type(ctx.time, int)
        if value > self.limits.get(sensor, math.inf):
            ctx.emit(value=value, to="alerts")
        ctx.set_timer("quiet", ctx.time + 30_000)
        ctx.set_timer("report", ctx.now + 60_000, time="processing")

    def on_timer(self, ctx: mr.Context, name: str) -> None:
        """No other came."""
        if ctx.time_domain == "event":
            ctx.emit(seen=self.seen, last=[*self.values])
            del self.seen
        ctx.cancel_timer(name)

    def process_broadcast(self, row: Row, ctx: mr.Context) -> None:
        """A limit."""
        limit = row["value"]
        assert isinstance(limit, float)
        self.limits[str(row["sensor"])] = limit


assert_type(Quiet.seen, state.ValueState[int])
quiet = readings.group_by("sensor").process(Quiet(), broadcast=mr.read(TOTALS))
assert_type(quiet, mr.Stream)
assert_type(quiet.side_output("alerts"), mr.Stream)

# Jobs

job = mr.Job("totals", totals.write(TOTALS), delivery="at_least_once")
assert_type(job, mr.Job)
assert_type(totals.write(TOTALS), Output)
assert_type(mr.feed_back(readings, READINGS, rounds=3), Output)


def run_jobs() -> None:
    """What runs: now, over what was, and in a test."""
    mr.run(job, on="local", until_caught_up=True, report=lambda batch: print(batch.counts))
    assert_type(mr.replay(job, "readings.csv"), pl.DataFrame)
    assert_type(mr.backfill(job, version="2").switched, bool)
    script = testing.Script(job, on="engine")
    script.events({"sensor": "a", "value": 1.0, "is_last": False, "event_time": 1_000})
    script.watermark("1m")
    rows: list[Row] = script.panes(TOTALS)
    assert rows


from_dataframe = mr.from_dataframe
