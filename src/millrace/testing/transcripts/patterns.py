"""Pattern transcripts: a bounded stream of events in, matches and timeouts out.

They run as jobs (`pattern_jobs.py`) on the model, the engine and Spark alike; on the model, matches must also be those of the definition.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from millrace.errors import PatternFailed
from millrace.patterns.builder import Pattern
from millrace.patterns.cep import encoding
from millrace.patterns.cep.contiguous import Contiguous
from millrace.patterns.cep.matcher import AT, END, MATCH, STEP, Key, Matcher
from millrace.patterns.declared import read
from millrace.testing.model.pattern_definition import Definition
from millrace.testing.model.values import Row
from millrace.testing.script import Making, On
from millrace.testing.transcripts.pattern_jobs import ID, TIME, PatternSubject
from millrace.testing.transcripts.words import Wrong, known, number, plain, text

KEYS = ("name", "key", "events", "pattern", "within", "skip", "expect", "must_fail", "tags")
EXPECT = ("matches", "count", "timeouts", "error")
CUTS = 3
"""How often the engine runs a transcript, each time with other batches."""

Taken = tuple[tuple[str, str], ...]
"""A match: which step took which events, each by its id as text, in order within a step."""

Answer = tuple[list[Taken], list[tuple[int, Taken]] | None]
"""Matches and, if anything is known of them, timeouts with their moments."""


@dataclass(frozen=True)
class PatternTranscript:
    """One document, understood."""

    pattern: Pattern
    key: str | None
    events: tuple[Row, ...]
    """Arrival order; one without an id is time that passes."""
    schema: pl.Schema
    expect: Row
    must_fail: str | None

    @property
    def in_time(self) -> list[Row]:
        """The events that are not late, in order of time."""
        passed, taken = -(2**62), []
        for event in self.events:
            if ID not in event:
                passed = max(passed, event["advance_to"])
            elif event[TIME] >= passed:
                taken.append(event)
        return sorted(taken, key=lambda event: event[TIME])


def understand(document: Row) -> PatternTranscript:
    """A document as a transcript; the error names what is unknown or wrong."""
    known(document, KEYS, "a pattern transcript")
    for key in ("events", "pattern", "expect"):
        if key not in document:
            raise Wrong(f"`{key}` is missing")
    expect = document["expect"]
    if not isinstance(expect, dict):
        raise Wrong(f"`expect: {text(expect)}` is no map; it has {', '.join(EXPECT)}")
    known(expect, EXPECT, "expect")
    must_fail = document.get("must_fail")
    if must_fail not in (None, "missing", "unexpected"):
        raise Wrong(f"`must_fail: {text(must_fail)}` is unknown; use missing or unexpected")
    events = tuple(_events(document["events"]))
    pattern = read(document["pattern"], within=document.get("within"), skip=document.get("skip")).checked(
        stream=False
    )
    return PatternTranscript(
        pattern, document.get("key"), events, _schema(events, document.get("key")), expect, must_fail
    )


def run(transcript: PatternTranscript, on: On | Making, number: int = 0) -> list[tuple[str, str]]:
    """Every difference between what came and what was expected; `number` keeps transcripts apart that run together."""
    subject = PatternSubject(transcript, number)
    answers: list[Answer] = (
        [by_definition(transcript)] if on == "model" and "error" not in transcript.expect else []
    )
    try:
        answers += [subject.play(on, seed) for seed in range(CUTS if on == "engine" else 1)]
    except PatternFailed as failed:
        if transcript.expect.get("error") == failed.kind:
            return []
        return [("unexpected", str(failed))]
    if "error" in transcript.expect:
        return [("missing", f"missing error {transcript.expect['error']}: nothing failed")]
    problems: list[tuple[str, str]] = []
    for cut, (matches, timeouts) in enumerate(answers):
        problems += _compared(transcript.expect, matches, timeouts, "" if not cut else f" (cut {cut})")
    return problems


def by_definition(transcript: PatternTranscript) -> Answer:
    """The matches that the definition of the pattern allows; of timeouts it knows nothing."""
    lanes: dict[Any, list[Row]] = {}
    for event in transcript.in_time:
        lanes.setdefault(plain(event.get(transcript.key)) if transcript.key else None, []).append(event)
    found: list[Taken] = []
    for rows in lanes.values():
        full = [{name: row.get(name) for name in transcript.schema} for row in rows]
        paths = Definition(transcript.pattern, transcript.schema, full, TIME).matches()
        found += [tuple((step, plain(rows[event][ID])) for step, event in path) for path in paths]
    return found, None


def by_rows(transcript: PatternTranscript, seed: int) -> tuple[list[Taken], list[tuple[int, Taken]]] | None:
    """The same of a regular pattern as it is found on columns; None: it is not one."""
    matcher = Matcher(
        transcript.pattern, transcript.schema, (transcript.key,) if transcript.key else (), TIME
    )
    if not Contiguous.suits(matcher):
        return None
    matches: list[Taken] = []
    timeouts: list[tuple[int, Taken]] = []
    reader = Contiguous(matcher)
    kept = reader.schema.to_frame()
    for rows, watermark in _batches(transcript, random.Random(seed)):  # noqa: S311 - cuts are no secret
        frame = pl.DataFrame(
            [{name: row.get(name) for name in transcript.schema} for row in rows], schema=transcript.schema
        )
        done = reader.step(kept, frame, watermark)
        kept = done.kept
        matches += [taken for _, taken in _taken(done.matches)]
        timeouts += [(at or 0, taken) for at, taken in _taken(done.timeouts)]
    return matches, timeouts


def by_matcher(
    transcript: PatternTranscript, seed: int, *, timeouts_too: bool = True
) -> tuple[list[Taken], list[tuple[int, Taken]]]:
    """The matches and timeouts that the matcher finds; between batches all it knows becomes bytes and comes back."""
    keys = (transcript.key,) if transcript.key else ()
    matcher = Matcher(transcript.pattern, transcript.schema, keys, TIME, timeouts=timeouts_too)
    known: dict[Key, bytes] = {}
    matches: list[Taken] = []
    timeouts: list[tuple[int, Taken]] = []
    for rows, watermark in _batches(transcript, random.Random(seed)):  # noqa: S311 - cuts are no secret
        frame = pl.DataFrame(
            [{name: row.get(name) for name in transcript.schema} for row in rows], schema=transcript.schema
        )
        done = matcher.step(
            {key: encoding.load(data, matcher.states) for key, data in known.items()}, frame, watermark
        )
        for key, course in done.courses.items():
            known.pop(key, None)
            if course is not None:
                known[key] = encoding.dump(course)
        matches += [taken for _, taken in _taken(done.matches)]
        timeouts += [(at or 0, taken) for at, taken in _taken(done.timeouts)]
    return matches, timeouts


def _batches(transcript: PatternTranscript, chance: random.Random) -> Iterator[tuple[list[Row], int]]:
    """The events in order of time, cut anywhere between two times and wherever time passes."""
    times = sorted({row[TIME] for row in transcript.in_time})
    cuts = {time for time in times if chance.random() < 0.5}
    cuts |= {event["advance_to"] for event in transcript.events if ID not in event}
    rest = transcript.in_time
    for cut in sorted(cuts):
        yield [row for row in rest if row[TIME] < cut], cut
        rest = [row for row in rest if row[TIME] >= cut]
    yield rest, END


def _taken(frame: pl.DataFrame) -> Iterator[tuple[int | None, Taken]]:
    for rows in frame.partition_by(MATCH, maintain_order=True):
        yield rows[AT][0], tuple(zip(rows[STEP].to_list(), map(plain, rows[ID].to_list()), strict=True))


def _compared(
    expect: Row, matches: Sequence[Taken], timeouts: Sequence[tuple[int, Taken]] | None, where: str
) -> list[tuple[str, str]]:
    problems: list[tuple[str, str]] = []
    if "matches" in expect:
        problems += _differences([_shape(said) for said in expect["matches"]], matches, f"matches{where}")
    if "count" in expect and expect["count"] != len(matches):
        kind = "missing" if len(matches) < expect["count"] else "unexpected"
        problems.append((kind, f"expected {expect['count']} matches, but there are {len(matches)}{where}"))
    if "timeouts" in expect and timeouts is not None:
        wanted = Counter(f"{said['at']} {_said(_shape(said['match']))}" for said in expect["timeouts"])
        came = Counter(f"{at} {_said(_by_step(taken))}" for at, taken in timeouts)
        problems += _listed(wanted, came, f"timeouts{where}")
    return problems


def _differences(wanted: Sequence[Any], came: Sequence[Taken], what: str) -> list[tuple[str, str]]:
    lists = [said for said in wanted if isinstance(said, list)]
    if lists and len(lists) != len(wanted):
        raise Wrong("`matches` are lists of ids or maps of steps, not both")
    shapes = [sorted(id for _, id in taken) if lists else _by_step(taken) for taken in came]
    return _listed(Counter(map(_said, wanted)), Counter(map(_said, shapes)), what)


def _listed(wanted: Counter[str], came: Counter[str], what: str) -> list[tuple[str, str]]:
    missing, more = wanted - came, came - wanted
    problems = [("missing", f"missing {what} {', '.join(missing.elements())}")] if missing else []
    return problems + ([("unexpected", f"unexpected {what} {', '.join(more.elements())}")] if more else [])


def _shape(said: Any) -> Any:
    if isinstance(said, list):
        return sorted(map(plain, said))
    if not isinstance(said, dict) or not all(isinstance(ids, list) for ids in said.values()):
        raise Wrong(f"{text(said)} is no match; write [ID..] or {{STEP: [ID..]}}")
    return {str(step): [plain(id) for id in ids] for step, ids in said.items() if ids}


def _by_step(taken: Taken) -> dict[str, list[str]]:
    shape: dict[str, list[str]] = {}
    for step, id in taken:
        shape.setdefault(step, []).append(id)
    return shape


def _said(shape: Any) -> str:
    if isinstance(shape, list):
        return f"[{', '.join(shape)}]"
    return "{" + ", ".join(f"{step}: [{', '.join(ids)}]" for step, ids in sorted(shape.items())) + "}"


def _events(said: Any) -> Iterator[Row]:
    if not isinstance(said, list):
        raise Wrong(f"`events: {text(said)}` is no list")
    for event in said:
        if isinstance(event, dict) and set(event) == {"advance_to"}:
            yield {"advance_to": number(event["advance_to"], "advance_to")}
        elif isinstance(event, dict) and ID in event and TIME in event:
            number(event[TIME], TIME)
            yield event
        else:
            raise Wrong(
                f"{text(event)} is no event; write {{id: ID, t: TIME, FIELD: VALUE}} or {{advance_to: TIME}}"
            )


def _schema(events: Sequence[Row], key: str | None) -> pl.Schema:
    """The columns of the events: of each field the one type that holds all its values."""
    schema: dict[str, pl.DataType] = {}
    for name in dict.fromkeys(name for event in events if ID in event for name in event):
        values = [event[name] for event in events if event.get(name) is not None]
        kinds = {type(value) for value in values}
        if kinds <= {int}:
            schema[name] = pl.Int64()
        elif kinds <= {int, float}:
            schema[name] = pl.Float64()
        elif len(kinds) == 1 and kinds <= {str, bool}:
            schema[name] = pl.String() if kinds == {str} else pl.Boolean()
        else:
            raise Wrong(
                f"`{name}` has values of several kinds: {', '.join(sorted(kind.__name__ for kind in kinds))}; use one"
            )
    if key is not None and key not in schema:
        raise Wrong(f"`key: {key}` is no field of the events; there are {', '.join(schema)}")
    return pl.Schema(schema)
