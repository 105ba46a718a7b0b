"""Random patterns and row patterns: after each batch the engine has shown and refused what the model has,
which matches by definition.
"""

import random
from collections import Counter
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.durations import END_OF_STREAM
from millrace.engine import state
from millrace.errors import DefinitionError, PatternFailed
from millrace.patterns.cep.matcher import Key, Matcher
from millrace.patterns.cep.partial_matches import PartialMatches
from millrace.testing.model.pattern_stream import PatternStream, ShownMatch
from millrace.testing.model.row_pattern_definition import TooManyWays
from millrace.testing.script import OnEngine, OnModel
from millrace.testing.transcripts import patterns as transcripts
from millrace.testing.transcripts.pattern_jobs import ID, TIME
from millrace.testing.transcripts.words import to_canonical_text
from pattern_strategies import pattern_document, pattern_jobs
from patterns.random_patterns import random_events
from strategies import batches, examples
from test_engine_against_model import hold_batch, ran


def check_every_batch(data: st.DataObject) -> None:
    """One random run on both, batch by batch; half of them merge state all the time."""
    jobs = data.draw(pattern_jobs())
    engine = OnEngine(jobs.jobs, jobs.partitions, slots=data.draw(st.sampled_from([1, 2, 5])))
    model = OnModel(jobs.jobs, jobs.partitions)
    is_tight = data.draw(st.booleans())
    with patch.object(state, "MERGE_FACTOR", 2 if is_tight else state.MERGE_FACTOR):
        for batch in data.draw(batches(jobs, most=16)):
            try:
                hold_batch(engine, model, batch)
            except TooManyWays:
                return


def check_matcher(data: st.DataObject) -> None:
    """A random pattern over a few events of one key:
    matches and timeouts come with the same batch from matcher and model.
    """
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    document = pattern_document(chance)
    try:
        transcript = transcripts.parse_document({**document, "events": random_events(chance), "expect": {}})
        matcher = Matcher(transcript.pattern, transcript.schema, (), TIME)
    except DefinitionError:
        return
    model = PatternStream(transcript.pattern, transcript.schema, TIME)
    partial_matches: dict[Key, PartialMatches] = {}
    for rows, watermark in transcripts._cut_into_batches(transcript, chance):
        full = [{name: row.get(name) for name in transcript.schema} for row in rows]
        frame = pl.DataFrame(full, schema=transcript.schema)
        try:
            result = matcher.step(partial_matches, frame, watermark)
        except PatternFailed as failed:
            with pytest.raises(type(failed)):
                model.advance(full, watermark, is_ended=watermark >= END_OF_STREAM)
            return
        partial_matches = {key: found for key, found in result.changed.items() if found is not None} or (
            {} if result.changed else partial_matches
        )
        matches, timeouts = model.advance(full, watermark, is_ended=watermark >= END_OF_STREAM)
        assert events_of(result.matches) == Counter(map(shown_events, matches))
        assert events_of(result.timeouts) == Counter(map(shown_events, timeouts))


def events_of(frame: pl.DataFrame) -> Counter[Any]:
    return Counter(transcripts._read_matches(frame))


def shown_events(match: ShownMatch) -> Any:
    ids = (to_canonical_text(row[ID]) for row in match.rows)
    return match.known_at, tuple(zip(match.steps, ids, strict=True))


@given(data=st.data())
@examples(60)
def test_every_batch_shows_the_same_matches_and_timeouts(data: st.DataObject) -> None:
    check_every_batch(data)


@given(data=st.data())
@examples(150)
def test_matches_and_timeouts_come_with_the_same_batch_from_matcher_and_model(data: st.DataObject) -> None:
    check_matcher(data)


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(20))
def test_five_thousand_runs_in_chunks_of_250_say_the_same(chunk: int) -> None:
    assert ran(check_matcher if chunk % 4 == 3 else check_every_batch, 250, seed_=chunk) >= 250
