"""Visits: page views of a user without a pause of half an hour form a session, however late they arrive."""

from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import aggregates, watermarks, windows


@dataclass
class Click:
    """A user looks at a page."""

    user: str
    page: str


visits = mr.Job(
    "visits",
    mr.read(mr.Topic("input.clicks", Click, key="user"), watermark=watermarks.bounded("1m"))
    .window(windows.sessions("30m"), lateness="1h")
    .group_by("user")
    .aggregate(pages=aggregates.count(), entry=aggregates.earliest("page"), exit=aggregates.latest("page"))
    .write(mr.Topic("analytics.visits", key="user")),
)

if __name__ == "__main__":
    minutes = [0, 10, 5, 120, 130]
    pages = ["home", "search", "shop", "home", "help"]
    clicks = pl.DataFrame(
        {"user": ["ann"] * 5, "page": pages, "event_time": [60_000 * minute for minute in minutes]}
    )
    print(mr.replay(visits, clicks).select("user", "pages", "entry", "exit", "window_start", "window_end"))
