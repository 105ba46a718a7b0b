"""Wrong changes to the calls of a user's triggers, to evictors, and to the spreading of keys over slots."""

from mutants.mutant import Mutant

OWN = [
    Mutant("triggers/own.py", "kept.result = CONTINUE", "pass", "a trigger that fired once fires with every batch"),
    Mutant("triggers/own.py", "kept.result = max(kept.result, result, key=_STRENGTH.index)", "kept.result = result", "a later answer takes back that a pane is wanted"),
    Mutant("triggers/own.py", "timers.add(max(millis, reached + 1) if self._time_passes and reached is not None else millis)", "timers.add(millis)", "a timer that is set too late never fires"),
    Mutant("triggers/own.py", "watermark is not None and due <= watermark", "watermark is not None and due < watermark", "timers are a millisecond late"),
    Mutant("triggers/own.py", "return copy_storable(declared.default if stored is None else stored[0])", "return None if stored is None else stored[0]", "defaults are forgotten when windows merge"),
    Mutant("engine/own_triggers.py", "yield from ((at, True) for at in state[2])", "yield from ()", "nobody waits for timers of the clock"),
    Mutant("engine/own_triggers.py", "b64encode(process_state.dump(KeyState(kept.values))).decode() if kept.values else None", "None", "what a trigger keeps is lost between batches"),
    Mutant("engine/operators/triggers.py", "rows.sort(*ORDER, maintain_order=True).group_by", "rows.group_by", "a user's trigger sees rows as they came"),
    Mutant("engine/operators/triggers.py", "before = trigger_state.pass_time(self.trigger, before, moment)", "pass", "timers of a user's trigger are not called"),
    Mutant("engine/operators/evictors.py", "in_order.tail(count)", "in_order.tail(count + 1)", "one row too many is kept"),
    Mutant("engine/operators/evictors.py", "in_order.tail(count)", "pl.element().tail(count)", "the last rows to come are kept in place of the latest"),
    Mutant("engine/operators/evictors.py", "time > time.max() - span", "time >= time.max() - span", "the start of the span belongs to it"),
    Mutant("engine/operators/evictors.py", "((wide - newest).abs() <= threshold)", "((wide - newest).abs() < threshold)", "a row at the threshold is left out"),
    Mutant("engine/operators/evictors.py", "if unshown.height:", "if False:", "a pane without rows has nulls"),
    Mutant("engine/operators/evictors.py", "self.node.add_arguments(pl.concat(kept))", "pl.concat(kept)", "aggregates of expressions miss their columns"),
    Mutant("engine/routing.py", "slot = key_range * slots // ranges", "slot = key_range", "operations with few slots all use the first ones"),
    Mutant("runners/state/evolution.py", "and fingerprints.parallelism_of(old_operators[o.id]) == o.node.parallelism", "", "state does not move with another parallelism"),
]  # fmt: skip
