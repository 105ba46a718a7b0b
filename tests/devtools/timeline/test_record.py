"""What a timeline holds is what the run did."""

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import millrace as mr
from devtools.timeline.games import GAME, SCORES, scores, totals
from millrace import watermarks, windows
from millrace.devtools.timeline import record
from millrace.devtools.timeline.seen import ObservedBatch
from millrace.durations import END_OF_STREAM
from millrace.errors import DefinitionError
from millrace.log import open_log
from millrace.log.codecs.codec import encode
from millrace.runners.replay import replay_all


def test_every_event_is_seen_when_it_came_and_its_fate_is_known() -> None:
    dots = [(dot.event_time, dot.at, dot.fate) for dot in record(totals(), GAME).dots]
    assert dots == [
        (3_000, 4_000, "taken"),
        (9_000, 9_500, "taken"),
        (8_000, 10_000, "taken"),
        (13_000, 14_000, "taken"),
        (6_000, 15_000, "behind"),
        (18_000, 19_000, "taken"),
        (2_000, 20_000, "refused"),
    ]


def test_a_refused_event_says_why() -> None:
    assert record(totals(), GAME).dots[-1].about == "input.scores[0] 6, late: missing from 1 windows"


def test_the_watermark_is_noted_with_every_batch() -> None:
    moments = record(totals(), GAME).batches
    assert moments[0] == ObservedBatch(4_000, 1_000)
    assert [moment.watermark for moment in moments] == [
        1_000,
        7_000,
        7_000,
        11_000,
        11_000,
        16_000,
        16_000,
        END_OF_STREAM,
    ]


def test_panes_come_with_the_moment_that_showed_them() -> None:
    timeline = record(totals(), GAME, key="red")
    assert [(pane.at, pane.window, pane.value, pane.timing) for pane in timeline.panes] == [
        (14_000, (0, 10_000), "12", "on_time"),
        (15_000, (0, 10_000), "16", "late"),
        (20_000, (10_000, 20_000), "10", "on_time"),
    ]
    assert timeline.panes_at_end == 1


def test_the_panes_are_those_of_a_replay() -> None:
    jobs = [totals(), totals(windows.sliding("10s", every="3s")), totals(accumulation="retracting")]
    for job in jobs:
        replayed = replay_all(job, GAME, batch=1).outputs["analytics.totals"]
        columns = ("window_start", "window_end", "points", "timing", "op")
        expected = Counter(
            (row[0], row[1], str(row[2]), *row[3:]) for row in replayed.select(columns).iter_rows()
        )
        assert (
            Counter((*pane.window, pane.value, pane.timing, pane.op) for pane in record(job, GAME).panes)
            == expected
        )


def test_a_key_shows_its_own_events_and_panes() -> None:
    timeline = record(totals(), GAME, key="team=blue")
    assert [dot.event_time for dot in timeline.dots] == [8_000]
    assert [(pane.value, pane.key) for pane in timeline.panes] == [("2", "")]


def test_without_a_key_panes_name_theirs() -> None:
    assert {pane.text for pane in record(totals(), GAME).panes} >= {"blue: 2", "red: 12"}


def test_a_part_of_the_run_can_be_looked_at() -> None:
    timeline = record(totals(), GAME, since="10s", until="11s")
    assert [dot.at for dot in timeline.dots] == [14_000, 15_000]
    assert [pane.text for pane in timeline.panes if pane.key == "red"] == ["red: 12", "red: 16"]
    assert not timeline.has_ended


def test_what_waits_for_the_clock_has_batches_of_its_own() -> None:
    read = mr.read(SCORES, watermark=watermarks.bounded("2s", idle="3s"))
    job = mr.Job(
        "idle",
        read.window(windows.fixed("10s"))
        .group_by("team")
        .sum("points")
        .write(mr.Topic("analytics.totals", SCORES.type)),
    )
    moments = record(job, scores(("red", 1, 0, 0), ("red", 1, 9_000, 9_000))).batches
    assert [moment.at for moment in moments] == [*range(0, 10_000, 1_000), 9_000]


def test_a_topic_of_the_log_is_read_with_all_its_partitions(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path}/log"
    topic = mr.Topic("input.scores", SCORES.type, key="team", partitions=2)
    log = open_log(url)
    log.ensure(topic)
    game = GAME.with_columns(pl.col("points").cast(pl.Int64), pl.col("team").replace("blue", "green"))
    log.append(topic.name, encode(topic, game))  # red and green go to different partitions
    log.close()
    read = mr.read(topic, watermark=watermarks.bounded("2s"))
    job = mr.Job(
        "totals",
        read.window(windows.fixed("10s"))
        .group_by("team")
        .sum("points")
        .write(mr.Topic("analytics.totals", SCORES.type)),
    )
    timeline = record(job, "input.scores", log=url)
    assert len(timeline.dots) == GAME.height
    assert {dot.about.partition(" ")[0] for dot in timeline.dots} == {"input.scores[0]", "input.scores[1]"}
    assert sum(int(pane.value) for pane in timeline.panes) + 3 + 4 >= GAME["points"].sum()


def test_of_very_many_events_some_are_drawn_and_the_rest_counted() -> None:
    many = pl.DataFrame({"team": "red", "points": 1, "event_time": range(0, 50_000, 10)})
    timeline = record(totals(), many)
    assert len(timeline.dots) + timeline.omitted_dots == 5_000
    assert len(timeline.dots) <= 2_000
    assert len(timeline.batches) < 300


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"key": "colour=red"}, "key='colour=red' has neither events nor panes here; results are by team"),
        ({"topic": "analytics.none"}, "does not write panes to 'analytics.none'"),
        ({"since": "1h"}, "after the last event, which came 16s after the first"),
        ({"until": "0s"}, "must be longer than zero"),
    ],
)
def test_what_cannot_be_drawn_is_named(asked: dict[str, str], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        record(totals(), GAME, **asked)


def test_without_windows_or_events_there_is_nothing_to_draw() -> None:
    with pytest.raises(DefinitionError, match="has no windows"):
        record(mr.Job("plain", mr.read(SCORES).write(mr.Topic("analytics.some", SCORES.type))), GAME)
    with pytest.raises(DefinitionError, match="there are no events"):
        record(totals(), GAME.clear())
