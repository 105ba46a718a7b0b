"""A field appended to an event type: rows that are kept have null in it,
and every operator goes on with its state.
"""

import dataclasses
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import polars as pl
import pyarrow as pa
import pytest

import millrace as mr
from millrace import config, patterns, state, watermarks, windows
from millrace.errors import JobQuarantined, StateMismatch, StateUnreadable
from millrace.log import OutgoingRecords, open_log
from millrace.log.codecs.codec import decode, encode
from millrace.processors import Context, Processor
from millrace.runners import run
from millrace.runners.state.folder import lock_folder
from millrace.runners.state.savepoint import save
from millrace.stream import Stream

pytestmark = pytest.mark.slow


def _narrow() -> type:
    @dataclass
    class Ride:
        who: str
        n: int

    return Ride


def _wide() -> type:
    @dataclass
    class Ride:
        who: str
        n: int
        extra: str | None

    return Ride


NARROW, WIDE = _narrow(), _wide()
A, B = pl.col("n") > 1, pl.col("n") % 5 == 3


def topic_of(kind: Any) -> mr.Topic:
    """The topic of an event type, or the one that is given."""
    return kind if isinstance(kind, mr.Topic) else mr.Topic("rides", kind, key="who", partitions=1)


def rides(kind: Any) -> Stream:
    return mr.read(topic_of(kind), watermark=watermarks.bounded("10s"))


def windowed(stream: Stream) -> Stream:
    return stream.window(windows.fixed("10s"), lateness="1h")


def matched(pattern: Any) -> Callable[[type], Stream]:
    return lambda kind: (
        rides(kind)
        .group_by("who")
        .match(pattern.within("60s"), select={"x": patterns.last("b", "n"), "y": patterns.first("a", "n")})
    )


class Kept(Processor):
    """Keeps numbers and rows, and has timers set."""

    outputs: ClassVar = {"x": pl.Int64, "y": pl.Int64}
    total = state.value(0)
    rows = state.list()

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        self.total += row["n"]
        self.rows.append({name: value for name, value in row.items() if name not in mr.topics.SYSTEM_COLUMNS})
        if row["n"] % 10 < 2:
            ctx.set_timer("soon", ctx.time + 7_000)

    def on_timer(self, ctx: Context, name: str) -> None:
        ctx.emit(x=self.total, y=sum(row["n"] for row in self.rows if not row.get("extra")))


STREAMS: dict[str, Callable[[type], Stream]] = {
    "relaxed pattern": matched(
        mr.pattern("a", A).followed_by("b", B & (pl.col("n") > patterns.last("a", "n")))
    ),
    "strict pattern": matched(mr.pattern("a", A).next("b", B)),
    "after a step": lambda kind: (
        rides(kind)
        .with_columns(m=pl.col("n") * 2)
        .group_by("who")
        .match(
            mr.pattern("a", A).followed_by("b", pl.col("m") > patterns.last("a", "m") + 8).within("60s"),
            select={"x": patterns.last("b", "m")},
        )
    ),
    "row pattern": lambda kind: (
        rides(kind)
        .group_by("who")
        .match_recognize(
            "ORDER BY event_time MEASURES A.n AS x, LAST(B.n) AS y PATTERN (A B{3}) WITHIN INTERVAL '1' "
            "MINUTE DEFINE B AS B.n > A.n"
        )
    ),
    "deduplication in order": lambda kind: (
        windowed(rides(kind).group_by("who").deduplicate("n", within="1m")).group_by("who").count()
    ),
    "deduplication at once": lambda kind: (
        windowed(rides(kind).group_by("who").deduplicate("event_time", within="1m")).group_by("who").count()
    ),
    "fixed windows": lambda kind: windowed(rides(kind)).group_by("who").sum("n"),
    "sessions": lambda kind: (
        rides(kind).window(windows.sessions("1s"), lateness="1h").group_by("who").sum("n")
    ),
    "counted windows": lambda kind: rides(kind).window(windows.counted(3)).group_by("who").sum("n"),
    "processor": lambda kind: rides(kind).group_by("who").process(Kept()),
    "join in windows": lambda kind: (
        windowed(rides(kind).select("who", "n"))
        .group_by("who")
        .join(windowed(rides(kind).select("who", m="n")).group_by("who"))
        .select("who", "n", "m")
    ),
    "interval join": lambda kind: (
        rides(kind)
        .select("who", "n")
        .group_by("who")
        .join(rides(kind).select("who", m="n").group_by("who"), within=("-5s", "5s"))
    ),
}


def in_avro(topic: mr.Topic, frame: pl.DataFrame) -> OutgoingRecords:
    """Records as others write them."""
    schema, values = fastavro.parse_schema(json.loads(str(topic.avro))), []
    for row in frame.iter_rows(named=True):
        body = io.BytesIO()
        fastavro.schemaless_writer(body, schema, row)
        values.append(body.getvalue())
    return OutgoingRecords(
        pa.array(values, pa.binary()), pa.array(frame["who"].cast(pl.Binary).to_list(), pa.binary())
    )


def results(
    stream: Callable[[type], Stream],
    folder: Path,
    *steps: tuple[Any, int, int],
    moved: bool = False,
    migrate: Any = None,
) -> list[tuple[Any, ...]]:
    """What a job has written after rows of these types, each in a run of its own, in the state of the one
    before, or `moved` by a savepoint.
    """
    log = open_log(f"embedded:{folder / 'log'}")
    settings = config.Settings().with_options(
        log_url=log.url, state_dir=folder / "state", run_max_events_per_batch=7
    )
    restore: dict[str, Any] = {}
    for kind, first, last in steps:
        topic = topic_of(kind)
        log.ensure(topic)
        number = pl.int_range(first, last, eager=True)
        frame = pl.DataFrame({"n": number, "event_time": number * 1000, "ingestion_time": number * 1000})
        frame = frame.with_columns(
            who=pl.format("k{}", pl.col("n") % 2),
            event_at=number * 1000,
            extra=pl.lit("" if hasattr(kind, "DESCRIPTOR") else None, pl.String),
        )
        log.append(
            "rides",
            (encode if topic.avro is None else in_avro)(
                topic, frame.select(*topic.schema, "event_time", "ingestion_time")
            ),
        )
        made = stream(kind)
        columns = {
            name: str if dtype == pl.String else int
            for name, dtype in made.node.schema.items()
            if name not in mr.topics.SYSTEM_COLUMNS
        }
        out = mr.Topic(
            "out",
            dataclasses.make_dataclass("Result", [(name, type_ | None) for name, type_ in columns.items()]),
        )
        run(mr.Job("job", made.write(out)), on="local", settings=settings, until_caught_up=True, **restore)
        if migrate:
            restore = {"migrate": migrate}
        if moved:
            with lock_folder(settings.state.dir / settings.run.name) as held:
                save(held, folder / f"{last}.savepoint")
            restore = {"restore": folder / f"{last}.savepoint"}
            settings = settings.with_options(state_dir=folder / f"state {last}")
    frames = [
        decode(out, p, log.read("out", p, 0, end), panes=True).rows
        for p, end in log.end_offsets("out").items()
    ]
    return sorted(pl.concat(frames).select(*columns, "window_end", "index").rows(), key=str)


@pytest.mark.parametrize("kind", STREAMS)
def test_a_field_appended_to_a_type_leaves_the_results_as_they_are(kind: str, tmp_path: Path) -> None:
    grown = results(STREAMS[kind], tmp_path / "grown", (NARROW, 0, 25), (WIDE, 25, 60))
    moved = results(STREAMS[kind], tmp_path / "moved", (NARROW, 0, 25), (WIDE, 25, 60), moved=True)
    assert moved == grown
    assert grown == results(STREAMS[kind], tmp_path / "same", (NARROW, 0, 25), (NARROW, 25, 60))
    assert grown, "there are results"


def test_a_join_that_shows_all_columns_says_that_they_have_changed(tmp_path: Path) -> None:
    def all_columns(kind: type) -> Stream:
        return (
            rides(kind)
            .group_by("who")
            .join(rides(kind).select("who", m="n").group_by("who"), within=("-5s", "5s"))
            .select("who", "n", "m")
        )

    with pytest.raises(StateMismatch, match=r"interval_join-1 .* than its state was made with.* --reset job"):
        results(all_columns, tmp_path, (NARROW, 0, 25), (WIDE, 25, 60))


def test_a_join_with_a_table_that_has_got_a_field_says_that_it_has_changed(tmp_path: Path) -> None:
    def joined(kind: type) -> Stream:
        table = mr.table(
            mr.Topic("rides", kind, key="who", partitions=1), watermark=watermarks.bounded("10s")
        )
        return rides(kind).select("who", x="n").group_by("who").join(table).select("who", "x", "n")

    with pytest.raises(StateMismatch, match=r"table_join-1 .* than its state was made with.* --reset job"):
        results(joined, tmp_path, (NARROW, 0, 25), (WIDE, 25, 60))


def test_stored_rows_that_the_engine_cannot_use_are_blamed_on_no_job(tmp_path: Path) -> None:
    def cut(operator: str, table: str, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.drop(frame.columns[-1])

    for number, kind in enumerate(
        (
            "row pattern",
            "deduplication in order",
            "fixed windows",
            "counted windows",
            "processor",
            "interval join",
        )
    ):
        folder = tmp_path / str(number)
        with pytest.raises(
            StateUnreadable, match=r"job/\w+-\d: rows as they are stored do not fit .*--reset job"
        ) as raised:
            results(STREAMS[kind], folder, (NARROW, 0, 25), (NARROW, 25, 60), migrate={"job": cut})
        assert "\n" not in str(raised.value)
        assert not (folder / "state/millrace/quarantine.json").exists(), kind


def test_a_processor_that_expects_another_column_is_blamed_itself(tmp_path: Path) -> None:
    class Wrong(Processor):
        outputs: ClassVar = {"x": pl.Int64}
        total = state.value(0)

        def process(self, row: dict[str, Any], ctx: Context) -> None:
            self.total += 1
            if self.total > 5:
                pl.DataFrame({"n": [row["n"]]}).select("m")
            ctx.emit(x=self.total)

    with pytest.raises(JobQuarantined, match="ColumnNotFoundError"):
        results(lambda kind: rides(kind).group_by("who").process(Wrong()), tmp_path, (NARROW, 0, 60))
