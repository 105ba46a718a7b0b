"""All that can happen next in a world of `commit_world`."""

from collections.abc import Iterator
from typing import Any, Literal

from runners.commit_world import (
    CUTS,
    Checkpoint,
    Entry,
    Log,
    Number,
    Process,
    Rules,
    Safeguard,
    Sent,
    World,
    visible,
)


def moves(world: World, rules: Rules, *, undisturbed: bool = False) -> Iterator[tuple[str, World]]:
    """Every next world, and what led to it.
    `undisturbed`: nobody dies, nobody new comes, nothing is too slow.
    """
    yield from _brokers(world, rules, undisturbed=undisturbed)
    for place in range(len(world.alive)):
        yield from _step(world, rules, place)
    if undisturbed:
        return
    for place, process in enumerate(world.alive):
        yield f"{_name(process)} dies", _without(world, place)
    for epoch, status in world.log.pending:
        if status == "open" and epoch == world.log.epoch and world.mishaps < rules.mishaps:
            log = world.log.becomes(epoch, "out")._replace(epoch=epoch + 1)
            yield f"transaction {epoch} takes too long", world._replace(log=log, mishaps=world.mishaps + 1)
    if world.begun < rules.lives and (
        not world.alive or (len(world.alive) == 1 and not rules.has(Safeguard.LOCK))
    ):
        yield "one begins", born(world, rules)
    if not world.alive and not world.wire and not world.replaced:
        for copy in world.history:
            older = world._replace(log=copy) if isinstance(copy, Log) else world._replace(checkpoint=copy)
            yield "an older copy comes back", older._replace(replaced=True)


def born(world: World, rules: Rules) -> World:
    """With one more incarnation."""
    return world._replace(
        alive=(*world.alive, Process(rules.steps[0], owner=world.begun + 1)), begun=world.begun + 1
    )


def _step(world: World, rules: Rules, place: int) -> Iterator[tuple[str, World]]:
    process = world.alive[place]
    if process.waits:
        return
    action = f"{_name(process)}: {process.step}"
    for following in _STEPS[process.step](world, rules, place):
        yield action, following


def _goes_on(world: World, rules: Rules, place: int, **known: Any) -> World:
    """The process at `place` has done its step, or the one `at` which it is, and knows more."""
    process = world.alive[place]
    steps = rules.steps
    at = steps.index(str(known.pop("at", process.step))) + 1
    process = process._replace(step=steps[at] if at < len(steps) else "next", waits=False, **known)
    if process.step == "next":
        process = process._replace(
            step="plan",
            done=process.batch,
            last=max(process.last, process.batch),
            start=process.end,
            base=process.end,
        )
    return world._replace(alive=(*world.alive[:place], process, *world.alive[place + 1 :]))


def _without(world: World, place: int) -> World:
    return world._replace(alive=(*world.alive[:place], *world.alive[place + 1 :]))


def _name(process: Process) -> str:
    return f"{process.epoch}/{process.batch}"


# --- the state folder


def _load(world: World, rules: Rules, place: int) -> Iterator[World]:
    kept = world.checkpoint
    base = kept.upto if rules.runner == "spark" and rules.has(Safeguard.WHOLE) else kept.state
    planned = kept.planned if kept.planned and kept.planned[0] > kept.done else None
    yield _goes_on(world, rules, place, done=kept.done, start=kept.upto, base=base, planned=planned)


def _plan(world: World, rules: Rules, place: int) -> Iterator[World]:
    """A batch that was begun is repeated as it was; else one is cut.
    Spark refuses to write down a batch that somebody else has.
    """
    process = world.alive[place]
    if process.planned is not None and process.planned[0] == process.batch and rules.has(Safeguard.PLAN):
        yield _goes_on(world, rules, place, end=process.planned[1])
        return
    for end in sorted({min(process.start + cut, rules.events) for cut in CUTS} - {process.start}):
        kept = world.checkpoint
        if (
            rules.runner == "spark"
            and kept.planned
            and kept.planned[0] >= process.batch
            and rules.has(Safeguard.PLAN)
        ):
            yield _without(world, place)
        else:
            changed = _kept(world, rules, kept._replace(planned=(process.batch, end)))
            yield _goes_on(changed, rules, place, end=end)


def _compute(world: World, rules: Rules, place: int) -> Iterator[World]:
    if rules.runner == "spark" and not rules.has(Safeguard.WHOLE):
        world = world._replace(checkpoint=world.checkpoint._replace(state=world.alive[place].end))
    yield _goes_on(world, rules, place)


def _store(world: World, rules: Rules, place: int) -> Iterator[World]:
    process, kept = world.alive[place], world.checkpoint
    if rules.runner == "spark":
        if kept.done >= process.batch:
            yield _without(world, place)
            return
        kept = kept._replace(done=process.batch, upto=process.end)
    else:
        kept = kept._replace(done=process.batch, upto=process.end, planned=None)
        kept = kept._replace(state=process.end) if rules.has(Safeguard.WHOLE) else kept
    yield _goes_on(_kept(world, rules, kept), rules, place)


def _store_state(world: World, rules: Rules, place: int) -> Iterator[World]:
    kept = world.checkpoint._replace(state=world.alive[place].end)
    yield _goes_on(_kept(world, rules, kept), rules, place)


def _kept(world: World, rules: Rules, checkpoint: Checkpoint) -> World:
    history = (
        (*world.history, world.checkpoint)
        if rules.backups == "state" and not world.replaced
        else world.history
    )
    return world._replace(checkpoint=checkpoint, history=history)


# --- taking over


def _take_over(world: World, rules: Rules, place: int) -> Iterator[World]:
    """A new epoch. With Kafka, transactions that older ones had open are aborted;
    those already decided are brought to their end.
    """
    log = world.log._replace(epoch=world.log.epoch + 1)
    if rules.has(Safeguard.FENCE):
        for epoch, status in log.pending:
            log = log.becomes(epoch, "out" if status == "open" else status)
    world = world._replace(log=log)
    if world.alive[place].doing:
        yield _changed(world, place, step="await again", epoch=log.epoch)
    else:
        yield _goes_on(world, rules, place, epoch=log.epoch)


def _await(world: World, rules: Rules, place: int) -> Iterator[World]:
    if not rules.has(Safeguard.FENCE) or not world.log.pending:
        yield (
            _changed(world, place, step="look again")
            if world.alive[place].doing
            else _goes_on(world, rules, place)
        )


def _ask(world: World, rules: Rules, place: int) -> Iterator[World]:
    found = _number(world, rules)
    yield _goes_on(world, rules, place, last=found.batch, generation=found.generation + 1)


def _number(world: World, rules: Rules) -> Number:
    numbers = world.log.numbers
    known: list[Any] = (
        visible(numbers) if rules.has(Safeguard.READ_COMMITTED) else [entry.content for entry in numbers]
    )
    return Number(*known[-1]) if known else Number(-1)


def _look(world: World, rules: Rules, place: int) -> Iterator[World]:
    """Barred, perhaps only for being slow: whose is the name?
    If nobody claimed it, he goes on; his transaction may be in after all.
    """
    process, found = world.alive[place], _number(world, rules)
    action = process.says(process.doing if "claim" in process.doing else "mark")
    assert isinstance(action, Number)
    if found.owner != process.owner and found.generation >= process.generation:
        yield _without(world, place)
    elif process.step == "look":
        yield _changed(world, place, step="rejoin")
    elif found.owner == process.owner and found.batch >= action.batch:
        yield _goes_on(
            _changed(world, place, doing=""),
            rules,
            place,
            at="commit claim" if "claim" in process.doing else _last_write(rules),
        )
    else:
        yield _changed(world, place, doing="", step="claim" if "claim" in process.doing else "produce")


def _last_write(rules: Rules) -> str:
    return "commit" if rules.has(Safeguard.ATOMIC) else "commit mark"


def _barred(world: World, rules: Rules, place: int) -> World:
    process = world.alive[place]
    if "claim" in process.step and rules.has(Safeguard.ASK_AGAIN):
        return _changed(world, place, step="take over", waits=False)
    return _changed(world, place, step="look", doing=process.step, waits=False)


def _changed(world: World, place: int, **known: Any) -> World:
    return world._replace(
        alive=(*world.alive[:place], world.alive[place]._replace(**known), *world.alive[place + 1 :])
    )


def _check(world: World, rules: Rules, place: int) -> Iterator[World]:
    process = world.alive[place]
    most = process.planned[0] if process.planned else process.done
    behind = rules.has(Safeguard.BEHIND) and process.last < process.done
    ahead = rules.has(Safeguard.AHEAD) and process.last > most
    yield _without(world, place)._replace(refused=True) if behind or ahead else _goes_on(world, rules, place)


# --- the transaction


def _skips(process: Process, rules: Rules) -> bool:
    return rules.has(Safeguard.SKIP) and process.batch <= process.last


def _may(log: Log, epoch: int, rules: Rules) -> bool:
    return epoch == log.epoch or not rules.has(Safeguard.FENCE)


def _embedded(world: World, rules: Rules, place: int) -> Iterator[World]:
    """A transaction of SQLite, or a part of one where it is not atomic."""
    process, log = world.alive[place], world.log
    if _skips(process, rules):
        yield _goes_on(world, rules, place)
        return
    numbers = [entry.content.batch for entry in log.numbers]
    known = rules.has(Safeguard.COMPARE) and numbers and numbers[-1] >= process.batch
    if not _may(log, process.epoch, rules) or known:
        yield _without(world, place)
        return
    if process.step in ("transact", "insert"):
        log = log._replace(results=(*log.results, Entry(0, process.says("insert"), "in")))
    if process.step in ("transact", "number"):
        log = log._replace(numbers=(*log.numbers, Entry(0, process.says("number"), "in")))
    yield _goes_on(_written(world, rules, log), rules, place)


def _send(world: World, rules: Rules, place: int) -> Iterator[World]:
    """A request goes out; the process waits for the answer."""
    process = world.alive[place]
    if _skips(process, rules) and "claim" not in process.step:
        yield _goes_on(world, rules, place)
        return
    sent = Sent(process.epoch, process.step, process.says(process.step))
    yield _changed(world, place, waits=True)._replace(wire=(*world.wire, sent))


def _brokers(world: World, rules: Rules, *, undisturbed: bool) -> Iterator[tuple[str, World]]:
    """Requests arrive, and what was decided of a transaction reaches one partition after the other."""
    for number, sent in enumerate(world.wire):
        rest = world._replace(wire=(*world.wire[:number], *world.wire[number + 1 :]))
        yield f"{sent.epoch}: {sent.kind} arrives", _arrived(rest, rules, sent, answered=True)
        if sent.kind.startswith("commit") and world.mishaps < rules.mishaps and not undisturbed:
            unanswered = _arrived(rest, rules, sent, answered=False)
            yield (
                f"{sent.epoch}: {sent.kind} arrives, its answer does not",
                unanswered._replace(mishaps=world.mishaps + 1),
            )
    for epoch, status in world.log.pending:
        if status != "open":
            for name in ("results", "numbers"):
                partition: tuple[Entry, ...] = getattr(world.log, name)
                if any(entry.epoch == epoch and entry.fate == "open" for entry in partition):
                    marked = _mark(partition, epoch, status, keep=not rules.has(Safeguard.READ_COMMITTED))
                    yield (
                        f"{name} learn that {epoch} is {status}",
                        world._replace(log=_settled(_with(world.log, name, marked), epoch)),
                    )


def _mark(
    partition: tuple[Entry, ...], epoch: int, fate: Literal["in", "out"], *, keep: bool
) -> tuple[Entry, ...]:
    """The partition knows of a transaction's fate.
    Whose an entry was no longer matters then; nor does one that is out, unless `keep`.
    """
    marked = (
        entry._replace(epoch=0, fate=fate) if entry.epoch == epoch and entry.fate == "open" else entry
        for entry in partition
    )
    return tuple(entry for entry in marked if keep or entry.fate != "out")


def _with(log: Log, name: str, partition: tuple[Entry, ...]) -> Log:
    return log._replace(results=partition) if name == "results" else log._replace(numbers=partition)


def _settled(log: Log, epoch: int) -> Log:
    """A transaction of which every partition knows is over."""
    open_still = any(entry.epoch == epoch and entry.fate == "open" for entry in (*log.results, *log.numbers))
    return log if open_still else log.becomes(epoch, None)


def _arrived(world: World, rules: Rules, sent: Sent, *, answered: bool) -> World:
    """A request takes effect, or its sender is fenced.
    If the answer is lost, the sender retries and learns that it is fenced.
    """
    log = world.log
    sender = next(
        (place for place, process in enumerate(world.alive) if process.waits and process.epoch == sent.epoch),
        None,
    )
    committing = sent.kind.startswith("commit")
    fits = log.status(sent.epoch) == "open" if committing else log.status(sent.epoch) in (None, "open")
    if not _may(log, sent.epoch, rules) or not fits:
        return world if sender is None else _barred(world, rules, sender)
    if committing:
        world = _written(world, rules, _settled(log.becomes(sent.epoch, "in"), sent.epoch))
    else:
        name = "results" if sent.kind == "produce" else "numbers"
        log = _with(log, name, (*getattr(log, name), Entry(sent.epoch, sent.content)))
        world = world._replace(log=log.becomes(sent.epoch, "open"))
    if sender is None:
        return world
    return _goes_on(world, rules, sender) if answered else _barred(world, rules, sender)


def _written(world: World, rules: Rules, log: Log) -> World:
    history = (*world.history, world.log) if rules.backups == "log" and not world.replaced else world.history
    return world._replace(log=log, history=history)


_STEPS = {
    "load": _load,
    "take over": _take_over,
    "await": _await,
    "ask": _ask,
    "claim": _send,
    "commit claim": _send,
    "look": _look,
    "rejoin": _take_over,
    "await again": _await,
    "look again": _look,
    "check": _check,
    "plan": _plan,
    "compute": _compute,
    "transact": _embedded,
    "insert": _embedded,
    "number": _embedded,
    "produce": _send,
    "mark": _send,
    "commit": _send,
    "commit mark": _send,
    "store": _store,
    "store state": _store_state,
}
