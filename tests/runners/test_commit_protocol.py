"""The commit protocol, explored: every order in which incarnations can step, die, be too slow and be
followed, up to three of each.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from runners.commit_steps import born, moves
from runners.commit_world import Rules, Safeguard, World, plain, visible


@dataclass
class Found:
    """What can come about."""

    worlds: int = 0
    wrongs: dict[str, list[str]] = field(default_factory=dict)
    """What went wrong, and a shortest way to it."""
    refused: bool = False


TIME_LIMIT = 200
"""Steps in which an incarnation that nobody disturbs must be through; it needs a third of them."""
BAD = {"doubled", "lost", "wrong", "a number went back", "a fenced writer committed"}
"""Faults without an error; a refusal, by contrast, is noticed."""


def explore(rules: Rules, *, first: bool = False) -> Found:
    """Goes through all worlds, nearest first; or until the `first` in which something is bad."""
    found, came = Found(), dict[World, tuple[World, str] | None]({World(): None})
    layer = [World()]
    while layer and not (first and BAD & set(found.wrongs)):
        following = []
        for world in layer:
            found.worlds += 1
            found.refused |= world.refused
            here = list(wrongs(world, rules))
            for each in here:
                found.wrongs.setdefault(each, list(_trace(came, world)))
            for action, moved in () if here else moves(world, rules):
                if (next_world := plain(moved, rules)) not in came:
                    came[next_world] = (world, action)
                    following.append(next_world)
        layer = following
    return found


def _trace(came: dict[World, tuple[World, str] | None], world: World) -> Iterator[str]:
    before = came[world]
    if before is not None:
        yield from _trace(came, before[0])
        yield before[1]


def wrongs(world: World, rules: Rules) -> Iterator[str]:
    """The faults of a world, for a reader of its results now,
    or after one more incarnation has run to its end.
    """
    upto = 0
    for result in visible(world.log.results):
        if result.start != upto:
            yield "doubled" if result.start < upto else "lost"
        if result.base != result.start:
            yield "wrong"
        upto = result.end
    numbers = visible(world.log.numbers)
    if any(later.batch < earlier.batch for earlier, later in pairwise(numbers)):
        yield "a number went back"
    if any(later.generation < earlier.generation for earlier, later in pairwise(numbers)):
        yield "a fenced writer committed"
    if world.refused and not world.replaced:
        yield "refused without reason"
    if not world.alive and not world.refused and not _ends_well(world._replace(wire=(), begun=0), rules):
        yield "lost"


@cache
def _ends_well(world: World, rules: Rules) -> bool:
    """Whether all events have a result after one more incarnation, undisturbed; or it says that it cannot."""
    world = born(world, rules)
    for _ in range(TIME_LIMIT):
        following = next(moves(world, rules, undisturbed=True), None)
        if following is None:
            shown = visible(world.log.results)
            return world.refused or (shown[-1].end if shown else 0) == rules.events
        world = following[1]
    return False


PROTOCOLS = [(runner, log) for runner in ("local", "spark") for log in ("embedded", "kafka")]


def found(runner: str, log: str, *without: Safeguard, first: bool = False, **more: Any) -> Found:
    rules = Rules(runner, log, frozenset(without), **{"events": 2, "lives": 2, **more})  # type: ignore[arg-type] # one of two each
    return explore(rules, first=first)


def bad(runner: str, log: str, *without: Safeguard, **more: Any) -> set[str]:
    return BAD & set(found(runner, log, *without, first=True, **more).wrongs)


@pytest.mark.parametrize(("runner", "log"), PROTOCOLS)
def test_nothing_is_lost_doubled_or_wrong_whenever_anybody_dies(runner: str, log: str) -> None:
    all_of_it = found(runner, log, lives=3)
    assert all_of_it.wrongs == {}
    assert all_of_it.worlds > 300
    assert not all_of_it.refused


@pytest.mark.parametrize(
    "left_out",
    [Safeguard.PLAN, Safeguard.SKIP, Safeguard.ATOMIC, Safeguard.WHOLE, Safeguard.ORDER],
    ids=lambda safeguard: safeguard.name,
)
@pytest.mark.parametrize(("runner", "log"), PROTOCOLS)
def test_without_one_safeguard_something_goes_wrong(runner: str, log: str, left_out: Safeguard) -> None:
    beside = (
        (Safeguard.BEHIND,) if left_out is Safeguard.ORDER else ()
    )  # which would notice it, and refuse to go on
    assert bad(runner, log, left_out, *beside)


@pytest.mark.parametrize(
    "left_out",
    [Safeguard.FENCE, Safeguard.READ_COMMITTED, Safeguard.FENCE_FIRST],
    ids=lambda safeguard: safeguard.name,
)
@pytest.mark.parametrize("runner", ["local", "spark"])
def test_on_kafka_what_a_dead_run_had_sent_must_be_fenced_off(runner: str, left_out: Safeguard) -> None:
    assert bad(runner, "kafka", left_out)


@pytest.mark.parametrize("log", ["embedded", "kafka"])
def test_two_owners_of_a_local_state_would_spoil_it(log: str) -> None:
    assert bad("local", log, Safeguard.LOCK, mishaps=0)


@pytest.mark.parametrize("log", ["embedded", "kafka"])
def test_two_owners_of_a_state_of_sparks_are_noticed_and_spoil_nothing(log: str) -> None:
    """Spark does not plan a batch twice; a late incarnation is refused by its
    own check, or fenced by the log.
    """
    assert set(found("spark", log, Safeguard.LOCK, mishaps=0, events=1).wrongs) == {"refused without reason"}


def test_the_embedded_log_has_two_walls_against_an_older_writer_and_needs_one() -> None:
    assert not bad("spark", "embedded", Safeguard.LOCK, Safeguard.COMPARE)
    assert not bad("spark", "embedded", Safeguard.LOCK, Safeguard.FENCE)
    assert bad("spark", "embedded", Safeguard.LOCK, Safeguard.COMPARE, Safeguard.FENCE) == {"doubled"}


def test_who_is_fenced_while_taking_over_must_ask_for_the_number_again() -> None:
    assert bad("spark", "kafka", Safeguard.LOCK, Safeguard.ASK_AGAIN, events=1, mishaps=0) == {
        "a number went back"
    }


@pytest.mark.parametrize(("older", "check"), [("state", Safeguard.AHEAD), ("log", Safeguard.BEHIND)])
@pytest.mark.parametrize(("runner", "log"), PROTOCOLS)
def test_an_older_copy_of_state_or_log_is_refused(
    runner: str, log: str, older: str, check: Safeguard
) -> None:
    safe = found(runner, log, backups=older, mishaps=0)
    assert safe.wrongs == {}
    assert safe.refused
    assert bad(runner, log, check, backups=older, mishaps=0)
