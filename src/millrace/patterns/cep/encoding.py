"""The partial matches of a key as bytes and back.

Events and entries are written once, however many matches share them, and named by number. So stored state is
as large as the shared buffer, not as the sum of its matches.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from millrace.errors import StateMismatch
from millrace.patterns.cep.partial_matches import FoundMatch, PartialMatch, PartialMatches
from millrace.patterns.cep.shared_buffer import BufferEntry, MatchTail, PatternEvent, walk_back
from millrace.patterns.cep.states import NfaState
from millrace.values import storable

VERSION = 2
"""In version 1 matches shared no entries, and states of patterns with groups had other numbers."""


def encode_matches(matches: PartialMatches) -> bytes:
    """The bytes of the state of one key."""
    entries: dict[int, tuple[int, BufferEntry]] = {}
    events: dict[int, PatternEvent] = {}
    tails = [
        *((run.tail, run.start) for run in matches.running),
        *((match.tail, match.start) for match in matches.waiting),
    ]
    for node, start in sorted(
        tails, key=lambda one: one[1].seq
    ):  # the earliest beginning walks back the furthest
        events.setdefault(start.seq, start)
        fresh = list(itertools.takewhile(lambda entry: id(entry) not in entries, walk_back(node, start.seq)))
        for entry in reversed(fresh):
            events.setdefault(entry.event.seq, entry.event)
            entries[id(entry)] = len(entries), entry
    document = [
        VERSION,
        matches.next_seq,
        [[event.seq, event.time, storable.pack_row(event.row)] for event in events.values()],
        [
            [entries[id(one.before)][0] if id(one.before) in entries else -1, one.step, one.event.seq]
            for _, one in entries.values()
        ],
        [
            [
                run.state.number,
                entries[id(run.tail.entry)][0],
                run.start.seq,
                storable.pack_row(run.tail.answers),
            ]
            for run in matches.running
        ],
        [
            [
                entries[id(match.tail.entry)][0],
                match.start.seq,
                match.known_at,
                storable.pack_row(match.tail.answers),
            ]
            for match in matches.waiting
        ],
    ]
    return storable.encode(document)


def decode_matches(data: bytes, states: Sequence[NfaState], columns: Sequence[str] = ()) -> PartialMatches:
    """What `encode_matches` wrote. Rows are widened to `columns`, see `widen_row`."""
    version, *rest = storable.decode(data)
    if version != VERSION:
        raise StateMismatch(
            f"stored partial matches have version {version}, but this is version {VERSION}, which numbers "
            "the states of a pattern differently; start the job without them (--reset JOB), use the version "
            "of millrace that wrote them, or recompute results (millrace backfill)"
        )
    seq, rows, written, running, waiting = rest
    events: Mapping[int, PatternEvent] = {
        number: PatternEvent(number, time, 0, widen_row(row, len(columns), columns))
        for number, time, row in rows
    }
    entries: list[BufferEntry] = []
    for before, step, event in written:
        entries.append(BufferEntry(None if before < 0 else entries[before], step, events[event]))

    def node(entry_index: int, start: int, answers: Sequence[Any]) -> MatchTail:
        return MatchTail(entries[entry_index], entries[entry_index].event, start, tuple(answers))

    return PartialMatches(
        tuple(
            PartialMatch(states[state], node(entry_index, start, answers), events[start])
            for state, entry_index, start, answers in running
        ),
        tuple(
            FoundMatch(node(entry_index, start, answers), events[start], at)
            for entry_index, start, at, answers in waiting
        ),
        seq,
        len(entries),
    )


def widen_row(row: Sequence[Any], width: int, columns: Sequence[str]) -> tuple[Any, ...]:
    """A stored row with nulls for the fields that its event type has gained since.

    New fields are the last of the fields, before the times. Nothing else widens a row: a changed step before
    the operator changes the fingerprint of the state, and such state is refused.
    """
    missing = width - len(row)
    if missing <= 0 or "event_time" not in columns:
        return tuple(row)
    place = columns.index("event_time") - missing
    return (*row[:place], *([None] * missing), *row[place:])
