"""Transcripts and scripts hold on Spark as they do on the model and the engine: the real stages,
shuffles, state and restarts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace import testing
from millrace.testing.transcripts.running import run_documents
from runners.spark.readings import READINGS, spreads, totals

pytestmark = pytest.mark.spark

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts"


def written_by_hand(*, clocked: bool) -> list[Any]:
    """Our transcripts that set the clock, or those that do not; the woven ones are many."""
    files = [path for path in sorted(TRANSCRIPTS.glob("*.yaml")) if not path.name.startswith("woven")]
    documents = [document for path in files for document in yaml.safe_load_all(path.read_text())]
    return [
        document for document in documents if any("clock" in step for step in document["steps"]) is clocked
    ]


def of(files: str) -> list[Any]:
    """Our transcripts in some files."""
    return [
        document
        for path in sorted(TRANSCRIPTS.glob(files))
        for document in yaml.safe_load_all(path.read_text())
    ]


def failures(documents: list[Any], folder: Path) -> dict[str, str]:
    path = folder / "chosen.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return {name: why for name, why in run_documents(path, "spark") if why is not None}


def test_our_transcripts_share_a_query_and_hold(tmp_path: Path) -> None:
    documents = written_by_hand(clocked=False)
    assert len(documents) > 80
    rows = [document for document in of("rows/[!q]*.yaml") if "error" not in document["expect"]]
    assert not failures([*documents, *of("patterns/[!w]*.yaml")[::6], *rows[::4]], tmp_path)


def test_a_transcript_that_sets_the_clock_holds(tmp_path: Path) -> None:
    assert not failures(written_by_hand(clocked=True)[:1], tmp_path)


@pytest.mark.long
def test_every_transcript_that_sets_the_clock_holds(tmp_path: Path) -> None:
    assert not failures(written_by_hand(clocked=True), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("files", "least"), [("patterns/*.yaml", 370), ("rows/*.yaml", 50)])
def test_every_transcript_of_a_pattern_holds(files: str, least: int, tmp_path: Path) -> None:
    documents = of(files)
    assert len(documents) >= least
    assert not failures(documents, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("path", sorted(TRANSCRIPTS.glob("woven-*.yaml")), ids=lambda path: path.stem)
def test_woven_transcripts_hold(path: Path) -> None:
    assert not {name: why for name, why in run_documents(path, "spark") if why is not None}


def test_fused_jobs_say_the_same_on_the_model_the_engine_and_spark() -> None:
    """Late rows, early ones, an idle partition's turn, a restart: step by step the same panes."""

    def results(on: testing.On) -> list[object]:
        script = testing.Script(totals(), spreads(), on=on, partitions=2)
        steps: list[object] = []
        for n in range(6):
            script.events(
                *[
                    {"sensor": f"s{n % 3}", "value": n + k, "event_time": 4_000 * n + 900 * k}
                    for k in range(4)
                ],
                topic=READINGS,
                partition=n % 2,
            )
            steps.append(sorted(map(str, script.panes())))
            if n == 3:
                script.watermark("15s")
                script.restart()
                steps.append(sorted(map(str, script.panes())))
        script.events({"sensor": "s0", "value": 99, "event_time": 100}, topic=READINGS)
        script.end()
        steps += [sorted(map(str, script.panes())), sorted(map(str, script.late()))]
        script.close()
        return steps

    model, engine, spark = results("model"), results("engine"), results("spark")
    assert spark == engine
    assert spark == model
