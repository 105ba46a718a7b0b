"""Wrong changes to joins, deduplications and processors."""

from mutants.mutant import Mutant

KEYED = [
    Mutant("engine/operators/process_calls.py", "for name, at in state.timers.items() if at <= until]):\n            at, name = min(due)", "for name, at in state.timers.items() if at < until]):\n            at, name = min(due)", "a timer comes after the rows of its time"),
    Mutant("engine/operators/process_calls.py", "        if self.states[key].timers.get(name) == at:\n            del self.states[key].timers[name]\n", "        if self.states[key].timers.get(name) == at:\n", "a timer stays set when it fires"),
    Mutant("engine/operators/process_calls.py", "            if self.states[key].clock_timers.get(name) == at:\n                del self.states[key].clock_timers[name]\n", "            if self.states[key].clock_timers.get(name) == at:\n", "a timer of the clock fires in every batch"),
    Mutant("engine/operators/process_calls.py", "        for state in self.states.values():\n            state.timers.clear()\n", "", "timers that are set at the end of the stream are kept", equivalent="nothing follows the end, so nobody sees what is left of them"),
    Mutant("engine/operators/process_calls.py", "BROADCAST, ROW = 0, 1", "BROADCAST, ROW = 1, 0", "rules come after rows of their time"),
    Mutant("engine/operators/process.py", '.is_between(after, until, closed="right")', '.is_between(after, until, closed="none")', "a timer at the watermark is overlooked"),
    Mutant("engine/operators/process.py", 'self._due_keys(state, CLOCK_TIMERS, saved["clock"], calls.now)', "[]", "timers of the clock wake nobody"),
    Mutant("engine/operators/process.py", "expiry = max(end, expiries.get(key, end))", "expiry = end", "what was deleted comes back when the word of it has expired"),
    Mutant("engine/keyed_table.py", 'frame.sort(STATE_VERSION).unique(keys, keep="last", maintain_order=True)', 'frame.sort(STATE_VERSION).unique(keys, keep="first", maintain_order=True)', "the oldest version of a key counts"),
    Mutant("engine/operators/process.py", "lateness.split_late(rows, lateness.is_behind())", "lateness.split_late(rows, lateness.is_forgotten(0))", "a row at the watermark is late for a processor"),
    Mutant("state.py", "current = current if ctx.time < expires else self.default", "pass", "a value lives for ever"),
    Mutant("state.py", "ctx.handed_out[self.name] = (self, copy_storable(current), current)", "ctx.handed_out[self.name] = (self, current, current)", "a default that can be changed is shared by all keys"),
    Mutant("state.py", "return [pair for pair in pairs if self._bound_context.time < pair[1]]", "return [pair for pair in pairs if self._bound_context.time <= pair[1]]", "an item lives a millisecond too long"),
    Mutant("engine/operators/table_join.py", 'newest = new_versions.unique(keys, keep="last", maintain_order=True)', 'newest = new_versions.unique(keys, keep="first", maintain_order=True)', "of the versions of a batch the first is kept"),
    Mutant("engine/operators/table_join.py", 'strategy="backward"', 'strategy="nearest"', "a row sees a version of the future"),
    Mutant("graph/build/join.py", 'for side, other, wanted in ((left, right, ("left", "full")), (right, left, ("right", "full"))):', 'for side, other, wanted in ((left, right, ("left", "full")), (right, left, ("right",))):', "a full join leaves out rows of the right"),
    Mutant("engine/rescale.py", "return pl.lit(name.endswith(BROADCAST_SUFFIX))", "return pl.lit(value=False)", "rules are lost where slots change"),
    Mutant("engine/lateness.py", "(pl.col(WATERMARK) >= pl.col(ROW_TIME) + after)", "(pl.col(WATERMARK) > pl.col(ROW_TIME) + after)", "a row is taken of which nobody can tell any more whether it is a copy"),
    Mutant("engine/operators/deduplicate.py", "(time >= pl.col(LAST_EMITTED) + self.node.within)", "(time > pl.col(LAST_EMITTED) + self.node.within)", "a row is a copy of one that is just far enough away"),
    Mutant("engine/operators/deduplicate.py", 'first = rows.unique(identity, keep="first", maintain_order=True)', "first = rows", "copies in one batch go on"),
    Mutant("engine/operators/deduplicate.py", "0 if self.node.is_immediate else self.node.within\n        columns", "0\n        columns", "earlier rows are looked for only at the time of the new ones"),
    Mutant("engine/operators/interval_join.py", "(distance >= self.node.lower) & (distance < self.node.upper)", "(distance >= self.node.lower) & (distance <= self.node.upper)", "the upper bound of an interval is inside it"),
    Mutant("engine/operators/interval_join.py", "otherwise(pl.col(ROW_TIME) - self.node.lower + 1)", "otherwise(pl.col(ROW_TIME) - self.node.lower)", "a row of the right is forgotten a millisecond too early"),
    Mutant("engine/operators/interval_join.py", "pl.concat([no_pairs, self._pair_sides(new, pl.concat([same_keys, new])), self._pair_sides(same_keys, new)])", "pl.concat([no_pairs, self._pair_sides(new, pl.concat([same_keys, new]))])", "a kept row of the left does not meet a new one"),
    Mutant("engine/operators/interval_join.py", "pl.concat([self._read_unexpired(state, MATCHED, since), matched])", "matched", "a row that has met one in an earlier batch counts as lonely"),
]  # fmt: skip
