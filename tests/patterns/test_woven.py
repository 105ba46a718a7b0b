"""Every cell of the matrix of patterns has a transcript,
and those computed by the definition hold on the matcher and on columns.
"""

from collections import Counter
from pathlib import Path

import pytest
import yaml

from matrix.patterns import FOLDER, LINKS, PAGE, dump, missing_cells, page
from millrace.testing.transcripts import patterns as transcripts
from millrace.testing.transcripts.running import run_documents

FILES = sorted(FOLDER.glob("woven-*.yaml"))


def test_every_cell_that_makes_sense_has_a_transcript() -> None:
    assert missing_cells() == []


def test_the_page_of_the_matrix_is_current() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_woven_transcripts_hold(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    assert len(documents) == 105
    for number, document in enumerate(documents):
        transcript = transcripts.parse_document(document)
        wanted = Counter(tuple(map(str, match)) for match in document["expect"]["matches"])
        for answer in (
            transcripts.match_by_matcher(transcript, number),
            transcripts.match_by_columns(transcript, number),
        ):
            if answer is not None:
                assert Counter(tuple(id for _, id in taken) for taken in answer[0]) == wanted, document[
                    "name"
                ]


@pytest.mark.long
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_woven_transcripts_hold_on_the_engine(path: Path) -> None:
    assert {name: why for name, why in run_documents(path, "engine") if why is not None} == {}


@pytest.mark.long
@pytest.mark.parametrize("link", LINKS)
def test_weaving_again_gives_the_same(link: str) -> None:
    assert (FOLDER / f"woven-{link}.yaml").read_text() == dump(link), (
        "run `PYTHONPATH=tests python -m matrix.patterns`"
    )
