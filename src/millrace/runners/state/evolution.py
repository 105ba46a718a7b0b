"""Jobs that change while their state lives on: they join and leave, move to other slots, start anew, or have their state migrated.

An operator is known by its id, and what its state depends on by a fingerprint. State whose operator says otherwise now is never read by chance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import polars as pl

from millrace.engine import fingerprints
from millrace.engine.adapt import adapted
from millrace.engine.plan import Plan
from millrace.engine.rescale import Place, recut
from millrace.engine.state import SlotState
from millrace.errors import DefinitionError, StateMismatch
from millrace.runners.state.folder import Identity

_log = logging.getLogger("millrace.run")

Migration: TypeAlias = Callable[[str, str, pl.DataFrame], pl.DataFrame]
"""Operator, table, and rows as they are stored; returns rows as the job as it is now stores them."""


@dataclass(frozen=True)
class Wishes:
    """What is to become of the state of jobs that have changed."""

    reset: Sequence[str] = ()
    """Jobs whose state is dropped: they start at the present, as new ones do."""
    migrate: Mapping[str, Migration] = field(default_factory=dict)


@dataclass(frozen=True)
class Evolved:
    """State as the jobs of now can go on with it, and what the folder is bound to from now on."""

    identity: Identity
    states: dict[Place, SlotState] | None
    """None: as it was."""


def evolved(
    known: Identity, plan: Plan, states: Mapping[Place, SlotState], wishes: Wishes, where: str
) -> Evolved:
    """Refuses operators that changed, with the choices; lets jobs join at the present and leave, and cuts state anew where slots changed."""
    names = [job.name for job in plan.jobs]
    if strange := sorted({*wishes.reset, *wishes.migrate} - {*names}):
        raise DefinitionError(
            f"reset or migrate {', '.join(strange)}: there is no such job in this run; it has {', '.join(names)}"
        )
    if not {*names} & {*known.jobs}:
        raise StateMismatch(
            f"{where} holds the state of {', '.join(known.jobs)}, not of {', '.join(names)}; run those jobs, or give the jobs that write other topics a run of their own (run.name or state.dir)"
        )
    for job in (job for job in known.jobs if job not in names and states):
        _log.warning("job %s has left: its state goes", job)
    fresh = {*wishes.reset} | {name for name in names if name not in known.jobs}
    for operator in plan.operators:
        was = known.operators.get(operator.id)
        old = [job for job in operator.jobs if job not in fresh]
        if old and was is None and any(id.split("/")[0] in operator.jobs for id in known.operators):
            raise StateMismatch(_refused(where, operator.id, "is new in a job that has state", old[0]))
        if (
            old
            and was is not None
            and not {*operator.jobs} & {*wishes.migrate}
            and (why := fingerprints.difference(was, operator))
        ):
            raise StateMismatch(_refused(where, operator.id, why, old[0]))
    gone = {o.id for o in plan.operators if {*o.jobs} <= fresh}
    birth = _present(states)
    births = {job: at for job, at in known.births.items() if job in names and job not in fresh}
    births |= {job: birth for job in fresh if birth is not None}
    identity = replace(
        known,
        jobs=tuple(names),
        fingerprint=plan.fingerprint,
        slots=plan.slots,
        operators=dict(plan.fingerprints),
        births=births,
    )
    adapting = {
        o: asked
        for o in plan.operators
        if not {*o.jobs} <= fresh
        and not {*o.jobs} & {*wishes.migrate}
        and (asked := fingerprints.adaptation(known.operators.get(o.id, ""), o))
    }
    fits = all(
        o.id in known.operators and fingerprints.difference(known.operators[o.id], o) is None
        for o in plan.operators
    )
    fits = fits and not adapting
    same = (
        fits
        and len(known.operators) == len(identity.operators)
        and known.slots == plan.slots
        and not fresh
        and not wishes.migrate
    )
    if same and sorted(known.jobs) == sorted(names):
        return Evolved(identity, None)
    left = {place: state.only({*known.operators} - gone) for place, state in states.items()}
    for job, fn in wishes.migrate.items():
        mine = {o.id for o in plan.operators if job in o.jobs}
        left = {place: _migrated(state, mine, fn) for place, state in left.items()}
    for operator, asked in adapting.items():
        left = adapted(operator, asked, left)
    return Evolved(identity, recut(plan, left))


def _refused(where: str, operator: str, why: str, job: str) -> str:
    return (
        f"{where}: {operator} {why}, so its state does not fit. Undo the change; or start this job at the present, without its state: --reset {job}; "
        f"or give the changed job another name, so that it starts at the present and {job} may go on beside it; or rewrite its state: mr.run(..., migrate={{{job!r}: fn}})"
    )


def _present(states: Mapping[Place, SlotState]) -> int | None:
    """How far event time has come, as far as any operator knows."""
    found = []
    for state in states.values():
        for value in state.values.values():
            progress = value.get("progress", value) if isinstance(value, dict) else None
            channels = progress.get("channels", {}) if isinstance(progress, dict) else {}
            found += [channel[0] for channel in channels.values() if channel[0] is not None]
    return max(found, default=None)


def _migrated(state: SlotState, operators: set[str], fn: Migration) -> SlotState:
    made = replace(
        state,
        tables={
            name: table for name, table in state.tables.items() if name.rsplit(":", 1)[0] not in operators
        },
    )
    for name, table in state.tables.items():
        operator, _, short = name.rpartition(":")
        if operator in operators:
            for chunk in table.chunks:
                made = made.with_part(name, fn(operator, short, chunk.frame), chunk)
    return made
