"""The wrong changes of `make mutants` can still be made;
whether tests notice them takes minutes, and is asked there.
"""

from pathlib import Path

import pytest

from mutants.catalogue import MUTANTS
from mutants.mutant import Mutant

PACKAGE = Path(__file__).parents[1] / "src" / "millrace"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.says)
def test_a_change_finds_its_place_and_leaves_a_program(mutant: Mutant) -> None:
    text = (PACKAGE / mutant.file).read_text()
    assert len(mutant.found(text)) == 1, f"{mutant.file} has changed: bring tests/mutants up to date"
    changed = mutant.apply(text)
    assert changed != text
    compile(changed, mutant.file, "exec")


def test_there_are_enough_that_matter() -> None:
    assert sum(not mutant.equivalent for mutant in MUTANTS) >= 30
    assert len({mutant.says for mutant in MUTANTS}) == len(MUTANTS)
