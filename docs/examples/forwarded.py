"""Who gets a message that everybody forwards: rows go around through a topic, at most five times."""

from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import aggregates, triggers, watermarks, windows

FOLLOWERS = {"ann": ["bob", "cid"], "bob": ["ann", "dee"], "dee": ["eve"], "eve": ["bob"]}


@dataclass
class Message:
    """Who has it, and how often it was forwarded."""

    about: str
    who: str
    round: int


@dataclass
class Reached:
    """The first time that a person gets a message."""

    about: str
    who: str
    round: int


MESSAGES = mr.Topic("loop.messages", Message, key="about")
REACHED = mr.Topic("analytics.reached", Reached, key="about")

first_time = (
    mr.read(MESSAGES, watermark=watermarks.ingestion_time())
    .window(windows.global_window(), trigger=triggers.repeatedly(triggers.after_count(1)), time="latest")
    .group_by("about", "who")
    .aggregate(round=aggregates.min("round"))
    .filter(pl.col("index") == 0)
)
followers = pl.col("who").replace_strict(FOLLOWERS, default=[], return_dtype=pl.List(pl.String))
forwarded = first_time.with_columns(who=followers).explode("who").filter(pl.col("who").is_not_null())

forwards = mr.Job("forwards", first_time.write(REACHED), mr.feed_back(forwarded, MESSAGES, rounds=5))
