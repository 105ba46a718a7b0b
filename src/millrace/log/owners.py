"""Owners: each output topic is written by the run of one state folder, so that no second run writes all
results once more.

Claims are records of the topic `owners`. Everyone applies them in the order of their offsets, so of two runs
that claim a topic at the same time one is refused:

    offset 0    A claims t                      t was free: A owns it
    offset 1    B claims t                      not valid: t has an owner, which the claim does not name
    offset 2    C claims t instead of A         valid (--take-over): C owns it, A is not fenced yet
    offset 3    C claims t instead of C         C has fenced A's writer

If C dies between 2 and 3, its next start sees that A is not fenced, and fences it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from millrace.errors import StateMismatch, TopicMissing
from millrace.log import fault_points
from millrace.log.contract import Log, OutgoingRecords, Records
from millrace.log.control import ControlRecord, SkippedRecords

OWNERS = "owners"
"""The topic that holds the claims."""
_skipped = SkippedRecords()


class OwnerClaim(ControlRecord, frozen=True):
    """A record of the topic: a state, and the run that it belongs to, claim a topic."""

    topic: str
    state: str
    run: str
    instead: str | None = None
    """The replaced state; the owner's own once the old owner is fenced; None: the topic was free."""


@dataclass(frozen=True)
class Owner:
    """A state, and the run that it belongs to."""

    state: str
    run: str

    @property
    def writer(self) -> str:
        """The name under which it commits."""
        return f"{self.run}.{self.state}"


@dataclass(frozen=True)
class _Claim:
    """The valid claim of a topic, and the owners that it replaced."""

    owner: Owner
    previous_owners: tuple[Owner, ...] = ()
    """The last one at the end."""
    fenced: bool = True
    """Whether the writer of the last previous owner is fenced."""


def claim_topics(
    log: Log,
    topics: Iterable[str],
    owner: Owner,
    *,
    folder: str,
    take_over: bool = False,
    inherits_from: str | None = None,
) -> None:
    """Claims topics for `owner`; `StateMismatch` if another state writes one of them.

    With `take_over`, or where the other state is `inherits_from` (the state was restored from its savepoint),
    the other state loses the topic and is fenced: the next commit of its run fails. A topic is inherited
    once: an owner that lost it afterwards does not get it back that way.
    """
    claims, wanted = _read_claims(log), sorted(topics)
    others = {
        topic: claims[topic]
        for topic in wanted
        if topic in claims and claims[topic].owner.state != owner.state
    }
    replaced_states = {
        topic: claim.owner.state
        for topic, claim in others.items()
        if take_over or _is_inherited(claim, owner, inherits_from)
    }
    _refuse_owned(others.keys() - replaced_states.keys(), others, folder)
    new = {
        topic: replaced_states.get(topic)
        for topic in wanted
        if topic not in claims or topic in replaced_states
    }
    if new:
        log.ensure_raw(OWNERS)
        _append_claims(log, new, owner)
        fault_points.at("claimed")
        claims = _read_claims(log)
        _refuse_owned((topic for topic in new if claims[topic].owner != owner), claims, folder)
    _fence_replaced(log, {topic: claims[topic] for topic in wanted}, owner)


def _is_inherited(claim: _Claim, owner: Owner, inherits_from: str | None) -> bool:
    """Whether `owner` gets a topic from the state it was restored from, which it has not had before."""
    return claim.owner.state == inherits_from and owner.state not in {
        earlier.state for earlier in claim.previous_owners
    }


def _fence_replaced(log: Log, claims: Mapping[str, _Claim], owner: Owner) -> None:
    """Fences the previous owners that may still write, withdraws their watermarks, as they write no more, and
    records that they are fenced.
    """
    replaced = {topic: claim.previous_owners[-1] for topic, claim in claims.items() if not claim.fenced}
    for old_owner in dict.fromkeys(replaced.values()):
        log.writer(old_owner.writer).close()
    for topic, old_owner in replaced.items():
        log.withdraw_watermarks(topic, old_owner.writer)
    if replaced:
        _append_claims(log, dict.fromkeys(replaced, owner.state), owner)


def read_owners(log: Log) -> dict[str, Owner]:
    """The owner of each topic that has one."""
    return {topic: claim.owner for topic, claim in _read_claims(log).items()}


def _append_claims(log: Log, replaced_states: Mapping[str, str | None], owner: Owner) -> None:
    """Appends a claim of each topic, with the state that it replaces."""
    values = [
        OwnerClaim(topic, owner.state, owner.run, state).to_json() for topic, state in replaced_states.items()
    ]
    log.append(
        OWNERS,
        OutgoingRecords(
            pa.array(values, pa.binary()),
            pa.array([topic.encode() for topic in replaced_states], pa.binary()),
        ),
    )


def _read_claims(log: Log) -> dict[str, _Claim]:
    """The valid claim of each topic."""
    try:
        begin, end = log.start_offsets(OWNERS)[0], log.end_offsets(OWNERS)[0]
    except TopicMissing:
        return {}
    claims: dict[str, _Claim] = {}
    records = log.read(OWNERS, 0, begin, end) if begin < end else Records.empty()
    for offset, value in zip(records.offsets.tolist(), records.values.to_pylist(), strict=True):
        try:
            record = OwnerClaim.from_json(value)
        except ValueError as error:
            _skipped.note(OWNERS, offset, str(error))
            continue
        owner = Owner(record.state, record.run)
        current = claims.get(record.topic)
        if current is None:
            claims[record.topic] = _Claim(owner)
        elif record.instead == current.owner.state:
            claims[record.topic] = (
                replace(current, fenced=True)
                if owner == current.owner
                else _Claim(owner, (*current.previous_owners, current.owner), fenced=False)
            )
    return claims


def _refuse_owned(topics: Iterable[str], claims: Mapping[str, _Claim], folder: str) -> None:
    for topic in sorted(topics):
        raise StateMismatch(
            f"topic {topic!r} is written by run {claims[topic].owner.run!r} with another state than that of "
            f"{folder}, so its results would be there twice; go on with that state, or write a new version "
            "of the topics (millrace backfill), or take the topic over for this state (--take-over): it "
            "then writes its results behind those that are there, and the other run is stopped"
        )
