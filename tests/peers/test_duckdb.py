"""Random jobs over streams, and queries of DuckDB over the same rows as tables: in the end both say the same.

`PEER_CASES=1000 pytest tests/peers/test_duckdb.py` runs so many of each kind. The rows come out of order but
within what the watermark allows, in batches cut at random, with early panes, corrections and restarts; what
DuckDB answers knows nothing of all that.

The queries say where the conventions of DuckDB are others:

- `min` and `max` pass over NaN, as polars does, unless there is nothing else; DuckDB takes NaN for the
  greatest number.
- An empty `collect` or `top` is an empty list; DuckDB's `list` of nothing is null.
- Sums of floats are exact here; DuckDB is asked for sums of decimals, which are.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import polars as pl
import pytest

import millrace as mr
from join_strategies import HOWS, KEYS
from millrace import aggregates, triggers, windows
from millrace.panes import Accumulation
from millrace.stream import Job, Stream
from millrace.triggers import Trigger
from peers.aggregate_cases import BOUNDS, a_part, a_ranking, an_aggregate
from peers.row_frames import row_frames
from peers.streams import CASES, ORDER, SEED, Duck, Flow, a_flow, added_up, newest, run
from strategies import KINDS, A, B, write

pytestmark = pytest.mark.long
ROWS = tuple(KINDS)


@dataclass(frozen=True)
class Case:
    """A stream, and the query that says what holds in its end."""

    stream: Stream
    query: str
    columns: tuple[str, ...]
    keys: tuple[str, ...] | None = None
    """What is written is a table of the newest row of each of these; None: a changelog."""


@pytest.fixture(scope="module")
def duck() -> Iterator[Duck]:
    duck = Duck()
    yield duck
    duck.db.close()


def rows_of(chance: random.Random, flow: Flow) -> tuple[Stream, str]:
    """Rows of one topic or of both, perhaps not all of them, as a stream and as a table."""
    stream, table = mr.read(A, watermark=flow.watermark), "(SELECT * FROM a)"
    if chance.random() < 0.3:
        stream, table = (
            stream.union(mr.read(B, watermark=flow.watermark)),
            "(SELECT * FROM a UNION ALL SELECT * FROM b)",
        )
    kept = [
        (pl.col("v") > 1, "v > 1"),
        (pl.col("x") > 0, "x > 0"),
        (pl.col("k").is_null() | pl.col("b"), "k IS NULL OR b"),
        (pl.col("k").is_in(["a", "é"]), "k IN ('a', 'é')"),
    ]
    if chance.random() < 0.3:
        condition, where = chance.choice(kept)
        stream, table = stream.filter(condition), f"(SELECT * FROM {table} WHERE {where})"
    if chance.random() < 0.2:
        stream = stream.with_columns(v=pl.col("v") * 2 - pl.col("g"))
        table = f"(SELECT * REPLACE (v * 2 - g AS v) FROM {table})"
    return stream, table


def a_trigger(chance: random.Random, unit: int) -> Trigger:
    """A trigger after which the last pane of a window holds all of its rows."""
    early = triggers.after_count(chance.randint(1, 3))
    choices = [triggers.at_watermark(), triggers.at_watermark(early=early), triggers.repeatedly(early)]
    return chance.choice([*choices, triggers.every(chance.randint(1, 5) * unit, time="event")])


def a_sliding(chance: random.Random, flow: Flow) -> tuple[windows.WindowFn, Callable[[str], str]]:
    """Windows, and a table of rows beside the windows that they are in: all windows there are, of which those
    that contain a row's time.
    """
    size = chance.choice([1, 2, 3, 4, 5, 7, 12])
    every = size if chance.random() < 0.5 else chance.randint(max(1, size // 4), size)
    offset = chance.choice([0, 0, 1, -3]) * flow.unit
    size, every = size * flow.unit, every * flow.unit
    low, high = flow.span
    first = offset + ((low - size - offset) // every) * every
    starts = f"(SELECT unnest(range({first}, {high + 1}, {every})) AS window_start)"

    def beside(table: str) -> str:
        return f"(SELECT *, 0 AS session, window_start + {size} AS window_end FROM {table} JOIN {starts} ON t >= window_start AND t < window_start + {size})"

    made = (
        windows.fixed(size, offset=offset)
        if every == size
        else windows.sliding(size, every=every, offset=offset)
    )
    return made, beside


def some_sessions(
    chance: random.Random, flow: Flow, keys: tuple[str, ...]
) -> tuple[windows.WindowFn, Callable[[str], str]]:
    """Sessions, and a table of rows beside the session of their key: a row begins one if none came less than
    the gap, or just that, before.
    """
    gap = chance.choice([1, 2, 5, 9]) * flow.unit
    by = ", ".join(keys)

    def beside(table: str) -> str:
        marked = (
            f"(SELECT *, t - lag(t) OVER (PARTITION BY {by} ORDER BY {ORDER}) > {gap} AS begins FROM {table})"
        )
        numbered = f"(SELECT *, count(*) FILTER (begins) OVER (PARTITION BY {by} ORDER BY {ORDER}) AS session FROM {marked})"
        return f"(SELECT *, min(t) OVER one AS window_start, max(t) OVER one + {gap} AS window_end FROM {numbered} WINDOW one AS (PARTITION BY {by}, session))"

    return windows.sessions(gap), beside


def counted_windows(
    chance: random.Random, flow: Flow, keys: tuple[str, ...]
) -> tuple[windows.WindowFn, Callable[[str], str]]:
    """So many rows of a key each, in order of time; the last may hold fewer,
    from its first row to just after its last.
    """
    size = chance.randint(1, 4)
    by = ", ".join(keys)

    def beside(table: str) -> str:
        numbered = f"(SELECT *, (row_number() OVER (PARTITION BY {by} ORDER BY {ORDER}) - 1) // {size} AS session FROM {table})"
        return f"(SELECT *, min(t) OVER one AS window_start, max(t) OVER one + 1 AS window_end FROM {numbered} WINDOW one AS (PARTITION BY {by}, session))"

    return windows.counted(size), beside


def some_keys(chance: random.Random) -> tuple[str, ...]:
    return chance.choice([("k",), ("g",), ("b",), ("k", "g"), ("v", "b")])


def windowed(
    chance: random.Random, flow: Flow, keys: tuple[str, ...], kinds: str
) -> tuple[Stream, str, Accumulation]:
    """Rows in windows, as a stream and as a table, and what is written of them."""
    stream, table = rows_of(chance, flow)
    kind = chance.choice(kinds)
    if kind == "w":
        window, beside = a_sliding(chance, flow)
    else:
        window, beside = (some_sessions if kind == "s" else counted_windows)(chance, flow, keys)
    accumulation: Accumulation = chance.choice(["accumulating", "retracting"])
    if kind == "c":
        return stream.window(window), beside(table), "retracting"
    return (
        stream.window(window, trigger=a_trigger(chance, flow.unit), accumulation=accumulation),
        beside(table),
        accumulation,
    )


def aggregations(chance: random.Random, flow: Flow) -> Case:
    keys = some_keys(chance)
    stream, table, accumulation = windowed(chance, flow, keys, "wwsc")
    chosen = {
        f"a{place}": chance.choice([an_aggregate, a_part])(chance) for place in range(chance.randint(1, 4))
    }
    made = stream.group_by(*keys).aggregate(**{name: one for name, (one, _) in chosen.items()})
    columns = (*keys, *BOUNDS)
    query = f"SELECT {', '.join((*columns, *(expressions for _, expressions in chosen.values())))} FROM {table} GROUP BY {', '.join((*columns, 'session'))}"
    return Case(made, query, (*columns, *chosen), columns if accumulation == "accumulating" else None)


def chained(chance: random.Random, flow: Flow) -> Case:
    """An aggregation over the panes of another, in the same window."""
    keys = chance.choice([("k", "g"), ("g", "b"), ("k", "b")])
    stream, table, accumulation = windowed(chance, flow, keys, "w")
    first = stream.group_by(*keys).aggregate(
        n=aggregates.count(), s=aggregates.sum("v"), m=aggregates.max("v")
    )
    if has_filter := chance.random() < 0.3:
        first = first.filter(pl.col("n") > 1)
    second = first.group_by(keys[0]).aggregate(
        n=aggregates.sum("n"),
        s=aggregates.sum("s"),
        m=aggregates.max("m"),
        groups=aggregates.count(),
        most=aggregates.max("n"),
    )
    inner = f"SELECT {', '.join((*keys, *BOUNDS))}, count(*) AS n, sum(v) AS s, max(v) AS m FROM {table} GROUP BY {', '.join((*keys, *BOUNDS))}"
    inner += " HAVING n > 1" if has_filter else ""
    columns = (keys[0], *BOUNDS)
    query = f"SELECT {', '.join(columns)}, sum(n), sum(s), max(m), count(*), max(n) FROM ({inner}) GROUP BY {', '.join(columns)}"
    return Case(
        second,
        query,
        (*columns, "n", "s", "m", "groups", "most"),
        columns if accumulation == "accumulating" else None,
    )


def tops(chance: random.Random, flow: Flow) -> Case:
    """The greatest rows, or the most frequent values, of each window."""
    keys = some_keys(chance)
    stream, table, accumulation = windowed(chance, flow, keys, "ws")
    k, columns = chance.randint(1, 3), (*keys, *BOUNDS)
    named = ", ".join(columns)
    if chance.random() < 0.5:
        c = chance.choice("kgvxb")
        made = stream.group_by(*keys).top(k, c)
        counted = f"SELECT {named}, {c}, count({c}) AS n FROM {table} GROUP BY ALL"
        best = f"(list({{'{c}': {c}, 'count': n}} ORDER BY n DESC, {c}) FILTER ({c} IS NOT NULL))[:{k}]"
        query = f"SELECT {named}, coalesce({best}, []) FROM ({counted} ORDER BY ALL) GROUP BY {named}"
    else:
        by, other = chance.sample([c for c in "kgvb" if c not in keys], 2)
        made = stream.group_by(*keys).top(k, other, by=by)
        best = f"(list({{'{other}': {other}, '{by}': {by}}} ORDER BY {by} DESC, {other} DESC NULLS LAST) FILTER ({by} IS NOT NULL))[:{k}]"
        query = f"SELECT {named}, coalesce({best}, []) FROM {table} GROUP BY {named}"
    return Case(made, query, (*columns, "top"), columns if accumulation == "accumulating" else None)


def rankings(chance: random.Random, flow: Flow) -> Case:
    """The first rows of each window, row by row with their ranks."""
    keys = some_keys(chance)
    stream, table, _ = windowed(chance, flow, keys, "ws")
    return Case(*a_ranking(chance, stream, table, keys))


def sides(keys: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """The columns of a join, what each is in SQL, and when keys meet."""
    right = [c for c in ROWS if c not in theirs]
    columns = (*keys, *(c for c in ROWS if c not in keys), *(f"{c}_right" for c in right))
    expressions = [f"coalesce(l.{one}, r.{other})" for one, other in zip(keys, theirs, strict=True)]
    expressions += [f"l.{c}" for c in ROWS if c not in keys] + [f"r.{c}" for c in right]
    return (
        columns,
        tuple(expressions),
        " AND ".join(f"l.{one} = r.{other}" for one, other in zip(keys, theirs, strict=True)),
    )


def window_joins(chance: random.Random, flow: Flow) -> Case:
    keys, theirs = chance.choice(KEYS)
    how = chance.choice(HOWS)
    (left, first), (right, second) = (
        rows_of(chance, flow),
        (mr.read(B, watermark=flow.watermark), "(SELECT * FROM b)"),
    )
    window, beside = a_sliding(chance, flow)
    accumulation: Accumulation = chance.choice(["accumulating", "retracting"])
    left = left.window(window, trigger=a_trigger(chance, flow.unit), accumulation=accumulation)
    columns, expressions, meet = sides(keys, theirs)
    query = (
        f"SELECT {', '.join(expressions)}, coalesce(l.window_start, r.window_start), coalesce(l.window_end, r.window_end) "
        f"FROM {beside(first)} l {how} JOIN {beside(second)} r ON {meet} AND l.window_end = r.window_end"
    )
    return Case(left.group_by(*keys).join(right.group_by(*theirs), how=how), query, (*columns, *BOUNDS))


def pane_joins(chance: random.Random, flow: Flow) -> Case:
    """Panes of two aggregations in the same window."""
    keys, theirs = chance.choice(KEYS)
    how = chance.choice(HOWS)
    left, first = rows_of(chance, flow)
    window, beside = a_sliding(chance, flow)
    left = left.window(window, trigger=a_trigger(chance, flow.unit))
    right = Stream(mr.read(B, watermark=flow.watermark).node, left.windowing)
    made = (
        left.group_by(*keys)
        .count(name="n")
        .group_by(*keys)
        .join(right.group_by(*theirs).aggregate(m=aggregates.sum("v")).group_by(*theirs), how=how)
    )

    def grouped(table: str, by: tuple[str, ...], expressions: str) -> str:
        return f"(SELECT {', '.join((*by, *BOUNDS))}, {expressions} FROM {beside(table)} GROUP BY {', '.join((*by, *BOUNDS))})"

    both = zip(keys, theirs, strict=True)
    query = (
        f"SELECT {', '.join(f'coalesce(l.{one}, r.{other})' for one, other in both)}, n, m, coalesce(l.window_end, r.window_end) "
        f"FROM {grouped(first, keys, 'count(*) AS n')} l {how} JOIN {grouped('b', theirs, 'sum(v) AS m')} r "
        f"ON {sides(keys, theirs)[2]} AND l.window_end = r.window_end"
    )
    return Case(made, query, (*keys, "n", "m", "window_end"))


def interval_joins(chance: random.Random, flow: Flow) -> Case:
    keys, theirs = chance.choice(KEYS)
    how = chance.choice(HOWS)
    lower = chance.randint(-8, 8) * flow.unit
    upper = lower + chance.randint(1, 12) * flow.unit
    left, table = rows_of(chance, flow)
    made = left.group_by(*keys).join(
        mr.read(B, watermark=flow.watermark).group_by(*theirs), within=(lower, upper), how=how
    )
    columns, expressions, meet = sides(keys, theirs)
    query = (
        f"SELECT {', '.join(expressions)}, greatest(l.t, r.t) "
        f"FROM {table} l {how} JOIN b r ON {meet} AND r.t - l.t >= {lower} AND r.t - l.t < {upper}"
    )
    return Case(made, query, (*columns, "event_time"))


def regular_joins(chance: random.Random, flow: Flow) -> Case:
    """All rows by key alone, or those that are near each other."""
    keys, theirs = chance.choice(KEYS)
    how = chance.choice([*HOWS, "semi", "anti"])
    ttl = chance.choice([None, chance.randint(1, 12) * flow.unit + flow.disorder])
    (left, table), right = rows_of(chance, flow), mr.read(B, watermark=flow.watermark)
    made = left.group_by(*keys).join(right.group_by(*theirs), how=how, ttl=ttl)
    columns, expressions, meet = sides(keys, theirs)
    if how in ("semi", "anti"):
        columns, expressions = ROWS, tuple(f"l.{column}" for column in ROWS)
    near = "" if ttl is None else f"AND abs(r.t - l.t) < {ttl}"
    query = f"SELECT {', '.join(expressions)} FROM {table} l {how} JOIN b r ON {meet} {near}"
    return Case(made, query, columns)


def totals(chance: random.Random, flow: Flow) -> Case:
    """Aggregations without a window: of rows, of each other, joined, beside a value of all rows."""
    (left, table), right = rows_of(chance, flow), mr.read(B, watermark=flow.watermark)
    counts = left.group_by("k").aggregate(n=aggregates.count(), most=aggregates.max("v"))
    of_keys = f"(SELECT k, count(*) AS n, max(v) AS most FROM {table} GROUP BY k)"
    match chance.choice(["by key", "of totals", "joined", "beside"]):
        case "by key":
            return Case(counts, f"SELECT * FROM {of_keys}", ("k", "n", "most"), ("k",))
        case "of totals":
            made = counts.group_by("n").aggregate(keys=aggregates.count(), most=aggregates.max("most"))
            query = f"SELECT n, count(*), max(most) FROM {of_keys} GROUP BY n"
            return Case(made, query, ("n", "keys", "most"), ("n",))
        case "joined":
            sums = right.group_by("k").sum("v", name="s").group_by("k")
            query = (
                f"SELECT coalesce(l.k, r.k), n, most, s FROM {of_keys} l "
                "FULL JOIN (SELECT k, sum(v) AS s FROM b GROUP BY k) r ON l.k = r.k"
            )
            return Case(counts.group_by("k").join(sums, how="full"), query, ("k", "n", "most", "s"))
    made = left.select("k", "v").join_scalar(right.count(name="n"))
    query = f"SELECT k, v, (SELECT CASE WHEN count(*) > 0 THEN count(*) END FROM b) FROM {table}"
    return Case(made, query, ("k", "v", "n"))


def table_joins(chance: random.Random, flow: Flow) -> Case:
    key = chance.choice("kgb")
    how = chance.choice(HOWS[:2])
    deleted, gone = chance.choice(
        [
            (None, "false"),
            (pl.col("v") > 2, "coalesce(r.v > 2, false)"),
            (pl.col("b"), "coalesce(r.b, false)"),
        ]
    )
    left, table = rows_of(chance, flow)
    topic = chance.choice([B, B, A])
    changes = mr.read(topic, watermark=flow.watermark)
    made = left.group_by(key).join(mr.Table(changes, (key,), deleted), how=how)
    columns, expressions, meet = sides((key,), (key,))
    latest = f"(SELECT * FROM {'b' if topic is B else 'a'} QUALIFY row_number() OVER (PARTITION BY {key}, t ORDER BY topic DESC, part DESC, off DESC) = 1)"
    found = [
        f"CASE WHEN NOT {gone} THEN {one} END"
        if one.startswith("r.")
        else f"l.{key}"
        if "coalesce" in one
        else one
        for one in expressions
    ]
    query = (
        f"SELECT {', '.join(found)}, l.t FROM {table} l ASOF {how} JOIN {latest} r ON {meet} AND l.t >= r.t"
    )
    return Case(made, query + (f" WHERE NOT {gone}" if how == "inner" else ""), (*columns, "event_time"))


def deduplications(chance: random.Random, flow: Flow) -> Case:
    """Rows without their copies, then counted in windows: copies of the same time, or those less than
    `within` after the first.
    """
    key = chance.choice("kgb")
    others = chance.sample([c for c in "kgvb" if c != key], chance.randint(0, 2))
    stream, table = rows_of(chance, flow)
    within = chance.choice([1, 3, 10]) * flow.unit
    kinds = ", ".join([key, *others])
    if chance.random() < 0.5:
        made = stream.group_by(key).deduplicate("event_time", *others, within=flow.disorder + 20 * flow.unit)
        kept = f"(SELECT DISTINCT t, {kinds} FROM {table})"
    else:
        made = stream.group_by(key).deduplicate(*others, within=within)
        kept = (
            f"(WITH RECURSIVE of_kind AS (SELECT {kinds}, t, dense_rank() OVER (ORDER BY {kinds}) AS kind FROM {table}), "
            "kept AS (SELECT kind, min(t) AS t FROM of_kind GROUP BY kind UNION ALL "
            f"SELECT k.kind, (SELECT min(o.t) FROM of_kind o WHERE o.kind = k.kind AND o.t >= k.t + {within}) FROM kept k WHERE k.t IS NOT NULL) "
            f"SELECT DISTINCT {kinds}, t FROM kept JOIN of_kind USING (kind, t))"
        )
    window, beside = a_sliding(chance, flow)
    counted = made.window(window).group_by(key).count(name="n")
    columns = (key, *BOUNDS)
    query = f"SELECT {', '.join(columns)}, count(*) FROM {beside(kept)} GROUP BY {', '.join(columns)}"
    return Case(counted, query, (*columns, "n"), columns)


def framed(chance: random.Random, flow: Flow) -> Case:
    return Case(*row_frames(chance, flow, rows_of))


KINDS_OF_CASES = (
    aggregations,
    chained,
    tops,
    rankings,
    window_joins,
    pane_joins,
    interval_joins,
    regular_joins,
    totals,
    table_joins,
    deduplications,
    framed,
)


@pytest.mark.parametrize("kind", KINDS_OF_CASES)
def test_what_holds_in_the_end_is_what_duckdb_answers(
    kind: Callable[[random.Random, Flow], Case], duck: Duck
) -> None:
    rows, different = 0, []
    for seed in range(SEED, SEED + CASES):
        chance = random.Random(f"{kind.__name__} {seed}")
        flow = a_flow(chance)
        case = kind(chance, flow)
        written = run(chance, Job("asked", write(case.stream, "analytics.asked")), flow)
        found = (
            added_up(written, case.columns) if case.keys is None else newest(written, case.keys, case.columns)
        )
        duck.give(flow)
        wanted = duck.ask(case.query)
        rows += wanted.total()
        if found != wanted:
            different.append(
                f"seed {seed}: {case.query}\n  DuckDB alone {dict(wanted - found)}\n  here alone {dict(found - wanted)}"
            )
    print(
        f"{CASES} cases of {kind.__name__}, {rows} rows, {len(different)} differ", *different[:10], sep="\n"
    )
    assert not different, f"{len(different)} differ"
    assert rows > CASES
