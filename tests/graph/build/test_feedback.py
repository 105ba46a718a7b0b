"""Loops through a topic end after so many rounds; those that nothing would end are refused."""

import runpy
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import watermarks
from millrace.config import Settings
from millrace.engine.plan import Plan
from millrace.errors import DefinitionError
from millrace.log import open_log
from millrace.log.codecs.codec import decode, encode

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "forwarded.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


def counted(example: dict[str, Any], *, rounds: int) -> mr.Job:
    """Every row goes around until it is stopped."""
    rows = mr.read(example["MESSAGES"], watermark=watermarks.ingestion_time())
    return mr.Job(
        "around", rows.write(example["REACHED"]), mr.feed_back(rows, example["MESSAGES"], rounds=rounds)
    )


@pytest.mark.parametrize("on", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_run_catches_up_with_what_it_feeds_itself(example: dict[str, Any], tmp_path: Path, on: str) -> None:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(example["MESSAGES"])
    begin = pl.DataFrame(
        {"about": ["x"], "who": ["ann"], "round": [0], "event_time": [1_000], "ingestion_time": [1_000]}
    )
    log.append(example["MESSAGES"].name, encode(example["MESSAGES"], begin))
    settings = Settings().with_options(
        log_url=log.url, state_dir=tmp_path / "state", spark_master="local[1]", run_on=on
    )
    mr.run(counted(example, rounds=3), settings=settings, until_caught_up=True)
    reached = example["REACHED"]
    frames = [
        decode(reached, p, log.read(reached.name, p, 0, end)).rows
        for p, end in log.end_offsets(reached.name).items()
    ]
    assert sorted(pl.concat(frames)["round"].to_list()) == [0, 1, 2, 3], (
        "each time once, and no more often than was allowed"
    )


def test_a_message_reaches_everybody_once_though_followers_go_in_circles(
    example: dict[str, Any], tmp_path: Path
) -> None:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(example["MESSAGES"])
    begin = pl.DataFrame(
        {"about": ["news"], "who": ["ann"], "round": [0], "event_time": [1_000], "ingestion_time": [1_000]}
    )
    settings = Settings().with_options(log_url=log.url, state_dir=tmp_path / "state")
    log.append(example["MESSAGES"].name, encode(example["MESSAGES"], begin))
    mr.run(example["forwards"], settings=settings, until_caught_up=True)
    reached = example["REACHED"]
    frames = [
        decode(reached, p, log.read(reached.name, p, 0, end)).rows
        for p, end in log.end_offsets(reached.name).items()
    ]
    news = pl.concat(frames).filter(pl.col("about") == "news").select("who", "round").rows()
    assert sorted(news) == [("ann", 0), ("bob", 1), ("cid", 1), ("dee", 2), ("eve", 3)]


def test_a_loop_that_nothing_ends_is_refused_with_the_advice(example: dict[str, Any]) -> None:
    rows, messages = mr.read(example["MESSAGES"]), example["MESSAGES"]
    message = (
        r"loop\.messages → loop\.messages: .* for ever; end the loop with "
        r"mr\.feed_back\(rows, topic, rounds=N\)"
    )
    with pytest.raises(DefinitionError, match=message):
        Plan.of([mr.Job("around", rows.filter(pl.col("round") < 3).write(messages))], slots=1)
    between = mr.Topic("between", messages.type)
    there, back = mr.Job("there", rows.write(between)), mr.Job("back", mr.read(between).write(messages))
    assert Plan.of([there], slots=1).loop_topics == frozenset()
    with pytest.raises(DefinitionError, match=r"(loop\.messages → between|between → loop\.messages) → "):
        Plan.of([there, back], slots=1)
    assert Plan.of(
        [there, mr.Job("back", mr.feed_back(mr.read(between), messages, rounds=2))], slots=1
    ).loop_topics == {"loop.messages"}


def test_what_cannot_be_fed_back_is_refused(example: dict[str, Any]) -> None:
    rows = mr.read(example["MESSAGES"])
    with pytest.raises(DefinitionError, match="at least once"):
        mr.feed_back(rows, example["MESSAGES"], rounds=0)
    with pytest.raises(DefinitionError, match="the stream has no whole number 'round'"):
        mr.feed_back(rows.select("about", "who"), example["MESSAGES"], rounds=1)
    with pytest.raises(DefinitionError, match="is not a script"):
        mr.testing.Script(mr.Job("around", mr.feed_back(rows, example["MESSAGES"], rounds=1)))
    with pytest.raises(DefinitionError, match="not all there"):
        mr.replay(mr.Job("around", mr.feed_back(rows, example["MESSAGES"], rounds=1)), pl.DataFrame())
