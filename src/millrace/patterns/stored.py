"""A course as bytes and back: events, the chains over them, and who stands where, each written once however many share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from millrace.patterns.automaton import State
from millrace.patterns.courses import Course, Match, Run
from millrace.patterns.memory import Event, Node, chain

VERSION = 1


def dump(course: Course) -> bytes:
    """A course as bytes."""
    nodes: dict[int, tuple[int, Node]] = {}
    events: dict[int, Event] = {}
    for node, start in [*((run.node, run.start) for run in course.runs), *((match.node, match.start) for match in course.held)]:
        events.setdefault(start.seq, start)
        for one in reversed(list(chain(node))):
            events.setdefault(one.event.seq, one.event)
            nodes.setdefault(id(one), (len(nodes), one))
    said = [
        VERSION,
        course.seq,
        [[event.seq, event.time, event.row] for event in events.values()],
        [[-1 if n.before is None else nodes[id(n.before)][0], n.step, n.event.seq, n.answers] for _, n in nodes.values()],
        [[run.state.number, nodes[id(run.node)][0], run.start.seq] for run in course.runs],
        [[nodes[id(match.node)][0], match.start.seq, match.at] for match in course.held],
    ]
    return msgspec.msgpack.encode(said)


def load(data: bytes, states: Sequence[State], columns: Sequence[str] = ()) -> Course:
    """The course that `dump` wrote; with `columns`, its events have those."""
    version, seq, rows, links, runs, held = msgspec.msgpack.decode(data)
    if version != VERSION:
        raise ValueError(
            f"matches of version {version}, but this is version {VERSION}; go on with the version that wrote it, or compute results anew (millrace backfill)"
        )
    events: Mapping[int, Event] = {number: Event(number, time, 0, widened(row, len(columns), columns)) for number, time, row in rows}
    nodes: list[Node] = []
    for before, step, event, answers in links:
        nodes.append(Node(None if before < 0 else nodes[before], step, events[event], tuple(answers)))
    return Course(
        tuple(Run(states[state], nodes[node], events[start]) for state, node, start in runs),
        tuple(Match(nodes[node], events[start], at) for node, start, at in held),
        seq,
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
