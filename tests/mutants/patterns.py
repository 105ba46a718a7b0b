"""Wrong changes to the matcher of patterns."""

from mutants.mutant import Mutant

PATTERNS = [
    Mutant("patterns/automaton.py", 'if contiguity == "strict":', 'if contiguity == "never":', "next passes over what does not fit"),
    Mutant("patterns/automaton.py", 'ALWAYS if contiguity == "any" else negated(where)', 'ALWAYS if contiguity != "strict" else negated(where)', "followed_by passes over what fits"),
    Mutant("patterns/automaton.py", "            state = self._state(nots=(self._refused(part, around),))\n", "            return rest((*nots, self._refused(part, around)), guard)\n", "not_next forbids all events, as not_followed_by does"),
    Mutant("patterns/automaton.py", "return rest((*nots, refused), guard)", "return rest(nots, guard)", "not_followed_by forbids nothing"),
    Mutant("patterns/automaton.py", "waiting = self._state(**said, ignore=ignore)", "waiting = self._state(**(said | {'nots': ()}), ignore=ignore)", "what must not come is forgotten while waiting"),
    Mutant("patterns/automaton.py", "exits(nots) if part.optional", "exits(()) if part.optional", "leaving out a step forgets what must not come"),
    Mutant("patterns/automaton.py", "part.greedy and part.least != part.most", "part.greedy and part.most is None", "times(a, b) is never greedy"),
    Mutant("patterns/automaton.py", "Ways(_unless(where, (*own, *around.untils))", "Ways(_unless(where, around.untils)", "until does not end a loop"),
    Mutant("patterns/automaton.py", "if turn < more else []", "if turn <= more else []", "one repetition too few is enough"),
    Mutant("patterns/automaton.py", "if part.repeated else ()", "if part.most is None else ()", "after times(n) what must not come does not end the loop"),
    Mutant("patterns/automaton.py", "also=(rest((), None),)) if number < more else again", "also=()) if number < more else again", "a group is repeated as often as it may be"),
    Mutant("patterns/courses.py", "at <= time}", "at < time}", "the bound of a match is inside it"),
    Mutant("patterns/courses.py", "event.time - node.event.time >= here.gap", "event.time - node.event.time > here.gap", "a gap may be as long as its bound"),
    Mutant("patterns/courses.py", "(done if run.state.settles else found.timeouts)", "found.timeouts", "not_followed_by at the end is never certain"),
    Mutant("patterns/courses.py", "return match.node.event.seq + 1", "return match.start.seq + 1", "skip past_last goes to the next"),
    Mutant("patterns/courses.py", "return match.start.seq + 1", "return match.start.seq", "skip to_next gives up nothing"),
    Mutant("patterns/courses.py", 'events[-1] if self.skip.kind == "to_first" else events[0]', 'events[0] if self.skip.kind == "to_first" else events[-1]', "skip to_first goes to the last"),
    Mutant("patterns/courses.py", "while held and all(held[0].start.seq <= run.start.seq for run in runs):", "while held:", "a match does not wait for one that began before it"),
    Mutant("patterns/courses.py", "                    del after[before:]\n                    return\n", "                    return\n", "what must not come stops only half of a match"),
    Mutant("patterns/memory.py", "return old if seen else new", "return new", "the first event of a step is its last"),
    Mutant("patterns/matcher.py", 'matters = matters | pl.col("_key").is_in(begun.to_list())', "matters = matters & True", "keys in which a match has begun are passed over"),
    Mutant("patterns/regular.py", "kept[starts[cut]] = True", "pass", "a match that the end of a batch cuts is forgotten"),
    Mutant("patterns/regular.py", "here[going] + 1", "here[going] + 2", "every other row is looked at"),
    Mutant("patterns/matcher.py", "(due is not None and due <= watermark)", "(due is not None and due < watermark)", "time that passes is noticed a tick late"),
    Mutant("patterns/stored.py", "None if before < 0 else nodes[before]", "None", "a stored match forgets all events but the last"),
]  # fmt: skip
