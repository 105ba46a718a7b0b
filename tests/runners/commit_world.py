"""The commit protocol as a small world of which every course of events can be tried.

Incarnations of one run take events from a log, a batch at a time, and write results to a log, as
`runners/commit.py`, `runners/local.py` and `runners/spark/` do it: the range of a batch is written down
(`plan`), results and the batch's number are one transaction, then the state is stored. An incarnation may end
between any two steps, and what it had sent may still arrive; its successor may begin while it is only slow. A
result says which events it is made of and what the state before it was, so that what is lost, doubled or
wrong can be read off the results.

`Rules` says which runner and which log it is about, and which safeguards are left out.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Literal, NamedTuple, TypeAlias

CUTS = (1, 2)
"""How many events a batch may take: the log grows as it likes,
so a batch that is cut anew is not the same.
"""


class Safeguard(Enum):
    """What keeps results exactly once."""

    PLAN = auto()
    """A batch's range is written down before it runs, and a batch that is repeated takes the same."""
    SKIP = auto()
    """A batch whose number the log has is computed for its state, and not written again."""
    ORDER = auto()
    """State is stored after the log has the results."""
    ATOMIC = auto()
    """Results and number are one transaction."""
    WHOLE = auto()
    """State and position change together; with Spark, state has versions, and a batch's number says which."""
    LOCK = auto()
    """A state folder has one owner."""
    FENCE = auto()
    """Who takes over ends what his predecessor had open, and bars him from then on."""
    COMPARE = auto()
    """The embedded log looks at its own number within the transaction."""
    READ_COMMITTED = auto()
    """A number of which the transaction was aborted does not count."""
    FENCE_FIRST = auto()
    """The number is read after taking over, not before."""
    ASK_AGAIN = auto()
    """Who is barred while he takes over begins anew, and asks for the number again:
    his predecessor may have committed in between.
    """
    BEHIND = auto()
    """A log that knows less than the state is refused: it is not the one that the state belongs to."""
    AHEAD = auto()
    """A log that knows more than the state ever planned is refused: the state is an older copy."""


@dataclass(frozen=True)
class Rules:
    """One protocol, and how much is tried."""

    runner: Literal["local", "spark"]
    log: Literal["embedded", "kafka"]
    without: frozenset[Safeguard] = frozenset()
    events: int = 3
    lives: int = 3
    mishaps: int = 1
    backups: Literal["state", "log"] | None = None
    """What may be replaced by an older copy of itself, while nothing runs."""

    def has(self, safeguard: Safeguard) -> bool:
        """Whether it is in place."""
        return safeguard not in self.without

    @property
    def steps(self) -> tuple[str, ...]:
        """What an incarnation does, from the beginning; a batch starts over at `plan`."""
        opening: tuple[str, ...] = (
            ("take over", "await", "ask")
            if self.has(Safeguard.FENCE_FIRST)
            else ("ask", "take over", "await")
        )
        if self.log == "kafka":
            opening = (*opening, "claim", "commit claim")
        writing: tuple[str, ...]
        if self.log == "embedded":
            writing = ("transact",) if self.has(Safeguard.ATOMIC) else ("insert", "number")
        elif self.has(Safeguard.ATOMIC):
            writing = ("produce", "mark", "commit")
        else:
            writing = ("produce", "commit", "mark", "commit mark")
        storing = (
            ("store",) if self.has(Safeguard.WHOLE) or self.runner == "spark" else ("store", "store state")
        )
        ending = (*writing, *storing) if self.has(Safeguard.ORDER) else (*storing, *writing)
        return ("load", *opening, "check", "plan", "compute", *ending)


Fate: TypeAlias = Literal["open", "in", "out"]
"""Of a transaction."""


class Result(NamedTuple):
    """What a batch has to say: the events `[start, end)`,
    on top of a state that knows those before `base`.
    """

    batch: int
    start: int
    end: int
    base: int


class Number(NamedTuple):
    """The batch that is in the log, and whose word that is: owners of a writer's name are numbered, too."""

    batch: int
    generation: int = 0
    owner: int = 0


class Checkpoint(NamedTuple):
    """What is in the state folder."""

    done: int = -1
    upto: int = 0
    planned: tuple[int, int] | None = None
    """A batch and its end."""
    state: int = 0


class Entry(NamedTuple):
    """A record in a partition, and whether its transaction is open, in or out."""

    epoch: int
    content: Result | Number
    fate: Fate = "open"


class Log(NamedTuple):
    """Results, and numbers of batches: two partitions.
    `pending`: transactions by epoch, and what is becoming of them.
    """

    epoch: int = 0
    results: tuple[Entry, ...] = ()
    numbers: tuple[Entry, ...] = ()
    pending: tuple[tuple[int, Fate], ...] = ()

    def status(self, epoch: int) -> str | None:
        """What is becoming of the transaction of an epoch, if it has one."""
        return dict(self.pending).get(epoch)

    def becomes(self, epoch: int, status: Fate | None) -> "Log":
        """With another status for that transaction; None: it is over."""
        others = tuple(each for each in self.pending if each[0] != epoch)
        return self._replace(pending=others if status is None else (*others, (epoch, status)))


class Process(NamedTuple):
    """An incarnation: where it is, and what it knows."""

    step: str
    owner: int = 0
    generation: int = 0
    epoch: int = 0
    last: int = -1
    """The number of the last batch in the log, as it believes."""
    done: int = -1
    start: int = 0
    end: int = 0
    base: int = 0
    planned: tuple[int, int] | None = None
    waits: bool = False
    """For the answer to what it sent."""
    doing: str = ""
    """The step at which it was barred, if it was."""

    @property
    def batch(self) -> int:
        """The one at hand."""
        return self.done + 1

    def says(self, step: str) -> Result | Number:
        """What it writes in a step."""
        if step in ("produce", "insert", "commit"):
            return Result(self.batch, self.start, self.end, self.base)
        return Number(self.last if "claim" in step else self.batch, self.generation, self.owner)


class Sent(NamedTuple):
    """A request on its way to the brokers, which may outlive its sender."""

    epoch: int
    kind: str
    content: Result | Number


class World(NamedTuple):
    """Everything at one moment."""

    checkpoint: Checkpoint = Checkpoint()
    log: Log = Log()
    alive: tuple[Process, ...] = ()
    wire: tuple[Sent, ...] = ()
    begun: int = 0
    mishaps: int = 0
    """Transactions that took too long, and answers that were lost."""
    refused: bool = False
    """An incarnation found that log and state do not belong together."""
    replaced: bool = False
    """Log or state was replaced by an older copy."""
    history: tuple[Checkpoint | Log, ...] = ()
    """Older copies, where they matter."""


def visible(partition: tuple[Entry, ...]) -> list[Any]:
    """Results or numbers, whatever the partition holds; what a consumer that reads committed records sees:
    nothing beyond the first open transaction.
    """
    seen = []
    for entry in partition:
        if entry.fate == "open":
            break
        if entry.fate == "in":
            seen.append(entry.content)
    return seen


def plain(world: World, rules: Rules) -> World:
    """The same world with epochs counted from 1, as only which are equal and which is the newest matters.

    And without requests that would be refused, if nobody is left who would hear of it.
    """
    log, heard = world.log, {process.epoch for process in world.alive if process.waits}
    if rules.has(Safeguard.FENCE):
        world = world._replace(
            wire=tuple(sent for sent in world.wire if sent.epoch == log.epoch or sent.epoch in heard)
        )
    entries = (*log.results, *log.numbers)
    used = {
        log.epoch,
        *(epoch for epoch, _ in log.pending),
        *(entry.epoch for entry in entries if entry.fate == "open"),
    }
    used |= {process.epoch for process in world.alive} | {sent.epoch for sent in world.wire}
    to = {epoch: number for number, epoch in enumerate(sorted(used | {0}))}
    if all(old == new for old, new in to.items()):
        return world

    def moved(partition: tuple[Entry, ...]) -> tuple[Entry, ...]:
        return tuple(
            entry._replace(epoch=to[entry.epoch]) if entry.fate == "open" else entry for entry in partition
        )

    return world._replace(
        log=Log(
            to[log.epoch],
            moved(log.results),
            moved(log.numbers),
            tuple((to[epoch], status) for epoch, status in log.pending),
        ),
        alive=tuple(process._replace(epoch=to[process.epoch]) for process in world.alive),
        wire=tuple(sent._replace(epoch=to[sent.epoch]) for sent in world.wire),
    )
