"""Which state writes a topic: an output topic has one owner, so that no other run writes all results once more.

Claims are records of one topic of the log. They are judged in their order, so of two runs that claim a topic at the same time one is refused.
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
    """The state that is replaced; the owner's own once the run of the owner before was stopped; None: the topic was free."""


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
    """The claim of a topic that counts, and what it replaced."""

    owner: Owner
    previous_owners: tuple[Owner, ...] = ()
    """The owners before, the last one at the end."""
    fenced: bool = True
    """Whether the run of the last owner before was stopped."""


def claim_topics(
    log: Log,
    topics: Iterable[str],
    owner: Owner,
    *,
    folder: str,
    take_over: bool = False,
    inherits_from: str | None = None,
) -> None:
    """Makes topics the owner's own; `StateMismatch` if another state writes one, unless it is to be taken over, or is that of which `owner` is the heir.

    The state that loses a topic is fenced: if its run goes on, its next commit fails. That it was is recorded, so who dies in between does it when started again.
    A topic is inherited once: who lost it afterwards does not get it back that way.
    """
    claims, wanted = _read_claims(log), sorted(topics)
    others = {
        topic: claims[topic]
        for topic in wanted
        if topic in claims and claims[topic].owner.state != owner.state
    }
    inherited = {
        topic
        for topic, claim in others.items()
        if claim.owner.state == inherits_from
        and owner.state not in {earlier.state for earlier in claim.previous_owners}
    }
    transferred = {topic: claim.owner for topic, claim in others.items() if take_over or topic in inherited}
    _refuse_owned(
        others.keys() - transferred.keys(), {topic: claim.owner for topic, claim in others.items()}, folder
    )
    new = [topic for topic in wanted if topic not in claims or topic in transferred]
    if new:
        log.ensure_raw(OWNERS)
        _append_claims(
            log, {topic: transferred[topic].state if topic in transferred else None for topic in new}, owner
        )
        fault_points.at("claimed")
        claims = _read_claims(log)
        _refuse_owned(
            {topic for topic in new if claims[topic].owner != owner},
            {topic: claim.owner for topic, claim in claims.items()},
            folder,
        )
    replaced = {topic: claims[topic].previous_owners[-1] for topic in wanted if not claims[topic].fenced}
    for old_owner in dict.fromkeys(replaced.values()):
        log.writer(old_owner.writer).close()
    if replaced:
        _append_claims(log, dict.fromkeys(replaced, owner.state), owner)


def read_owners(log: Log) -> dict[str, Owner]:
    """The owner of each topic that has one."""
    return {topic: claim.owner for topic, claim in _read_claims(log).items()}


def _append_claims(log: Log, replaced_states: Mapping[str, str | None], owner: Owner) -> None:
    """Claims topics; `instead` names the state that is replaced, the owner's own where its run was stopped."""
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
    """The claim of each topic that counts: where the topic was free, or the claim names the owner it replaces."""
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


def _refuse_owned(topics: Iterable[str], known: dict[str, Owner], folder: str) -> None:
    for topic in sorted(topics):
        raise StateMismatch(
            f"topic {topic!r} is written by run {known[topic].run!r} with another state than that of {folder}, so its results would be there twice; "
            "go on with that state, or write a new version of the topics (millrace backfill), or take the topic over for this state (--take-over): it then writes its results behind those that are there, and the other run is stopped"
        )
