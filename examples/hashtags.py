"""Autocompletion: for each prefix, the three hashtags that were used most in the last minute."""

from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import watermarks, windows


@dataclass
class Post:
    """What somebody wrote."""

    text: str


def prefixes(tag: pl.Expr) -> pl.Expr:
    """`#race` → `r`, `ra`, `rac`."""
    return pl.concat_list(tag.str.slice(0, n) for n in (1, 2, 3))


completions = mr.Job(
    "hashtags",
    mr.read(mr.Topic("input.posts", Post), watermark=watermarks.bounded("5s"))
    .select(
        tag=pl.col("text")
        .str.to_lowercase()
        .str.extract_all(r"#\w+")
        .list.eval(pl.element().str.strip_prefix("#"))
    )
    .explode("tag")
    .filter(pl.col("tag").is_not_null())
    .window(windows.sliding("1m", every="10s"), lateness="1m")
    .group_by("tag")
    .count()
    .with_columns(prefix=prefixes(pl.col("tag")))
    .explode("prefix")
    .group_by("prefix")
    .top(3, "tag", by="count")
    .write(mr.Topic("analytics.completions", key="prefix")),
)

if __name__ == "__main__":
    texts = ["#mill at noon", "the #race", "#mill and #milk", "#mice", "a #race, a #mill"]
    posts = pl.DataFrame({"text": texts, "event_time": [1_000 * n for n in range(5)]})
    print(mr.replay(completions, posts).filter(pl.col("window_end") == 10_000).select("prefix", "top"))
