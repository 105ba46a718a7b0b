"""Counts each word in each minute, by the time it was spoken, not by the time it arrived."""

from dataclasses import dataclass

import millrace as mr
from millrace import watermarks, windows


@dataclass
class Word:
    """A word, spoken at some time."""

    word: str


WORDS = mr.Topic("input.words", Word, key="word")

words = mr.Job(
    "words",
    mr.read(WORDS, watermark=watermarks.bounded("5s"))
    .window(windows.fixed("1m"), lateness="1m")
    .group_by("word")
    .count()
    .write(mr.Topic("analytics.words", key="word")),
)
