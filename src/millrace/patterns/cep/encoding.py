"""A course as bytes and back: events, the chains over them, and who stands where, each written once however many share it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from millrace.errors import StateMismatch
from millrace.patterns.cep.match_buffer import Event, Link, Node, chain
from millrace.patterns.cep.nfa import State
from millrace.patterns.cep.partial_matches import Course, Match, Run

VERSION = 2
"""Of version 1, each match had links of its own with their answers, and states of patterns with groups had other numbers."""


def dump(course: Course) -> bytes:
    """A course as bytes."""
    links: dict[int, tuple[int, Link]] = {}
    events: dict[int, Event] = {}
    standing = [
        *((run.node, run.start) for run in course.runs),
        *((match.node, match.start) for match in course.held),
    ]
    for node, start in sorted(standing, key=lambda one: one[1].seq):  # who began first goes back the furthest
        events.setdefault(start.seq, start)
        fresh = list(itertools.takewhile(lambda link: id(link) not in links, chain(node, start.seq)))
        for link in reversed(fresh):
            events.setdefault(link.event.seq, link.event)
            links[id(link)] = len(links), link
    said = [
        VERSION,
        course.seq,
        [[event.seq, event.time, event.row] for event in events.values()],
        [
            [links[id(one.before)][0] if id(one.before) in links else -1, one.step, one.event.seq]
            for _, one in links.values()
        ],
        [
            [run.state.number, links[id(run.node.link)][0], run.start.seq, run.node.answers]
            for run in course.runs
        ],
        [
            [links[id(match.node.link)][0], match.start.seq, match.at, match.node.answers]
            for match in course.held
        ],
    ]
    return msgspec.msgpack.encode(said)


def load(data: bytes, states: Sequence[State], columns: Sequence[str] = ()) -> Course:
    """The course that `dump` wrote; with `columns`, its events have those."""
    version, *rest = msgspec.msgpack.decode(data)
    if version != VERSION:
        raise StateMismatch(
            f"partial matches of version {version} are stored, but this is version {VERSION}, which numbers the states of a pattern otherwise; start the job "
            "without them (--reset JOB), go on with the version of millrace that wrote them, or compute results anew (millrace backfill)"
        )
    seq, rows, written, runs, held = rest
    events: Mapping[int, Event] = {
        number: Event(number, time, 0, widened(row, len(columns), columns)) for number, time, row in rows
    }
    links: list[Link] = []
    for before, step, event in written:
        links.append(Link(None if before < 0 else links[before], step, events[event]))

    def node(link: int, start: int, answers: Sequence[Any]) -> Node:
        return Node(links[link], links[link].event, start, tuple(answers))

    return Course(
        tuple(
            Run(states[state], node(link, start, answers), events[start])
            for state, link, start, answers in runs
        ),
        tuple(Match(node(link, start, answers), events[start], at) for link, start, at, answers in held),
        seq,
        len(links),
    )


def widened(row: Sequence[Any], width: int, columns: Sequence[str]) -> tuple[Any, ...]:
    """A row with null in the fields that its event type has got since it was stored; they stand last among the fields, before the times.

    Nothing else can make a row wider: a changed step before the operator is refused, as it belongs to the fingerprint of the state.
    """
    missing = width - len(row)
    if missing <= 0 or "event_time" not in columns:
        return tuple(row)
    place = columns.index("event_time") - missing
    return (*row[:place], *([None] * missing), *row[place:])


def storable(value: Any) -> bool:
    """Whether a value comes back as it was."""
    return value is None or isinstance(value, bool | int | float | str | bytes)
