"""The MATCH_RECOGNIZE clause as an object, from Python arguments (`patterns.match_recognize`) or from SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import polars as pl

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError, MillraceError
from millrace.patterns.sql import grammar, require_sqlglot
from millrace.patterns.sql.grammar import (
    Anchor,
    Exclusion,
    RowPatternPart,
    contains_part,
    list_variables,
    normalize_identifier,
)
from millrace.patterns.sql.skip import AfterMatchSkip
from millrace.patterns.sql.tokens import Token, find_closing, split_list, tokenize
from millrace.values.calls import explain_errors_of, require_type

if TYPE_CHECKING:
    from sqlglot import exp

EmptyMatches = Literal["show", "omit"]


@dataclass(frozen=True)
class OrderColumn:
    """A column of ORDER BY."""

    column: str
    is_descending: bool = False
    nulls_last: bool = True


@dataclass(frozen=True)
class RowPattern:
    """A MATCH_RECOGNIZE clause, not compiled for any schema yet."""

    text: str
    pattern: RowPatternPart
    define: Mapping[str, str]
    measures: Mapping[str, str]
    subsets: Mapping[str, tuple[str, ...]]
    all_rows: bool = False
    empty_matches: EmptyMatches = "show"
    with_unmatched: bool = False
    after: AfterMatchSkip = field(default_factory=AfterMatchSkip)
    partition: tuple[str, ...] = ()
    order: tuple[OrderColumn, ...] = ()
    span: int | None = None
    """A match is shorter than this: last < first + span."""
    settled: Mapping[str, exp.Expr] = field(default_factory=dict)
    """Syntax trees of conditions and measures whose subqueries have been
    replaced by values, by their text.
    """

    def __post_init__(self) -> None:
        variables = self.variables
        for name, members in self.subsets.items():
            unknown = [one for one in members if one not in variables]
            if unknown or name in variables:
                raise DefinitionError(
                    f"SUBSET {name} = ({', '.join(members)}): a subset has a name of its own and variables "
                    f"of the pattern, which are {', '.join(variables)}"
                )
        for name in self.define:
            if name not in variables:
                raise DefinitionError(
                    f"DEFINE {name}: the pattern {self.text} has no such variable; it has "
                    f"{', '.join(variables)}"
                )
        if self.after.variable is not None and self.after.variable not in (*variables, *self.subsets):
            raise DefinitionError(
                f"AFTER MATCH SKIP TO {self.after.variable}: there is no such variable; there are "
                f"{', '.join((*variables, *self.subsets))}"
            )
        if self.with_unmatched and contains_part(self.pattern, Exclusion):
            raise DefinitionError(
                "WITH UNMATCHED ROWS and {- … -} contradict each other: excluded rows are neither matched "
                "nor unmatched; leave out one"
            )

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the pattern, each once, in order."""
        return tuple(dict.fromkeys(list_variables(self.pattern)))

    @property
    def is_anchored(self) -> bool:
        """Whether the pattern has `^` or `$`."""
        return contains_part(self.pattern, Anchor)

    def __str__(self) -> str:
        """As one line. State depends on it: it contains all that results depend on."""
        sections = [
            f"PATTERN ({self.text})",
            f"DEFINE {_join_named(self.define, '{0} AS {1}')}" if self.define else "",
        ]
        subsets = {name: f"({', '.join(members)})" for name, members in self.subsets.items()}
        sections.append(f"SUBSET {_join_named(subsets, '{0} = {1}')}" if subsets else "")
        sections.append(f"MEASURES {_join_named(self.measures, '{1} AS {0}')}" if self.measures else "")
        sections.append(
            f"{'ALL ROWS' if self.all_rows else 'ONE ROW'} PER "
            f"MATCH{' OMIT EMPTY' * (self.empty_matches == 'omit')}{' WITH UNMATCHED' * self.with_unmatched}"
        )
        sections.append(f"SKIP {' '.join(filter(None, (self.after.kind, self.after.variable)))}")
        sections.append("" if self.span is None else f"WITHIN {durations.format_millis(self.span)}")
        return " ".join(filter(None, sections))


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
    """A row pattern of SQL: `match_recognize("A B+", define={"B": "B.price < PREV(B.price)"},
    measures={"low": "LAST(B.price)"}, within="1m")`.

    Conditions and measures are SQL. `within` bounds it on a stream: last < first + within.
    """
    all_rows, empty, unmatched = _parse_rows_per_match(rows_per_match)
    return RowPattern(
        " ".join(pattern.split()),
        grammar.parse_row_pattern(pattern),
        {
            normalize_identifier(name): text
            for name, text in _parse_named(define, "DEFINE", name_first=True).items()
        },
        {_unquote(name): text for name, text in _parse_named(measures, "MEASURES", name_first=False).items()},
        _parse_subsets(subset),
        all_rows,
        empty,
        unmatched,
        AfterMatchSkip.parse(after_match_skip),
        tuple(map(_unquote, partition_by)),
        tuple(map(_parse_order, order_by)),
        None if within is None else durations.parse_positive(within, name="within"),
    )


def parse_match_recognize(text: str) -> RowPattern:
    """A row pattern from SQL: `MATCH_RECOGNIZE ( … )`, or the text between the brackets."""
    found = tokenize(text)
    if found and found[0].upper == "MATCH_RECOGNIZE":
        text = text[found[1].end : found[find_closing(found, 1)].start]
    sections = _split_sections(text)
    if "PATTERN" not in sections:
        raise DefinitionError("MATCH_RECOGNIZE has no PATTERN ( … ); add one")
    inner = tokenize(sections["PATTERN"])
    return match_recognize(
        sections["PATTERN"][inner[0].end : inner[-1].start],
        define=list(split_list(sections.get("DEFINE", ""))),
        measures=list(split_list(sections.get("MEASURES", ""))),
        subset=sections.get("SUBSET", ""),
        rows_per_match=sections.get("PER MATCH", "one"),
        after_match_skip=sections.get("SKIP", "past last"),
        partition_by=list(split_list(sections.get("PARTITION BY", ""))),
        order_by=list(split_list(sections.get("ORDER BY", ""))),
        within=_parse_within(sections["WITHIN"]) if "WITHIN" in sections else None,
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


def _split_sections(text: str) -> dict[str, str]:
    """The sections of MATCH_RECOGNIZE by their keywords, which stand outside of brackets."""
    found, depth = tokenize(text), 0
    starts: list[tuple[str, int, int]] = []
    for at, word in enumerate(found):
        if depth == 0:
            for keys, name in _SECTIONS.items():
                if tuple(one.upper for one in found[at : at + len(keys)]) == keys and _is_keyword(found, at):
                    whole = name == "PER MATCH"
                    body = at if name in ("PATTERN", "WITHIN") else at + len(keys) - 1
                    starts.append((name, word.start, word.start if whole else found[body].end))
        depth += {"(": 1, ")": -1}.get(word.text, 0)
    if not starts or text[: starts[0][1]].strip():
        raise DefinitionError(
            f"MATCH_RECOGNIZE begins with {text.strip()[:40]!r}; use PARTITION BY, ORDER BY, MEASURES, …, "
            "PATTERN, DEFINE"
        )
    ends = [start for _, start, _ in starts[1:]] + [len(text)]
    return {name: text[body:end].strip() for (name, _, body), end in zip(starts, ends, strict=True)}


def _is_keyword(found: list[Token], at: int) -> bool:
    """Whether a word is a keyword here, and not the name of a column or measure."""
    return at == 0 or (found[at - 1].text not in (",", ".") and found[at - 1].upper != "AS")


def sql(query: str, **tables: pl.DataFrame) -> pl.DataFrame:
    """The result of a query with MATCH_RECOGNIZE over frames.
    The SQL of polars executes the rest of the query.
    """
    require_type("sql", query, str, "a query, as in sql('SELECT ...', name=frame)")
    for name, frame in tables.items():
        require_type(f"sql({name}=...)", frame, pl.DataFrame, "a polars DataFrame")
    require_sqlglot()
    from millrace.patterns.sql.queries import run_query as answered

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
        raise DefinitionError(f"the query {query[:200]!r} failed: {reason}; simplify it") from error


def _parse_within(text: str) -> int:
    require_sqlglot()
    from sqlglot import exp, parse_one

    from millrace.patterns.sql.scalars import parse_interval

    node = parse_one(text, read="trino")
    if not isinstance(node, exp.Interval):
        raise DefinitionError(f"WITHIN {text} is not an interval; use WITHIN INTERVAL '10' SECOND")
    return round(parse_interval(node).total_seconds() * 1000)


def _parse_rows_per_match(text: str) -> tuple[bool, EmptyMatches, bool]:
    normalized = " ".join(text.lower().split())
    for prefix, all_rows in (
        ("one row per match", False),
        ("all rows per match", True),
        ("one", False),
        ("all", True),
    ):
        if normalized.startswith(prefix):
            more = normalized.removeprefix(prefix).strip()
            if more in ("", "show empty matches") or (
                all_rows and more in ("omit empty matches", "with unmatched rows")
            ):
                return all_rows, "omit" if more.startswith("omit") else "show", more.startswith("with")
    raise DefinitionError(
        f"rows per match {text!r} is unknown; use 'one', 'all', 'all show empty matches', 'all omit empty "
        "matches' or 'all with unmatched rows'"
    )


def _parse_named(
    items: Mapping[str, str] | Sequence[str], clause: str, *, name_first: bool
) -> dict[str, str]:
    """Items such as `V AS EXPR` (with `name_first`) or `EXPR AS NAME`, by name."""
    if isinstance(items, Mapping):
        return dict(items)
    found: dict[str, str] = {}
    for one in items:
        tokens = tokenize(one)
        places = [at for at, word in enumerate(tokens) if word.upper == "AS"]
        at = (places[0] if name_first else places[-1]) if places else -1
        if at < 1 or at == len(tokens) - 1 or (at != 1 if name_first else at != len(tokens) - 2):
            raise DefinitionError(
                f"{clause} {one!r} cannot be parsed; write "
                f"{'VARIABLE AS CONDITION' if name_first else 'EXPRESSION AS NAME'}"
            )
        name, text = (
            (tokens[0].text, one[tokens[at].end :].strip())
            if name_first
            else (tokens[-1].text, one[: tokens[at].start].strip())
        )
        if name in found:
            raise DefinitionError(f"{clause} has {name} twice; remove one")
        found[name] = text
    return found


def _parse_subsets(text: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for one in split_list(text):
        name, equals, members = one.partition("=")
        if not equals or not members.strip().startswith("(") or not members.strip().endswith(")"):
            raise DefinitionError(f"SUBSET {one!r} cannot be parsed; write U = (A, B)")
        found[normalize_identifier(name.strip())] = tuple(
            normalize_identifier(member) for member in split_list(members.strip()[1:-1])
        )
    return found


def _parse_order(text: str) -> OrderColumn:
    tokens = [word.upper for word in tokenize(text)]
    direction, nulls = tokens[1:2], tokens[-2:]
    descending = direction == ["DESC"]
    return OrderColumn(_unquote(tokenize(text)[0].text), descending, nulls != ["NULLS", "FIRST"])


def _unquote(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _join_named(named: Mapping[str, str], shape: str) -> str:
    return ", ".join(shape.format(name, text) for name, text in named.items())


explain_errors_of(globals(), "parse_match_recognize", "match_recognize")
