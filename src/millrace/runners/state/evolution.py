"""State of jobs that have changed: jobs join and leave, move to other slots, start anew, or have their state
migrated.

An operator is known by its id, and all that its state depends on by a fingerprint. State whose fingerprint
has changed is not read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import polars as pl

from millrace.engine import fingerprints
from millrace.engine.adapt import adapt_state
from millrace.engine.fingerprints import Adaptation
from millrace.engine.plan import Operator, Plan
from millrace.engine.rescale import StageSlot, redistribute
from millrace.engine.state import SlotState
from millrace.errors import DefinitionError, StateMismatch
from millrace.runners.state.folder import Identity

_log = logging.getLogger("millrace.run")

Migration: TypeAlias = Callable[[str, str, pl.DataFrame], pl.DataFrame]
"""Operator, table, and rows as they are stored; returns rows as the job as it is now stores them."""


@dataclass(frozen=True)
class StateChanges:
    """What to do with the state of jobs that have changed."""

    reset: Sequence[str] = ()
    """Jobs whose state is dropped: they start at the present, as new ones do."""
    migrate: Mapping[str, Migration] = field(default_factory=dict)


@dataclass(frozen=True)
class EvolvedState:
    """State for the present jobs, and the new identity of the folder."""

    identity: Identity
    states: dict[StageSlot, SlotState] | None
    """None: as it was."""


def evolve(
    old_identity: Identity,
    plan: Plan,
    states: Mapping[StageSlot, SlotState],
    state_changes: StateChanges,
    location: str,
) -> EvolvedState:
    """Adapts state to the present jobs: new ones start at the present, others leave, and slots are divided
    anew.

    Refuses changed operators.
    """
    names = [job.name for job in plan.jobs]
    _refuse_wrong_jobs(old_identity, names, state_changes, location)
    for job in (job for job in old_identity.jobs if job not in names and states):
        _log.warning("job %s has left: its state goes", job)
    new_jobs = {*state_changes.reset} | {name for name in names if name not in old_identity.jobs}
    _refuse_changed_operators(old_identity, plan, new_jobs, state_changes, location)
    identity = _evolve_identity(old_identity, plan, new_jobs, _latest_event_time(states))
    adaptations = _find_adaptations(old_identity, plan, new_jobs, state_changes)
    is_unchanged = (
        not adaptations
        and not new_jobs
        and not state_changes.migrate
        and sorted(old_identity.jobs) == sorted(names)
        and old_identity.slots == plan.slots
        and _has_same_operators(old_identity, plan)
    )
    if is_unchanged:
        return EvolvedState(identity, None)
    dropped_operators = {o.id for o in plan.operators if {*o.jobs} <= new_jobs}
    kept_states: Mapping[StageSlot, SlotState] = {
        stage_slot: state.only_operators({*old_identity.operators} - dropped_operators)
        for stage_slot, state in states.items()
    }
    kept_states = _migrate_states(kept_states, plan, state_changes.migrate)
    for operator, adaptation in adaptations.items():
        kept_states = adapt_state(operator, adaptation, kept_states)
    return EvolvedState(identity, redistribute(plan, kept_states))


def _refuse_wrong_jobs(
    old_identity: Identity, names: Sequence[str], state_changes: StateChanges, location: str
) -> None:
    """Refuses changes of jobs that are not in this run, and state of which no job is."""
    if unknown := sorted({*state_changes.reset, *state_changes.migrate} - {*names}):
        raise DefinitionError(
            f"reset or migrate {', '.join(unknown)}: there is no such job in this run; it has "
            f"{', '.join(names)}"
        )
    if not {*names} & {*old_identity.jobs}:
        raise StateMismatch(
            f"{location} holds the state of {', '.join(old_identity.jobs)}, not of {', '.join(names)}; run "
            "those jobs, or give the jobs that write other topics a run of their own (run.name or state.dir)"
        )


def _evolve_identity(old_identity: Identity, plan: Plan, new_jobs: set[str], present: int | None) -> Identity:
    """The identity of the present jobs. New jobs are born at `present`, in event time, if any was seen."""
    names = [job.name for job in plan.jobs]
    births = {job: at for job, at in old_identity.births.items() if job in names and job not in new_jobs}
    births |= {job: present for job in new_jobs if present is not None}
    return replace(
        old_identity,
        jobs=tuple(names),
        fingerprint=plan.fingerprint,
        slots=plan.slots,
        operators=dict(plan.fingerprints),
        births=births,
    )


def _find_adaptations(
    old_identity: Identity, plan: Plan, new_jobs: set[str], state_changes: StateChanges
) -> dict[Operator, Adaptation]:
    """How the state of operators is made to fit;
    without those that start anew or that a function migrates.
    """
    return {
        o: adaptation
        for o in plan.operators
        if not {*o.jobs} <= new_jobs
        and not {*o.jobs} & {*state_changes.migrate}
        and (adaptation := fingerprints.find_adaptation(old_identity.operators.get(o.id), o))
    }


def _has_same_operators(old_identity: Identity, plan: Plan) -> bool:
    """Whether the state of every operator is there, fits and lies in its slots, and none of others."""
    old_operators = old_identity.operators
    return len(old_operators) == len(plan.operators) and all(
        o.id in old_operators
        and fingerprints.find_difference(old_operators[o.id], o) is None
        and fingerprints.parallelism_of(old_operators[o.id]) == o.node.parallelism
        for o in plan.operators
    )


def _refuse_changed_operators(
    old_identity: Identity, plan: Plan, new_jobs: set[str], state_changes: StateChanges, location: str
) -> None:
    """Refuses operators of continuing jobs whose state does not fit, unless a function migrates it."""
    for operator in plan.operators:
        old_fingerprint = old_identity.operators.get(operator.id)
        continuing_jobs = [job for job in operator.jobs if job not in new_jobs]
        if (
            continuing_jobs
            and old_fingerprint is None
            and any(id.split("/")[0] in operator.jobs for id in old_identity.operators)
        ):
            raise StateMismatch(
                _describe_refusal(location, operator.id, "is new in a job that has state", continuing_jobs[0])
            )
        if (
            continuing_jobs
            and old_fingerprint is not None
            and not {*operator.jobs} & {*state_changes.migrate}
            and (difference := fingerprints.find_difference(old_fingerprint, operator))
        ):
            raise StateMismatch(_describe_refusal(location, operator.id, difference, continuing_jobs[0]))


def _describe_refusal(location: str, operator: str, difference: str, job: str) -> str:
    return (
        f"{location}: {operator} {difference}, so its state does not fit. Undo the change; or start this "
        f"job at the present, without its state: --reset {job}; or give the changed job another name, so "
        f"that it starts at the present and {job} may go on beside it; or rewrite its state: mr.run(..., "
        f"migrate={{{job!r}: fn}})"
    )


def _latest_event_time(states: Mapping[StageSlot, SlotState]) -> int | None:
    """The latest event time that any operator has seen."""
    found = []
    for state in states.values():
        for value in state.values.values():
            progress = value.get("progress", value) if isinstance(value, dict) else None
            channels = progress.get("channels", {}) if isinstance(progress, dict) else {}
            found += [channel[0] for channel in channels.values() if channel[0] is not None]
    return max(found, default=None)


def _migrate_states(
    states: Mapping[StageSlot, SlotState], plan: Plan, migrations: Mapping[str, Migration]
) -> Mapping[StageSlot, SlotState]:
    """The state after the functions that migrate jobs have rewritten it."""
    for job, migration in migrations.items():
        job_operators = {o.id for o in plan.operators if job in o.jobs}
        states = {
            stage_slot: _migrate_state(state, job_operators, migration)
            for stage_slot, state in states.items()
        }
    return states


def _migrate_state(state: SlotState, operators: set[str], migration: Migration) -> SlotState:
    migrated = replace(
        state,
        tables={
            name: table for name, table in state.tables.items() if name.rsplit(":", 1)[0] not in operators
        },
    )
    for name, table in state.tables.items():
        operator, _, short = name.rpartition(":")
        if operator in operators:
            for chunk in table.chunks:
                migrated = migrated.with_chunk_part(name, migration(operator, short, chunk.frame), chunk)
    return migrated
