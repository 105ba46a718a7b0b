"""MATCH_RECOGNIZE as an object: made of Python arguments (`patterns.match_recognize`), or read from SQL. It knows no rows yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import polars as pl

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError, MillraceError
from millrace.patterns.sql import grammar, need_sqlglot
from millrace.patterns.sql.grammar import Anchor, Excluded, Part, any_of, identifier, variables
from millrace.patterns.sql.tokens import Word, closing, listed, words
from millrace.values.calls import clear_functions, need

if TYPE_CHECKING:
    from sqlglot import exp

Empty = Literal["show", "omit"]


@dataclass(frozen=True)
class After:
    """Where the search goes on after a match: past its last row, at the row after its first, or at a row of a variable."""

    kind: Literal["past_last", "to_next", "to_first", "to_last"] = "past_last"
    variable: str | None = None


@dataclass(frozen=True)
class Order:
    """A column by which rows are ordered."""

    column: str
    descending: bool = False
    nulls_last: bool = True


@dataclass(frozen=True)
class RowPattern:
    """What is looked for in the rows of a partition, and what is shown of it."""

    text: str
    pattern: Part
    define: Mapping[str, str]
    measures: Mapping[str, str]
    subsets: Mapping[str, tuple[str, ...]]
    all_rows: bool = False
    empty: Empty = "show"
    unmatched: bool = False
    after: After = After()
    partition: tuple[str, ...] = ()
    order: tuple[Order, ...] = ()
    span: int | None = None
    """A match is shorter than this: last < first + span."""
    settled: Mapping[str, exp.Expr] = field(default_factory=dict)
    """Conditions and measures with queries, by their text: as trees with values in place of the queries."""

    def __post_init__(self) -> None:
        known = self.variables
        for name, members in self.subsets.items():
            strange = [one for one in members if one not in known]
            if strange or name in known:
                raise DefinitionError(
                    f"SUBSET {name} = ({', '.join(members)}): a subset has a name of its own and variables of the pattern, which are {', '.join(known)}"
                )
        for name in self.define:
            if name not in known:
                raise DefinitionError(
                    f"DEFINE {name}: the pattern {self.text} has no such variable; it has {', '.join(known)}"
                )
        if self.after.variable is not None and self.after.variable not in (*known, *self.subsets):
            raise DefinitionError(
                f"AFTER MATCH SKIP TO {self.after.variable}: there is no such variable; there are {', '.join((*known, *self.subsets))}"
            )
        if self.unmatched and any_of(self.pattern, Excluded):
            raise DefinitionError(
                "WITH UNMATCHED ROWS and {- … -} contradict each other: excluded rows are neither matched nor unmatched; leave out one"
            )

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the pattern, each once."""
        return tuple(dict.fromkeys(variables(self.pattern)))

    @property
    def anchored(self) -> bool:
        """Whether it asks where the partition begins or ends."""
        return any_of(self.pattern, Anchor)

    def __str__(self) -> str:
        """On one line, with all that its results depend on."""
        said = [
            f"PATTERN ({self.text})",
            f"DEFINE {_listed(self.define, '{0} AS {1}')}" if self.define else "",
        ]
        subsets = {name: f"({', '.join(members)})" for name, members in self.subsets.items()}
        said.append(f"SUBSET {_listed(subsets, '{0} = {1}')}" if subsets else "")
        said.append(f"MEASURES {_listed(self.measures, '{1} AS {0}')}" if self.measures else "")
        said.append(
            f"{'ALL ROWS' if self.all_rows else 'ONE ROW'} PER MATCH{' OMIT EMPTY' * (self.empty == 'omit')}{' WITH UNMATCHED' * self.unmatched}"
        )
        said.append(f"SKIP {' '.join(filter(None, (self.after.kind, self.after.variable)))}")
        said.append("" if self.span is None else f"WITHIN {durations.text(self.span)}")
        return " ".join(filter(None, said))


def match_recognize(
    pattern: str,
    *,
    define: Mapping[str, str] | Sequence[str] = (),
    measures: Mapping[str, str] | Sequence[str] = (),
    subset: str = "",
    rows_per_match: str = "one",
    after_match_skip: str = "past last",
    partition_by: Sequence[str] = (),
    order_by: Sequence[str] = (),
    within: Duration | None = None,
) -> RowPattern:
    """A row pattern of SQL: `match_recognize("A B+", define={"B": "B.price < PREV(B.price)"}, measures={"low": "LAST(B.price)"}, within="1m")`.

    Conditions and measures are SQL. `within` is what bounds it on a stream: last < first + within.
    """
    all_rows, empty, unmatched = _per_match(rows_per_match)
    return RowPattern(
        " ".join(pattern.split()),
        grammar.read(pattern),
        {identifier(name): text for name, text in _named(define, "DEFINE", name_first=True).items()},
        {_plain(name): text for name, text in _named(measures, "MEASURES", name_first=False).items()},
        _subsets(subset),
        all_rows,
        empty,
        unmatched,
        _after(after_match_skip),
        tuple(map(_plain, partition_by)),
        tuple(map(_order, order_by)),
        None if within is None else durations.positive(within, name="within"),
    )


def parse_match_recognize(text: str) -> RowPattern:
    """A row pattern from the text between the brackets of MATCH_RECOGNIZE ( … ), or with them."""
    found = words(text)
    if found and found[0].upper == "MATCH_RECOGNIZE":
        text = text[found[1].end : found[closing(found, 1)].start]
    said = _sections(text)
    if "PATTERN" not in said:
        raise DefinitionError("MATCH_RECOGNIZE has no PATTERN ( … )")
    inner = words(said["PATTERN"])
    return match_recognize(
        said["PATTERN"][inner[0].end : inner[-1].start],
        define=list(listed(said.get("DEFINE", ""))),
        measures=list(listed(said.get("MEASURES", ""))),
        subset=said.get("SUBSET", ""),
        rows_per_match=said.get("PER MATCH", "one"),
        after_match_skip=said.get("SKIP", "past last"),
        partition_by=list(listed(said.get("PARTITION BY", ""))),
        order_by=list(listed(said.get("ORDER BY", ""))),
        within=_interval(said["WITHIN"]) if "WITHIN" in said else None,
    )


_SECTIONS = {
    ("PARTITION", "BY"): "PARTITION BY",
    ("ORDER", "BY"): "ORDER BY",
    ("MEASURES",): "MEASURES",
    ("ONE", "ROW", "PER", "MATCH"): "PER MATCH",
    ("ALL", "ROWS", "PER", "MATCH"): "PER MATCH",
    ("AFTER", "MATCH", "SKIP"): "SKIP",
    ("PATTERN", "("): "PATTERN",
    ("WITHIN", "INTERVAL"): "WITHIN",
    ("SUBSET",): "SUBSET",
    ("DEFINE",): "DEFINE",
}


def _sections(text: str) -> dict[str, str]:
    """The parts of MATCH_RECOGNIZE by their keywords, which stand outside of brackets."""
    found, depth = words(text), 0
    starts: list[tuple[str, int, int]] = []
    for at, word in enumerate(found):
        if depth == 0:
            for keys, name in _SECTIONS.items():
                if tuple(one.upper for one in found[at : at + len(keys)]) == keys and _begins(found, at):
                    whole = name == "PER MATCH"
                    body = at if name in ("PATTERN", "WITHIN") else at + len(keys) - 1
                    starts.append((name, word.start, word.start if whole else found[body].end))
        depth += {"(": 1, ")": -1}.get(word.text, 0)
    if not starts or text[: starts[0][1]].strip():
        raise DefinitionError(
            f"MATCH_RECOGNIZE begins with {text.strip()[:40]!r}; use PARTITION BY, ORDER BY, MEASURES, …, PATTERN, DEFINE"
        )
    ends = [start for _, start, _ in starts[1:]] + [len(text)]
    return {name: text[body:end].strip() for (name, _, body), end in zip(starts, ends, strict=True)}


def _begins(found: list[Word], at: int) -> bool:
    """Whether a keyword is one, and not a name that somebody gave."""
    return at == 0 or (found[at - 1].text not in (",", ".") and found[at - 1].upper != "AS")


def sql(query: str, **tables: pl.DataFrame) -> pl.DataFrame:
    """The answer to a query with MATCH_RECOGNIZE over frames, each under its name; what is around it is answered by the SQL of polars."""
    need("sql", query, str, "a query; say sql('SELECT ...', name=frame)")
    for name, frame in tables.items():
        need(f"sql({name}=...)", frame, pl.DataFrame, "a polars DataFrame")
    need_sqlglot()
    from millrace.patterns.sql.queries import query as answered

    try:
        return answered(query, tables)
    except MillraceError as error:
        message = str(error)
        if len(message) <= 1_000:
            raise
        raise type(error)(f"{message[:500]} … {message[-400:]}") from error
    except MemoryError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise DefinitionError(
            f"the query {query[:200]!r} is not understood: {reason}; simplify it"
        ) from error


def _interval(text: str) -> int:
    need_sqlglot()
    from sqlglot import exp, parse_one

    from millrace.patterns.sql.scalars import interval

    node = parse_one(text, read="trino")
    if not isinstance(node, exp.Interval):
        raise DefinitionError(f"WITHIN {text} is no length of time; use WITHIN INTERVAL '10' SECOND")
    return round(interval(node).total_seconds() * 1000)


def _per_match(said: str) -> tuple[bool, Empty, bool]:
    wanted = " ".join(said.lower().split())
    for prefix, all_rows in (
        ("one row per match", False),
        ("all rows per match", True),
        ("one", False),
        ("all", True),
    ):
        if wanted.startswith(prefix):
            more = wanted.removeprefix(prefix).strip()
            if more in ("", "show empty matches") or (
                all_rows and more in ("omit empty matches", "with unmatched rows")
            ):
                return all_rows, "omit" if more.startswith("omit") else "show", more.startswith("with")
    raise DefinitionError(
        f"rows per match {said!r} is unknown; use 'one', 'all', 'all show empty matches', 'all omit empty matches' or 'all with unmatched rows'"
    )


def _after(said: str) -> After:
    given = words(said)
    match [word.upper for word in given]:
        case ["PAST", "LAST"] | ["PAST", "LAST", "ROW"]:
            return After()
        case ["TO", "NEXT"] | ["TO", "NEXT", "ROW"]:
            return After("to_next")
        case ["TO", "FIRST", _]:
            return After("to_first", identifier(given[2].text))
        case ["TO", "LAST", _]:
            return After("to_last", identifier(given[2].text))
        case ["TO", _]:
            return After("to_last", identifier(given[1].text))
    raise DefinitionError(
        f"after match skip {said!r} is unknown; use 'past last', 'to next', 'to first V' or 'to last V'"
    )


def _named(said: Mapping[str, str] | Sequence[str], what: str, *, name_first: bool) -> dict[str, str]:
    """`V AS EXPR`, or `EXPR AS NAME`, as a map."""
    if isinstance(said, Mapping):
        return dict(said)
    found: dict[str, str] = {}
    for one in said:
        given = words(one)
        places = [at for at, word in enumerate(given) if word.upper == "AS"]
        at = (places[0] if name_first else places[-1]) if places else -1
        if at < 1 or at == len(given) - 1 or (at != 1 if name_first else at != len(given) - 2):
            raise DefinitionError(
                f"{what} {one!r} is not understood; write {'VARIABLE AS CONDITION' if name_first else 'EXPRESSION AS NAME'}"
            )
        name, text = (
            (given[0].text, one[given[at].end :].strip())
            if name_first
            else (given[-1].text, one[: given[at].start].strip())
        )
        if name in found:
            raise DefinitionError(f"{what} says {name} twice; say it once")
        found[name] = text
    return found


def _subsets(text: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for one in listed(text):
        name, equals, members = one.partition("=")
        if not equals or not members.strip().startswith("(") or not members.strip().endswith(")"):
            raise DefinitionError(f"SUBSET {one!r} is not understood; write U = (A, B)")
        found[identifier(name.strip())] = tuple(
            identifier(member) for member in listed(members.strip()[1:-1])
        )
    return found


def _order(said: str) -> Order:
    given = [word.upper for word in words(said)]
    direction, nulls = given[1:2], given[-2:]
    descending = direction == ["DESC"]
    return Order(_plain(words(said)[0].text), descending, nulls != ["NULLS", "FIRST"])


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _listed(named: Mapping[str, str], shape: str) -> str:
    return ", ".join(shape.format(name, text) for name, text in named.items())


clear_functions(globals(), "parse_match_recognize", "match_recognize")
