"""Which state writes a topic: an output topic has one owner, so that no other run writes all results once more.

Claims are records of one topic of the log. They are judged in their order, so of two runs that claim a topic at the same time one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from millrace.errors import StateMismatch, TopicMissing
from millrace.log import fault_points
from millrace.log.contract import Log, Outgoing, Records
from millrace.log.control import PassedOver, parse_object

OWNERS = "owners"
"""The topic that holds the claims."""
_KINDS: dict[str, tuple[type, ...]] = {
    "topic": (str,),
    "state": (str,),
    "run": (str,),
    "instead": (str, type(None)),
}
_passed = PassedOver()


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
    before: tuple[Owner, ...] = ()
    """The owners before, the last one at the end."""
    fenced: bool = True
    """Whether the run of the last owner before was stopped."""


def claim(
    log: Log,
    topics: Iterable[str],
    owner: Owner,
    *,
    folder: str,
    take_over: bool = False,
    heir_of: str | None = None,
) -> None:
    """Makes topics the owner's own; `StateMismatch` if another state writes one, unless it is to be taken over, or is that of which `owner` is the heir.

    The state that loses a topic is fenced: if its run goes on, its next commit fails. That it was is recorded, so who dies in between does it when started again.
    A topic is inherited once: who lost it afterwards does not get it back that way.
    """
    known, wanted = _claims(log), sorted(topics)
    others = {
        topic: known[topic] for topic in wanted if topic in known and known[topic].owner.state != owner.state
    }
    inherited = {
        topic
        for topic, claim in others.items()
        if claim.owner.state == heir_of and owner.state not in {one.state for one in claim.before}
    }
    taken = {topic: claim.owner for topic, claim in others.items() if take_over or topic in inherited}
    _refuse(others.keys() - taken.keys(), {topic: claim.owner for topic, claim in others.items()}, folder)
    new = [topic for topic in wanted if topic not in known or topic in taken]
    if new:
        log.ensure_raw(OWNERS)
        _say(log, {topic: taken[topic].state if topic in taken else None for topic in new}, owner)
        fault_points.at("claimed")
        known = _claims(log)
        _refuse(
            {topic for topic in new if known[topic].owner != owner},
            {topic: claim.owner for topic, claim in known.items()},
            folder,
        )
    replaced = {topic: known[topic].before[-1] for topic in wanted if not known[topic].fenced}
    for other in dict.fromkeys(replaced.values()):
        log.writer(other.writer).close()
    if replaced:
        _say(log, dict.fromkeys(replaced, owner.state), owner)


def owners(log: Log) -> dict[str, Owner]:
    """The owner of each topic that has one."""
    return {topic: claim.owner for topic, claim in _claims(log).items()}


def _say(log: Log, instead: Mapping[str, str | None], owner: Owner) -> None:
    """Claims topics; `instead` names the state that is replaced, the owner's own where its run was stopped."""
    said = [
        json.dumps({"topic": topic, **asdict(owner), "instead": state}).encode()
        for topic, state in instead.items()
    ]
    log.append(
        OWNERS,
        Outgoing(pa.array(said, pa.binary()), pa.array([topic.encode() for topic in instead], pa.binary())),
    )


def _claims(log: Log) -> dict[str, _Claim]:
    """The claim of each topic that counts: where the topic was free, or the claim names the owner it replaces."""
    try:
        begin, end = log.begins(OWNERS)[0], log.ends(OWNERS)[0]
    except TopicMissing:
        return {}
    found: dict[str, _Claim] = {}
    records = log.read(OWNERS, 0, begin, end) if begin < end else Records.none()
    for offset, value in zip(records.offsets.tolist(), records.values.to_pylist(), strict=True):
        try:
            said = parse_object(value, _KINDS, frozenset({"topic", "state", "run"}))
        except ValueError as error:
            _passed.note(OWNERS, offset, str(error))
            continue
        topic, owner, instead = said["topic"], Owner(said["state"], said["run"]), said.get("instead")
        known = found.get(topic)
        if known is None:
            found[topic] = _Claim(owner)
        elif instead == known.owner.state:
            found[topic] = (
                replace(known, fenced=True)
                if owner == known.owner
                else _Claim(owner, (*known.before, known.owner), fenced=False)
            )
    return found


def _refuse(topics: Iterable[str], known: dict[str, Owner], folder: str) -> None:
    for topic in sorted(topics):
        raise StateMismatch(
            f"topic {topic!r} is written by run {known[topic].run!r} with another state than that of {folder}, so its results would be there twice; "
            "go on with that state, or write a new version of the topics (millrace backfill), or take the topic over for this state (--take-over): it then writes its results behind those that are there, and the other run is stopped"
        )
