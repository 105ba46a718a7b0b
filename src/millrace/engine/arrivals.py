"""The rows of a batch as they reach an operator, each with the watermark of its own partition as it stood at that row."""

from __future__ import annotations

import polars as pl

from millrace.engine.exchange import Block, Body, Source
from millrace.engine.lag_estimate import Told, watermark_of_rows
from millrace.engine.plan import Operator
from millrace.engine.progress import Progress, Said
from millrace.watermarks import Percentile, Watermark


def said_of(operator: Operator, body: Body) -> dict[str, Said]:
    """What a batch says of each partition that the operator reads."""
    said: dict[str, Said] = {}
    for index, edge in enumerate(operator.edges):
        if edge.read is None:
            continue
        watermark, topic = edge.read.watermark, edge.read.topic.name
        for source in body.sources:
            if source.topic == topic:
                clock = source.clocks[watermark.clock_id]
                learning = watermark if isinstance(watermark, Percentile) else None
                lags = tuple(Told(*told) for told in source.lags) if learning else ()
                words = Said(
                    clock, source.active, watermark.delay, _idle_after(watermark, source), learning, lags
                )
                said[f"{index}/{topic}/{source.partition}"] = words
    return said


def _idle_after(watermark: Watermark, source: Source) -> int | None:
    """After how many milliseconds without rows the partition is idle; null: never.

    A partition that has never held a record does not wait for ever: nobody may be writing to it. In a bounded run it does not
    wait at all (`empty_after` is 0), whatever `idle` says.
    """
    if watermark.idle is None or source.empty_after == 0:
        return source.empty_after
    return watermark.idle


def learned(frame: pl.DataFrame, channel: str, said: dict[str, Said], progress: Progress) -> pl.Expr:
    """The watermark at each row of a source whose delay is learned."""
    names = {part: f"{channel}/{part}" for part in frame["_part"].unique()}
    clocks = {part: progress.channels[name].clock for part, name in names.items()}
    stretches = {part: progress.stretches(name, said[name]) for part, name in names.items()}
    return pl.lit(watermark_of_rows(frame, clocks, stretches))


def arrived(
    operator: Operator, blocks: list[Block], said: dict[str, Said], progress: Progress
) -> pl.DataFrame | None:
    """All rows of a batch; `_w` is the watermark at each (null: none yet), `_topic` and `_part` say where it comes from."""
    frames = []
    for block in blocks:
        frame, delay = block.frame, 0
        topic = block.channel.partition("/")[2]
        if operator.judged(block.channel):
            frames.append(frame.rename({"_clock": "_w"}).with_columns(pl.lit(topic).alias("_topic")))
            continue
        prior = {}
        for part in frame["_part"].unique():
            words = said[f"{block.channel}/{part}"]
            delay = words.delay
            prior[part] = progress.channels[f"{block.channel}/{part}"].watermark(delay)
        learns = any(said[f"{block.channel}/{part}"].learning is not None for part in prior)
        own = learned(frame, block.channel, said, progress) if learns else pl.col("_clock") - delay
        before = pl.col("_part").replace_strict(prior, return_dtype=pl.Int64)
        frames.append(
            frame.with_columns(
                pl.max_horizontal(own, before).alias("_w"), pl.lit(topic).alias("_topic")
            ).drop("_clock")
        )
    if not frames:
        return None
    return (frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal_relaxed")).with_row_index(
        "_row"
    )


_INTERNAL = ("_t", "_ingested", "_via", "_src", "_w", "_row", "_ahead", "_place", "_start", "_end", "_at")


def refused_rows(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Rows as the late output shows them; `verdicts` says of some `_row` the `reason` and from how many windows it is `missed`."""
    late = rows.join(verdicts.select("_row", "reason", "missed"), on="_row", how="inner")
    late = late.drop(*_INTERNAL, strict=False).rename({"_part": "_partition"})
    return late.with_columns(pl.lit(1, pl.Int64).alias("_rows"))
