"""Links of chains: each takes rows of `k` and `v` from whatever came before, and gives such rows."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

import polars as pl

import millrace as mr
from millrace import aggregates, frames, patterns, state, triggers, watermarks, windows
from millrace.patterns import Rule
from millrace.processors import Context, Processor
from millrace.stream import Stream
from millrace.topics import Topic
from strategies import A, B, Reading

Link: TypeAlias = Callable[[Stream, int], Stream]
"""From a stream and a unit of time to a stream."""

TABLE = Topic("input.table", Reading, key="k")
RULES = Topic("input.rules", Rule)
K, V = pl.col("k"), pl.col("v")


class Ringing(Processor):
    """Each row twice, and a timer; a side output of its own."""

    outputs: ClassVar = {"v": pl.Int64}
    side_outputs: ClassVar = {"aside": {"v": pl.Int64}}
    total = state.value(0)

    def __init__(self, wait: int) -> None:
        self.wait = wait

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        self.total += row["v"] or 1
        ctx.emit(v=self.total)
        ctx.emit(v=row["v"])
        ctx.emit(to="aside", v=-self.total)
        ctx.set_timer("ring", ctx.time + self.wait)

    def on_timer(self, ctx: Context, name: str) -> None:
        ctx.emit(v=100 + self.total)


def source(unit: int, topic: Topic = A) -> Stream:
    return mr.read(topic, watermark=watermarks.bounded(2 * unit)).select("k", "v")


def plain(stream: Stream) -> Stream:
    return stream.select("k", "v")


def with_step(stream: Stream, unit: int) -> Stream:
    return stream.filter(V.is_null() | (V > -2)).with_columns(v=(V + 1) % 5)


def exploded(stream: Stream, unit: int) -> Stream:
    return stream.with_columns(v=pl.concat_list(V, V + 1)).explode("v")


def beside_the_one_before(stream: Stream, unit: int) -> Stream:
    columns: dict[str, Any] = {"before": frames.lag("v"), "total": aggregates.sum("v")}
    columns["n"] = frames.row_number()
    made = plain(stream).group_by("k").over(**columns)
    return made.select("k", v=pl.sum_horizontal(*columns))


def beside_recent_ones(stream: Stream, unit: int) -> Stream:
    made = plain(stream).group_by("k").over(m=aggregates.max("v"), n=aggregates.count(), range=3 * unit)
    return made.select("k", v=pl.col("m").fill_null(-1) * 10 + pl.col("n"))


def beside_the_one_after(stream: Stream, unit: int) -> Stream:
    made = plain(stream).group_by("k").over(after=frames.lead("v", within=4 * unit), ttl=9 * unit)
    return made.select("k", v=pl.coalesce("after", pl.lit(7)))


def in_union(stream: Stream, unit: int) -> Stream:
    return plain(stream).union(plain(with_step(stream, unit)))


def without_copies(stream: Stream, unit: int) -> Stream:
    return stream.group_by("k").deduplicate("v", "event_time", within=20 * unit)


def first_of_each(stream: Stream, unit: int) -> Stream:
    return stream.group_by("k").deduplicate("v", within=3 * unit)


def beside_table(stream: Stream, unit: int) -> Stream:
    table = mr.table(TABLE, watermark=watermarks.bounded(unit))
    return plain(stream).group_by("k").join(table, how="left").select("k", v=pl.coalesce("v_right", "v"))


def near_others(stream: Stream, unit: int) -> Stream:
    others = source(unit, B).group_by("k")
    joined = plain(stream).group_by("k").join(others, within=(-2 * unit, 3 * unit), how="left")
    return joined.select("k", v=V + pl.col("v_right").fill_null(0))


def near_itself(stream: Stream, unit: int) -> Stream:
    rows = plain(stream)
    return rows.group_by("k").join(rows.group_by("k"), within=(1, 4 * unit)).select("k", v=V * 2)


def a_then_b(unit: int) -> patterns.Pattern:
    return mr.pattern("a", V >= 1).followed_by("b", V <= 2).within(6 * unit)


def matched(stream: Stream, unit: int) -> Stream:
    select = {"v": patterns.first("a", "v") + patterns.first("b", "v")}
    return plain(stream).group_by("k").match(a_then_b(unit), select=select)


def matched_past_last(stream: Stream, unit: int) -> Stream:
    pattern = mr.pattern("a", V >= 0).one_or_more().followed_by("b", V <= 2).within(5 * unit).skip_past_last()
    return plain(stream).group_by("k").match(pattern, select={"v": patterns.sum("a", "v")})


def timed_out(stream: Stream, unit: int) -> Stream:
    select = {"v": patterns.first("a", "v")}
    return plain(stream).group_by("k").match(a_then_b(unit), select=select).timeouts()


def not_followed(stream: Stream, unit: int) -> Stream:
    pattern = mr.pattern("a", V >= 1).not_followed_by("b", V == 0).within(4 * unit)
    return plain(stream).group_by("k").match(pattern, select={"v": patterns.first("a", "v")})


def recognized(stream: Stream, unit: int) -> Stream:
    clause = mr.match_recognize(
        measures={"total": "SUM(a.v)"},
        pattern="a+ b",
        define={"a": "a.v > 0", "b": "b.v <= 1"},
        within=5 * unit,
    )
    return plain(stream).group_by("k").match_recognize(clause).select("k", v=pl.col("total").cast(pl.Int64))


def by_rules(stream: Stream, unit: int) -> Stream:
    rules = mr.read(RULES, watermark=watermarks.bounded(0, idle=3 * unit))
    return (
        plain(stream)
        .group_by("k")
        .match_rules(rules)
        .select("k", v=pl.col("times").list.len().cast(pl.Int64))
    )


def processed(stream: Stream, unit: int) -> Stream:
    return plain(stream).group_by("k").process(Ringing(3 * unit))


def emitted_aside(stream: Stream, unit: int) -> Stream:
    return processed(stream, unit).side_output("aside")


def late_for_sessions(stream: Stream, unit: int) -> Stream:
    return plain(stream.window(windows.sessions(unit)).group_by("k").count().late())


def late_for_join(stream: Stream, unit: int) -> Stream:
    """Late rows of both sides: the other side has some, whatever comes before."""
    others = source(unit, B).group_by("k")
    joined = plain(stream).group_by("k").join(others, within=(-2 * unit, 3 * unit), how="left")
    return joined.late().select("k", v=pl.coalesce("v", "v_right"))


def summed(stream: Stream, unit: int) -> Stream:
    return stream.window(windows.fixed(4 * unit)).group_by("k").sum("v", name="s").select("k", v="s")


def counted_sliding(stream: Stream, unit: int) -> Stream:
    window = windows.sliding(6 * unit, every=2 * unit)
    return stream.window(window).group_by("k").count(name="n").select("k", v="n")


def in_sessions(stream: Stream, unit: int) -> Stream:
    return stream.window(windows.sessions(3 * unit)).group_by("k").max("v", name="m").select("k", v="m")


def in_threes(stream: Stream, unit: int) -> Stream:
    return stream.window(windows.counted(3)).group_by("k").sum("v", name="s").select("k", v="s")


def punctuated(stream: Stream, unit: int) -> Stream:
    return stream.window(windows.punctuated(V == 1)).group_by("k").count(name="n").select("k", v="n")


def corrected(stream: Stream, unit: int) -> Stream:
    """Panes come early, and late rows correct them."""
    trigger = triggers.at_watermark(early=triggers.repeatedly(triggers.after_count(2)))
    windowed = stream.window(windows.fixed(4 * unit), trigger=trigger, lateness=5 * unit)
    return windowed.group_by("k").sum("v", name="s").select("k", v="s")


def corrected_sessions(stream: Stream, unit: int) -> Stream:
    windowed = stream.window(windows.sessions(2 * unit), lateness=4 * unit)
    return windowed.group_by("k").count(name="n").select("k", v="n")


def window_joined(stream: Stream, unit: int) -> Stream:
    rows = stream.window(windows.fixed(4 * unit), lateness=3 * unit)
    joined = (
        rows.select("k", "v")
        .group_by("k")
        .join(with_step(rows, unit).select("k", "v").group_by("k"), how="full")
    )
    return joined.select("k", v=pl.coalesce("v", "v_right"))


def corrected_frames(stream: Stream, unit: int) -> Stream:
    columns: dict[str, Any] = {"before": frames.lag("v"), "after": frames.lead("v", within=3 * unit)}
    made = plain(stream).group_by("k").over(**columns, total=aggregates.sum("v"), lateness=5 * unit)
    return made.select("k", v=pl.sum_horizontal(*columns, "total"))


def joined_with_ttl(stream: Stream, unit: int) -> Stream:
    """Rows without a partner are taken back when one comes."""
    others = source(unit, B).group_by("k")
    joined = plain(stream).group_by("k").join(others, how="left", ttl=4 * unit)
    return joined.select("k", v=pl.coalesce("v_right", "v"))


def unwindowed(stream: Stream) -> Stream:
    return stream.window(windows.global_window(), trigger=triggers.repeatedly(triggers.after_count(1)))


def joined_for_ever(stream: Stream, unit: int) -> Stream:
    others = source(unit, B).group_by("k")
    return plain(unwindowed(stream)).group_by("k").join(others, how="anti").select("k", "v")


def totalled(stream: Stream, unit: int) -> Stream:
    """One sum per key of all rows."""
    return unwindowed(stream).group_by("k").sum("v", name="s").select("k", v="s")


def final(link: Link) -> Link:
    def made(stream: Stream, unit: int) -> Stream:
        return link(stream, unit).final()

    made.__name__ = f"final_{link.__name__}"
    return made


ROWS: Mapping[str, Link] = {
    link.__name__: link
    for link in (
        with_step,
        exploded,
        in_union,
        beside_the_one_before,
        beside_recent_ones,
        beside_the_one_after,
        without_copies,
        first_of_each,
        beside_table,
        near_others,
        near_itself,
        matched,
        matched_past_last,
        timed_out,
        not_followed,
        recognized,
        by_rules,
        processed,
        emitted_aside,
        summed,
        counted_sliding,
        in_sessions,
        in_threes,
        punctuated,
        late_for_sessions,
        late_for_join,
        final(corrected),
        final(corrected_sessions),
        final(window_joined),
        final(corrected_frames),
        final(joined_with_ttl),
    )
}
"""Links whose results are rows that are never taken back, if rows come in."""
CHANGELOGS: Mapping[str, Link] = {
    link.__name__: link
    for link in (corrected, corrected_sessions, window_joined, corrected_frames, joined_with_ttl)
}
"""Links whose results may be corrected."""
UNBOUNDED: Mapping[str, Link] = {link.__name__: link for link in (joined_for_ever, totalled)}
"""Links whose results may be corrected however far time has come."""
