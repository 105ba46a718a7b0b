"""Row patterns on streams: engine and model agree, state is bounded, and unbounded clauses are refused."""

import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

import millrace as mr
from millrace import panes, testing, watermarks
from millrace.durations import END_OF_STREAM
from millrace.errors import DefinitionError
from millrace.patterns import RowPattern, match_recognize
from millrace.patterns.sql.matcher import SqlPartition
from millrace.patterns.sql.streams import stream_matcher
from millrace.testing.transcripts.running import find_failure

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts" / "rows"


@dataclass
class Reading:
    """A measured value."""

    key: str
    value: int


READINGS = mr.Topic("input.readings", Reading, key="key")
SCHEMA = pl.Schema(
    {"key": pl.String(), "value": pl.Int64(), "event_time": pl.Int64(), "ingestion_time": pl.Int64()}
)


def job(clause: RowPattern | str) -> mr.Job:
    stream = mr.read(READINGS, watermark=watermarks.bounded(0)).group_by("key").match_recognize(clause)
    return mr.Job("rows", stream.write(mr.Topic("analytics.rows", shown_type(stream), key="key")))


def shown_type(stream: mr.Stream) -> type:
    """A type with the columns of a stream."""
    kinds: dict[Any, type] = {pl.String(): str, pl.Int64(): int, pl.Float64(): float, pl.Boolean(): bool}
    own = [name for name in stream.columns if name not in ("event_time", "ingestion_time", *panes.COLUMNS)]
    return make_dataclass("Shown", [(name, kinds[stream.node.schema[name]] | None) for name in own])


def run_job(clause: RowPattern | str, on: testing.On, seed: int) -> list[dict[str, Any]]:
    """What a job shows of random rows that come out of order, in random batches, with restarts."""
    chance, time = random.Random(seed), 0
    found: list[dict[str, Any]] = []
    with closing(testing.Script(job(clause), on=on)) as script:
        for _ in range(8):
            time += chance.randint(0, 4)
            events = [
                {
                    "key": chance.choice("xy"),
                    "value": chance.randint(0, 5),
                    "event_time": time + chance.randint(0, 3),
                }
                for _ in range(chance.randint(0, 4))
            ]
            if events:
                script.events(*events)
            script.watermark(time)
            if chance.random() < 0.3:
                script.restart()
            found += script.panes()
        script.watermark(END_OF_STREAM)
        found += script.panes()
    return sorted(
        found,
        key=lambda pane: (pane["key"], pane["window_start"], pane["event_time"], pane["index"], str(pane)),
    )


FALL = match_recognize(
    "A B+",
    define={"B": "value < PREV(value)"},
    measures={"top": "FIRST(value)", "low": "LAST(value)"},
    within=6,
)


@pytest.mark.parametrize(
    "clause",
    [
        FALL,
        match_recognize(
            "A B+?",
            define={"A": "value > 1", "B": "B.value < A.value"},
            measures={"n": "COUNT(*)"},
            after_match_skip="to next",
            within=5,
        ),
        match_recognize(
            "B",
            define={"B": "value > PREV(value)"},
            measures={"before": "PREV(value)", "number": "MATCH_NUMBER()"},
            within=5,
        ),
        match_recognize(
            "A (B | C)*",
            define={"A": "value = 3", "B": "value > 3"},
            measures={"label": "CLASSIFIER()"},
            rows_per_match="all",
            within=4,
        ),
        match_recognize(
            "A B?",
            define={"A": "value = 1", "B": "value = 2"},
            rows_per_match="all with unmatched rows",
            measures={"n": "COUNT(*)"},
            within=4,
        ),
        (
            "MEASURES SUM(A.value) AS total PATTERN (A{2,3} B) WITHIN INTERVAL '0.006' SECOND DEFINE A AS "
            "value > 1, B AS value <= 1"
        ),
    ],
    ids=["falling", "reluctant", "looking back", "all rows", "unmatched", "in SQL"],
)
def test_the_engine_shows_what_the_model_shows(clause: RowPattern | str) -> None:
    shown = 0
    for seed in range(2):
        wanted = run_job(clause, "model", seed)
        assert run_job(clause, "engine", seed) == wanted
        shown += len(wanted)
    assert shown > 1


@pytest.mark.parametrize("path", sorted(TRANSCRIPTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_transcripts_hold_as_jobs_too(path: Path) -> None:
    """As Spark runs them: their rows are events, in batches, with a restart."""
    documents = list(yaml.safe_load_all(path.read_text()))
    found = [
        (document["name"], find_failure(document, as_job, number))
        for number, document in enumerate(documents)
    ]
    assert {name: why for name, why in found if why is not None} == {}


def as_job(jobs: Sequence[mr.Job], partitions: Mapping[str, int]) -> testing.Backend:
    return testing.backend(jobs, partitions, "engine")


def test_a_match_is_a_pane_from_its_first_row_to_its_last() -> None:
    with closing(testing.Script(job(FALL))) as script:
        script.events(
            *(
                {"key": "x", "value": value, "event_time": time}
                for time, value in ((10, 5), (12, 3), (13, 1), (14, 9))
            )
        )
        script.watermark(20)
        [pane] = script.panes()
    assert (pane["top"], pane["low"], pane["window_start"], pane["window_end"], pane["event_time"]) == (
        5,
        1,
        10,
        14,
        13,
    )


def test_a_match_takes_rows_with_which_no_match_begins() -> None:
    clause = match_recognize(
        "A B", define={"A": "value = 5", "B": "value = 1"}, measures={"n": "COUNT(*)"}, within=6
    )
    with closing(testing.Script(job(clause))) as script:
        for time, value in ((10, 5), (12, 1)):
            script.events({"key": "x", "value": value, "event_time": time})
            script.watermark(time + 1)
        assert [(pane["window_start"], pane["n"]) for pane in script.panes()] == [(10, 2)]


def test_the_last_row_comes_less_than_the_bound_after_the_first() -> None:
    with closing(testing.Script(job(FALL))) as script:
        script.events(*({"key": key, "value": 5, "event_time": 10} for key in "xy"))
        script.events({"key": "x", "value": 1, "event_time": 15}, {"key": "y", "value": 1, "event_time": 16})
        script.watermark(30)
        assert [(pane["key"], pane["low"]) for pane in script.panes()] == [("x", 1)]


def test_state_is_dropped_when_within_is_over() -> None:
    matcher = stream_matcher(FALL, SCHEMA, ("key",))
    known: dict[tuple[Any, ...], SqlPartition] = {}
    sizes = []
    for time in range(60):
        rows_now = pl.DataFrame([(f"k{time}", 5, time, time)], schema=SCHEMA, orient="row")
        changed, _ = matcher.step(known, rows_now, time + 1, is_ended=False)
        known |= {key: course for key, course in changed.items() if course is not None}
        known = {key: course for key, course in known.items() if changed.get(key, course) is not None}
        sizes.append(sum(len(course.rows) for course in known.values()))
    assert set(sizes[10:]) == {5}


@pytest.mark.parametrize(
    ("clause", "why"),
    [
        (
            match_recognize("A B", measures={"n": "COUNT(*)"}),
            "has no bound, so on a stream rows would be kept for ever",
        ),
        (
            match_recognize("^ A", measures={"n": "COUNT(*)"}, within=5),
            "the partition of a stream has no end; leave out",
        ),
        (match_recognize("A", measures={"n": "NEXT(value)"}, within=5), "reads rows after the match"),
        (
            match_recognize("A", measures={"n": "COUNT(*)"}, partition_by=["value"], within=5),
            "PARTITION BY value, but the key is key",
        ),
        (
            match_recognize("A", measures={"n": "COUNT(*)"}, order_by=["value"], within=5),
            "rows of a stream come in order of event_time",
        ),
        (
            match_recognize("A", measures={"window_start": "COUNT(*)"}, within=5),
            "a measure cannot be named 'window_start'",
        ),
        (match_recognize("A", within=5), "has no result columns"),
    ],
)
def test_a_clause_that_a_stream_cannot_decide_is_refused(clause: RowPattern, why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        mr.read(READINGS).group_by("key").match_recognize(clause)


def test_sql_queries_frames() -> None:
    frame = pl.DataFrame({"id": [1, 2, 3], "v": [3, 1, 2]})
    shown = mr.sql(
        "SELECT low FROM prices MATCH_RECOGNIZE (ORDER BY id MEASURES LAST(B.v) AS low PATTERN (A B) DEFINE "
        "B AS v < PREV(v))",
        prices=frame,
    )
    assert shown.rows() == [(1,)]
