"""Transcripts and scripts hold on Spark as they do on the model and the engine: the real stages, shuffles, state and restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace import testing
from millrace.transcripts.running import outcomes
from runners.spark.readings import READINGS, spreads, totals

pytestmark = pytest.mark.spark

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts"


def test_a_transcript_with_a_restart_in_the_middle_holds() -> None:
    failed = {name: why for name, why in outcomes(TRANSCRIPTS / "restart.yaml", "spark") if why is not None}
    assert not failed


def test_fused_jobs_say_the_same_on_the_model_the_engine_and_spark() -> None:
    """Late rows, early ones, an idle partition's turn, a restart: step by step the same panes."""

    def told(on: testing.On) -> list[object]:
        script = testing.Script(totals(), spreads(), on=on, partitions=2)
        steps: list[object] = []
        for n in range(6):
            script.events(
                *[{"sensor": f"s{n % 3}", "value": n + k, "event_time": 4_000 * n + 900 * k} for k in range(4)],
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

    model, engine, spark = told("model"), told("engine"), told("spark")
    assert spark == engine
    assert spark == model
