"""Pattern transcripts: a bounded stream of events in, matches and timeouts out.

They run as jobs (`pattern_jobs.py`) on the model, the engine and Spark alike; on the model, matches must also
be those of the definition.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.errors import PatternFailed
from millrace.patterns.builder import Pattern
from millrace.patterns.cep import encoding
from millrace.patterns.cep.contiguous import ContiguousMatcher
from millrace.patterns.cep.matcher import Key, Matcher
from millrace.patterns.declared import read_pattern
from millrace.testing.model.pattern_definition import PatternDefinition
from millrace.testing.model.values import Row
from millrace.testing.script import MakeBackend, On
from millrace.testing.transcripts.pattern_jobs import ID, TIME, PatternTranscriptJob
from millrace.testing.transcripts.words import (
    TranscriptError,
    check_keys,
    parse_integer,
    to_canonical_text,
    to_text,
)
from millrace.values.columns import MATCH_NUMBER, STEP, TIMED_OUT_AT

TRANSCRIPT_KEYS = ("name", "key", "events", "pattern", "within", "skip", "expect", "must_fail", "tags")
EXPECT_KEYS = ("matches", "count", "timeouts", "error")
CUTS = 3
"""How often the engine runs a transcript, each time in other batches."""

TakenEvents = tuple[tuple[str, str], ...]
"""A match: which step took which events, each by its id as text, in order within a step."""

PatternResult = tuple[list[TakenEvents], list[tuple[int, TakenEvents]] | None]
"""Matches, and timeouts with their times; None where timeouts are not known."""


@dataclass(frozen=True)
class PatternTranscript:
    """A parsed document."""

    pattern: Pattern
    key: str | None
    events: tuple[Row, ...]
    """In order of arrival; an entry without an id moves the watermark."""
    schema: pl.Schema
    expect: Row
    must_fail: str | None

    @property
    def events_in_time(self) -> list[Row]:
        """The events that are not late, in order of time."""
        watermark, accepted = BEFORE_ALL, []
        for event in self.events:
            if ID not in event:
                watermark = max(watermark, event["advance_to"])
            elif event[TIME] >= watermark:
                accepted.append(event)
        return sorted(accepted, key=lambda event: event[TIME])


def parse_document(document: Row) -> PatternTranscript:
    """A document as a transcript; the error names what is unknown or wrong."""
    check_keys(document, TRANSCRIPT_KEYS, "a pattern transcript")
    for key in ("events", "pattern", "expect"):
        if key not in document:
            raise TranscriptError(f"`{key}` is missing")
    expect = document["expect"]
    if not isinstance(expect, dict):
        raise TranscriptError(f"`expect: {to_text(expect)}` is not a map; it has {', '.join(EXPECT_KEYS)}")
    check_keys(expect, EXPECT_KEYS, "expect")
    must_fail = document.get("must_fail")
    if must_fail not in (None, "missing", "unexpected"):
        raise TranscriptError(f"`must_fail: {to_text(must_fail)}` is unknown; use missing or unexpected")
    events = tuple(_parse_events(document["events"]))
    pattern = read_pattern(
        document["pattern"], within=document.get("within"), skip=document.get("skip")
    ).check(stream=False)
    return PatternTranscript(
        pattern, document.get("key"), events, _infer_schema(events, document.get("key")), expect, must_fail
    )


def run_transcript(
    transcript: PatternTranscript, on: On | MakeBackend, number: int = 0
) -> list[tuple[str, str]]:
    """Every difference between results and expectations.

    `number` tells transcripts apart that run together.
    """
    subject = PatternTranscriptJob(transcript, number)
    results: list[PatternResult] = (
        [match_by_definition(transcript)] if on == "model" and "error" not in transcript.expect else []
    )
    try:
        results += [subject.play(on, seed) for seed in range(CUTS if on == "engine" else 1)]
    except PatternFailed as failed:
        if transcript.expect.get("error") == failed.kind:
            return []
        return [("unexpected", str(failed))]
    if "error" in transcript.expect:
        return [("missing", f"missing error {transcript.expect['error']}: nothing failed")]
    problems: list[tuple[str, str]] = []
    for cut, (matches, timeouts) in enumerate(results):
        problems += _compare(transcript.expect, matches, timeouts, "" if not cut else f" (cut {cut})")
    return problems


def match_by_definition(transcript: PatternTranscript) -> PatternResult:
    """The matches that the definition of the pattern allows, without timeouts."""
    rows_by_key: dict[Any, list[Row]] = {}
    for event in transcript.events_in_time:
        rows_by_key.setdefault(
            to_canonical_text(event.get(transcript.key)) if transcript.key else None, []
        ).append(event)
    found: list[TakenEvents] = []
    for rows in rows_by_key.values():
        full = [{name: row.get(name) for name in transcript.schema} for row in rows]
        paths = PatternDefinition(transcript.pattern, transcript.schema, full, TIME).find_matches()
        found += [tuple((step, to_canonical_text(rows[event][ID])) for step, event in path) for path in paths]
    return found, None


def match_by_columns(
    transcript: PatternTranscript, seed: int
) -> tuple[list[TakenEvents], list[tuple[int, TakenEvents]]] | None:
    """The matches and timeouts of a regular pattern, found on columns; None for other patterns."""
    matcher = Matcher(
        transcript.pattern, transcript.schema, (transcript.key,) if transcript.key else (), TIME
    )
    if not ContiguousMatcher.is_suitable(matcher):
        return None
    matches: list[TakenEvents] = []
    timeouts: list[tuple[int, TakenEvents]] = []
    columns_matcher = ContiguousMatcher(matcher)
    pending = columns_matcher.schema.to_frame()
    for rows, watermark in _cut_into_batches(transcript, random.Random(seed)):  # noqa: S311 - cuts are no secret
        frame = pl.DataFrame(
            [{name: row.get(name) for name in transcript.schema} for row in rows], schema=transcript.schema
        )
        result = columns_matcher.step(pending, frame, watermark)
        pending = result.kept
        matches += [taken for _, taken in _read_matches(result.matches)]
        timeouts += [(at or 0, taken) for at, taken in _read_matches(result.timeouts)]
    return matches, timeouts


def match_by_matcher(
    transcript: PatternTranscript, seed: int, *, timeouts_too: bool = True
) -> tuple[list[TakenEvents], list[tuple[int, TakenEvents]]]:
    """The matches and timeouts that the matcher finds; its state is encoded and decoded between batches."""
    keys = (transcript.key,) if transcript.key else ()
    matcher = Matcher(transcript.pattern, transcript.schema, keys, TIME, needs_timeouts=timeouts_too)
    stored: dict[Key, bytes] = {}
    matches: list[TakenEvents] = []
    timeouts: list[tuple[int, TakenEvents]] = []
    for rows, watermark in _cut_into_batches(transcript, random.Random(seed)):  # noqa: S311 - cuts are no secret
        frame = pl.DataFrame(
            [{name: row.get(name) for name in transcript.schema} for row in rows], schema=transcript.schema
        )
        result = matcher.step(
            {key: encoding.decode_matches(data, matcher.states) for key, data in stored.items()},
            frame,
            watermark,
        )
        for key, partial_matches in result.changed.items():
            stored.pop(key, None)
            if partial_matches is not None:
                stored[key] = encoding.encode_matches(partial_matches)
        matches += [taken for _, taken in _read_matches(result.matches)]
        timeouts += [(at or 0, taken) for at, taken in _read_matches(result.timeouts)]
    return matches, timeouts


def _cut_into_batches(
    transcript: PatternTranscript, chance: random.Random
) -> Iterator[tuple[list[Row], int]]:
    """The events in order of time, cut at random between two times, and wherever the watermark moves."""
    times = sorted({row[TIME] for row in transcript.events_in_time})
    cuts = {time for time in times if chance.random() < 0.5}
    cuts |= {event["advance_to"] for event in transcript.events if ID not in event}
    rest = transcript.events_in_time
    for cut in sorted(cuts):
        yield [row for row in rest if row[TIME] < cut], cut
        rest = [row for row in rest if row[TIME] >= cut]
    yield rest, END_OF_STREAM


def _read_matches(frame: pl.DataFrame) -> Iterator[tuple[int | None, TakenEvents]]:
    for rows in frame.partition_by(MATCH_NUMBER, maintain_order=True):
        yield (
            rows[TIMED_OUT_AT][0],
            tuple(zip(rows[STEP].to_list(), map(to_canonical_text, rows[ID].to_list()), strict=True)),
        )


def _compare(
    expect: Row,
    matches: Sequence[TakenEvents],
    timeouts: Sequence[tuple[int, TakenEvents]] | None,
    where: str,
) -> list[tuple[str, str]]:
    problems: list[tuple[str, str]] = []
    if "matches" in expect:
        problems += _compare_matches(
            [_parse_shape(expected) for expected in expect["matches"]], matches, f"matches{where}"
        )
    if "count" in expect and expect["count"] != len(matches):
        kind = "missing" if len(matches) < expect["count"] else "unexpected"
        problems.append((kind, f"expected {expect['count']} matches, but there are {len(matches)}{where}"))
    if "timeouts" in expect and timeouts is not None:
        expected_counts = Counter(
            f"{expected['at']} {_shape_text(_parse_shape(expected['match']))}"
            for expected in expect["timeouts"]
        )
        found_counts = Counter(f"{at} {_shape_text(_group_by_step(taken))}" for at, taken in timeouts)
        problems += _compare_counts(expected_counts, found_counts, f"timeouts{where}")
    return problems


def _compare_matches(
    expected: Sequence[Any], found: Sequence[TakenEvents], subject: str
) -> list[tuple[str, str]]:
    lists = [entry for entry in expected if isinstance(entry, list)]
    if lists and len(lists) != len(expected):
        raise TranscriptError("`matches` are lists of ids or maps of steps, not both")
    shapes = [sorted(id for _, id in taken) if lists else _group_by_step(taken) for taken in found]
    return _compare_counts(Counter(map(_shape_text, expected)), Counter(map(_shape_text, shapes)), subject)


def _compare_counts(expected: Counter[str], found: Counter[str], subject: str) -> list[tuple[str, str]]:
    missing, unexpected = expected - found, found - expected
    problems = [("missing", f"missing {subject} {', '.join(missing.elements())}")] if missing else []
    return problems + (
        [("unexpected", f"unexpected {subject} {', '.join(unexpected.elements())}")] if unexpected else []
    )


def _parse_shape(value: Any) -> Any:
    if isinstance(value, list):
        return sorted(map(to_canonical_text, value))
    if not isinstance(value, dict) or not all(isinstance(ids, list) for ids in value.values()):
        raise TranscriptError(f"{to_text(value)} is not a match; write [ID..] or {{STEP: [ID..]}}")
    return {str(step): [to_canonical_text(id) for id in ids] for step, ids in value.items() if ids}


def _group_by_step(taken: TakenEvents) -> dict[str, list[str]]:
    shape: dict[str, list[str]] = {}
    for step, id in taken:
        shape.setdefault(step, []).append(id)
    return shape


def _shape_text(shape: Any) -> str:
    if isinstance(shape, list):
        return f"[{', '.join(shape)}]"
    return "{" + ", ".join(f"{step}: [{', '.join(ids)}]" for step, ids in sorted(shape.items())) + "}"


def _parse_events(value: Any) -> Iterator[Row]:
    if not isinstance(value, list):
        raise TranscriptError(f"`events: {to_text(value)}` is not a list")
    for event in value:
        if isinstance(event, dict) and set(event) == {"advance_to"}:
            yield {"advance_to": parse_integer(event["advance_to"], "advance_to")}
        elif isinstance(event, dict) and ID in event and TIME in event:
            parse_integer(event[TIME], TIME)
            yield event
        else:
            raise TranscriptError(
                f"{to_text(event)} is not an event; write {{id: ID, t: TIME, FIELD: VALUE}} or "
                "{advance_to: TIME}"
            )


def _infer_schema(events: Sequence[Row], key: str | None) -> pl.Schema:
    """The columns of the events; each field has the one type that holds all its values."""
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
            raise TranscriptError(
                f"`{name}` has values of several kinds: "
                f"{', '.join(sorted(kind.__name__ for kind in kinds))}; use one"
            )
    if key is not None and key not in schema:
        raise TranscriptError(f"`key: {key}` is not a field of the events; there are {', '.join(schema)}")
    return pl.Schema(schema)
