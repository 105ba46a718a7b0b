"""Random patterns in jobs: whatever the batches, the disorder and the restarts,
the matches are those of the definition.
"""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import DefinitionError
from millrace.testing.transcripts import patterns as transcripts
from millrace.testing.transcripts.pattern_jobs import PatternTranscriptJob
from patterns.random_patterns import random_events, random_pattern, random_regular_pattern


def by_step(found: list[transcripts.TakenEvents]) -> Counter[str]:
    return Counter(str(sorted(taken)) for taken in found)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6))
def test_matches_of_jobs_are_those_of_the_definition_despite_batches_disorder_and_restarts(seed: int) -> None:
    chance = random.Random(seed)
    document = (random_regular_pattern if seed % 3 == 0 else random_pattern)(chance)
    events = [{**event, "who": chance.choice("xy")} for event in random_events(chance)]
    chance.shuffle(events)
    try:
        transcript = transcripts.parse_document({**document, "key": "who", "events": events, "expect": {}})
    except DefinitionError:
        return
    wanted, _ = transcripts.match_by_definition(transcript)
    _, overdue = transcripts.match_by_matcher(transcript, 0)
    for cut in range(2):
        matches, timeouts = PatternTranscriptJob(transcript).play("engine", cut)
        assert by_step(matches) == by_step(wanted)
        assert Counter((at, str(sorted(taken))) for at, taken in timeouts) == Counter(
            (at, str(sorted(taken))) for at, taken in overdue
        )
