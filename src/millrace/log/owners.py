"""Which state writes a topic: an output topic has one owner, so that no other run writes all results once more.

Claims are records of one topic of the log. They are judged in their order, so of two runs that claim a topic at the same time one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from millrace.errors import StateMismatch, TopicMissing
from millrace.log.contract import Log, Outgoing
from millrace.log.control import PassedOver, parse_object

OWNERS = "owners"
"""The topic that holds the claims."""
_KINDS: dict[str, tuple[type, ...]] = {"topic": (str,), "state": (str,), "run": (str,), "instead": (str, type(None))}
_REQUIRED = frozenset({"topic", "state", "run"})
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


def claim(log: Log, topics: Iterable[str], owner: Owner, *, folder: str, take_over: bool = False, heir_of: Sequence[str] = ()) -> None:
    """Makes topics the owner's own; `StateMismatch` if another state writes one, unless it is to be taken over, or is that of which `owner` is the heir.

    The state that loses a topic is fenced: if its run goes on, its next commit fails.
    """
    known, wanted = owners(log), sorted(topics)
    others = {topic: known[topic] for topic in wanted if topic in known and known[topic].state != owner.state}
    taken = {topic: other for topic, other in others.items() if take_over or other.state in heir_of}
    _refuse(others.keys() - taken.keys(), others, folder)
    new = [topic for topic in wanted if topic not in known or topic in taken]
    if not new:
        return
    log.ensure_raw(OWNERS)
    said = [
        json.dumps({"topic": topic, **asdict(owner), "instead": taken[topic].state if topic in taken else None}).encode() for topic in new
    ]
    log.append(OWNERS, Outgoing(pa.array(said, pa.binary()), pa.array([topic.encode() for topic in new], pa.binary())))
    after = owners(log)
    _refuse({topic for topic in new if after[topic] != owner}, after, folder)
    for other in dict.fromkeys(taken.values()):
        log.writer(other.writer).close()


def owners(log: Log) -> dict[str, Owner]:
    """The owner of each topic that has one. A claim counts where the topic is free, or names the owner it replaces."""
    try:
        begin, end = log.begins(OWNERS)[0], log.ends(OWNERS)[0]
    except TopicMissing:
        return {}
    found: dict[str, Owner] = {}
    for value in log.read(OWNERS, 0, begin, end).values.to_pylist() if begin < end else []:
        try:
            said = parse_object(value, _KINDS, _REQUIRED)
        except ValueError as error:
            _passed.note(OWNERS, None, str(error))
            continue
        topic, owner, instead = said["topic"], Owner(said["state"], said["run"]), said.get("instead")
        if topic not in found or found[topic].state == instead:
            found[topic] = owner
    return found


def _refuse(topics: Iterable[str], known: dict[str, Owner], folder: str) -> None:
    for topic in sorted(topics):
        raise StateMismatch(
            f"topic {topic!r} is written by run {known[topic].run!r} with another state than that of {folder}, so its results would be there twice; "
            "go on with that state, or write a new version of the topics (millrace backfill), or take the topic over for this state (--take-over): it then writes its results behind those that are there, and the other run is stopped"
        )
