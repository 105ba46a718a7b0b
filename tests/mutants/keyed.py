"""Wrong changes to joins, deduplications and processors."""

from mutants.mutant import Mutant

KEYED = [
    Mutant("engine/operators/process_calls.py", "for name, at in kept.timers.items() if at <= upto]):\n            at, name = min(due)", "for name, at in kept.timers.items() if at < upto]):\n            at, name = min(due)", "a timer comes after the rows of its time"),
    Mutant("engine/operators/process_calls.py", "        if self.known[key].timers.get(name) == at:\n            del self.known[key].timers[name]\n", "        if self.known[key].timers.get(name) == at:\n", "a timer stays set when it fires"),
    Mutant("engine/operators/process_calls.py", "            if self.known[key].alarms.get(name) == at:\n                del self.known[key].alarms[name]\n", "            if self.known[key].alarms.get(name) == at:\n", "an alarm rings in every batch"),
    Mutant("engine/operators/process_calls.py", "        for kept in self.known.values():\n            kept.timers.clear()\n", "", "timers that are set at the end of the stream are kept", equivalent="nothing follows the end, so nobody sees what is left of them"),
    Mutant("engine/operators/process_calls.py", "RULE, ROW = 0, 1", "RULE, ROW = 1, 0", "rules come after rows of their time"),
    Mutant("engine/operators/process.py", '.is_between(since, upto, closed="right")', '.is_between(since, upto, closed="none")', "a timer at the watermark is overlooked"),
    Mutant("engine/operators/process.py", 'self._due(state, "alarms", saved["clock"], calls.now)', "[]", "alarms wake nobody"),
    Mutant("engine/operators/process.py", "sticks = max(ends, untils.get(key, ends))", "sticks = ends", "what was deleted comes back when the word of it has expired"),
    Mutant("engine/operators/process.py", 'return frame.sort("_seq").unique(self.node.keys, keep="last", maintain_order=True)', 'return frame.sort("_seq").unique(self.node.keys, keep="first", maintain_order=True)', "the oldest version of a key counts"),
    Mutant("engine/operators/process.py", 'refused = pl.col("_ahead") | (pl.col("_t") < pl.col("_w")).fill_null(value=False)\n        told', 'refused = pl.col("_ahead") | (pl.col("_t") <= pl.col("_w")).fill_null(value=False)\n        told', "a row at the watermark is late for a processor"),
    Mutant("processors.py", "what = what if ctx.time < until else self.default", "pass", "a value lives for ever"),
    Mutant("processors.py", "ctx.handed[self.name] = (self, _copied(what), what)", "ctx.handed[self.name] = (self, what, what)", "a default that can be changed is shared by all keys"),
    Mutant("processors.py", "return [pair for pair in kept if self.ctx.time < pair[1]]", "return [pair for pair in kept if self.ctx.time <= pair[1]]", "an item lives a millisecond too long"),
    Mutant("engine/operators/table_join.py", 'last = come.unique(keys, keep="last", maintain_order=True)', 'last = come.unique(keys, keep="first", maintain_order=True)', "of the versions of a batch the first is kept"),
    Mutant("engine/operators/table_join.py", 'strategy="backward"', 'strategy="nearest"', "a row sees a version of the future"),
    Mutant("graph/build/join.py", 'for side, other, wanted in ((left, right, ("left", "full")), (right, left, ("right", "full"))):', 'for side, other, wanted in ((left, right, ("left", "full")), (right, left, ("right",))):', "a full join leaves out rows of the right"),
    Mutant("engine/rescale.py", "return pl.lit(name.endswith(EVERYWHERE))", "return pl.lit(value=False)", "rules are lost where slots change"),
    Mutant("engine/operators/deduplicate.py", 'pl.col("_w") >= pl.col("_t") + self.node.within if', 'pl.col("_w") > pl.col("_t") + self.node.within if', "a row is taken of which nobody can tell any more whether it is a copy"),
    Mutant("engine/operators/deduplicate.py", '(time >= pl.col("_last") + self.node.within)', '(time > pl.col("_last") + self.node.within)', "a row is a copy of one that is just far enough away"),
    Mutant("engine/operators/deduplicate.py", 'kept = rows.unique(identity, keep="first", maintain_order=True).join(', "kept = rows.join(", "copies in one batch go on"),
    Mutant("engine/operators/deduplicate.py", "0 if self.node.at_once else self.node.within\n        columns", "0\n        columns", "earlier rows are looked for only at the time of the new ones"),
    Mutant("engine/operators/interval_join.py", "(apart >= self.node.lower) & (apart < self.node.upper)", "(apart >= self.node.lower) & (apart <= self.node.upper)", "the upper bound of an interval is inside it"),
    Mutant("engine/operators/interval_join.py", 'otherwise(pl.col("_t") - self.node.lower + 1)', 'otherwise(pl.col("_t") - self.node.lower)', "a row of the right is forgotten a millisecond too early"),
    Mutant("engine/operators/interval_join.py", "pl.concat([none, self._met(new, pl.concat([near, new])), self._met(near, new)])", "pl.concat([none, self._met(new, pl.concat([near, new]))])", "a kept row of the left does not meet a new one"),
    Mutant("engine/operators/interval_join.py", 'pl.concat([self._still(state, "met", since), met])', "met", "a row that has met one in an earlier batch counts as lonely"),
]  # fmt: skip
