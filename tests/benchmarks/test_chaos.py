"""The local runner on Kafka dies at every step of its commit, is frozen and replaced;
nothing is missing, doubled or wrong.
"""

import signal
import uuid
from pathlib import Path

import pytest

from bench.chaos import inject_faults
from bench.local_chaos import FaultPlan
from millrace.devtools.brokers import Cluster
from millrace.log import fault_points, open_log


@pytest.mark.kafka
def test_whatever_dies_nothing_is_missing_doubled_or_wrong(tmp_path: Path, brokers: Cluster) -> None:
    lines: list[str] = []
    verdict = inject_faults(
        tmp_path,
        f"{brokers.url}/chaos-{uuid.uuid4().hex[:8]}",
        plan=FaultPlan(hits=1, rounds=1),
        report=lines.append,
    )
    assert (verdict.missing, verdict.duplicated, verdict.wrong) == (0, 0, 0)
    assert {f"killed at {place}" for place in fault_points.POINTS} <= {
        line.partition(": ")[2] for line in lines
    }
    assert any("replaced while frozen" in line for line in lines)


@pytest.mark.kafka
def test_a_writer_that_went_on_while_another_took_over_is_not_overlooked(
    brokers: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(f"{brokers.url}/taken-{uuid.uuid4().hex[:8]}")
    old = log.writer("w")
    old.commit(0, {})
    asked = log.marker  # type: ignore[attr-defined] # of Kafka's log
    answers = []

    def ask(name: str) -> object:
        """The marker that the new writer reads; then the old writer, not yet fenced, commits once more."""
        answers.append(asked(name))
        if len(answers) == 1:
            old.commit(1, {})
        return answers[-1] if len(answers) == 1 else asked(name)

    monkeypatch.setattr(log, "marker", ask)
    new = log.writer("w")
    assert new.last_marker == 1
    new.commit(2, {})
    log.close()


def test_a_fault_stops_or_kills_where_it_was_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr("os.kill", lambda _pid, number: sent.append(number))
    monkeypatch.setattr(fault_points, "_passed", {})
    monkeypatch.setenv(fault_points.VARIABLE, "marked:2:stop")
    fault_points.at("marked")
    fault_points.at("produced")
    assert sent == []
    fault_points.at("marked")
    assert sent == [signal.SIGSTOP]
    monkeypatch.setenv(fault_points.VARIABLE, "produced")
    monkeypatch.setattr(fault_points, "_passed", {})
    fault_points.at("produced")
    assert sent[-1] == signal.SIGKILL
