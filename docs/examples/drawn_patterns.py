"""The patterns that docs/concepts/patterns.md explains, and the events on which they are drawn.

A letter is a kind of event, a dot a second without one.
"""

import polars as pl

from millrace.patterns import Pattern, first, pattern

A, B, C, D = (pl.col("kind") == kind for kind in "abcd")

NEXT = pattern("a", A).next("b", B)
FOLLOWED_BY = pattern("a", A).followed_by("b", B)
FOLLOWED_BY_ANY = pattern("a", A).followed_by_any("b", B)
NOT_NEXT = pattern("a", A).not_next("c", C).followed_by("b", B)
NOT_FOLLOWED_BY = pattern("a", A).not_followed_by("c", C).followed_by("b", B)
ABSENCE = pattern("a", A).not_followed_by("b", B).within("4s")

TIMES = pattern("a", A).times(2).next("b", B)
ONE_OR_MORE = pattern("a", A).one_or_more().next("b", B)
CONSECUTIVE = pattern("a", A).next("b", B).one_or_more().consecutive().next("c", C)
RELAXED = pattern("a", A).next("b", B).one_or_more().followed_by("c", C)
ALLOW_COMBINATIONS = pattern("a", A).next("b", B).one_or_more().allow_combinations().followed_by("c", C)
OPTIONAL = pattern("a", A).next("b", B).optional().next("c", C)
GREEDY = pattern("a", A).next("b", B | C).one_or_more().greedy().next("c", C | D)
NOT_GREEDY = pattern("a", A).next("b", B | C).one_or_more().next("c", C | D)
UNTIL = pattern("a", A).followed_by("b", B).one_or_more().until(D).followed_by("c", C)
GROUP = pattern("a", A).next(pattern("b", B).next("c", C)).one_or_more().next("d", D)
EARLIER = pattern("a", A).followed_by("b", B & (pl.col("value") > first("a", "value")))
WITHIN = pattern("a", A).followed_by("b", B).within("3s")
GAP = pattern("a", A).followed_by("b", B).followed_by("c", C).gap("3s")

SKIP_NONE = pattern("a", A).followed_by_any("b", B).skip_none()
SKIP_TO_NEXT = pattern("a", A).followed_by_any("b", B).skip_to_next()
SKIP_PAST_LAST = pattern("a", A).followed_by_any("b", B).skip_past_last()
SKIP_TO_FIRST = pattern("a", A | B).next("b", B).one_or_more().consecutive().next("c", C).skip_to_first("b")
SKIP_TO_LAST = pattern("a", A | B).next("b", B).one_or_more().consecutive().next("c", C).skip_to_last("b")

DRAWN: dict[str, tuple[Pattern, str]] = {
    "next": (NEXT, "abacb"),
    "followed_by": (FOLLOWED_BY, "acbab"),
    "followed_by_any": (FOLLOWED_BY_ANY, "acbcb"),
    "not_next": (NOT_NEXT, "adbacb"),
    "not_followed_by": (NOT_FOLLOWED_BY, "adbadcb"),
    "absence": (ABSENCE, "acc..a.b"),
    "times": (TIMES, "acabab"),
    "one_or_more": (ONE_OR_MORE, "aaab"),
    "consecutive": (CONSECUTIVE, "abbcabdbc"),
    "relaxed": (RELAXED, "abdbc"),
    "allow_combinations": (ALLOW_COMBINATIONS, "abbbc"),
    "optional": (OPTIONAL, "abcacadc"),
    "greedy": (GREEDY, "abcd"),
    "not_greedy": (NOT_GREEDY, "abcd"),
    "until": (UNTIL, "abbdbc"),
    "group": (GROUP, "abcbcdabcbd"),
    "earlier": (EARLIER, "a2b1b3a4b3"),
    "within": (WITHIN, "a.ba...b"),
    "gap": (GAP, "a...b.ca.b...c"),
    "skip_none": (SKIP_NONE, "aabb"),
    "skip_to_next": (SKIP_TO_NEXT, "aabb"),
    "skip_past_last": (SKIP_PAST_LAST, "aabbab"),
    "skip_to_first": (SKIP_TO_FIRST, "abbbc"),
    "skip_to_last": (SKIP_TO_LAST, "abbbc"),
}
"""What is drawn, by the name of its picture; a digit after a letter is the event's value."""
