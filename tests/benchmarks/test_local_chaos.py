"""A plan says which faults are inflicted on a run, how often, and in which order."""

import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from bench import chaos
from bench.event_feeder import feed_events
from bench.local_chaos import KINDS, STEPS, FaultInjector, FaultPlan, plan_faults
from millrace.devtools.brokers import BrokerNode, Cluster
from millrace.log import fault_points, open_log
from millrace.transit.topics import POSITIONS


def kinds(tmp_path: Path, plan: FaultPlan, *, brokers: int, disk: bool = True) -> Counter[str]:
    """How often each kind is inflicted on a run over an embedded log,
    as if it were one over so many brokers.
    """
    cluster = (
        Cluster(tmp_path, "id", tuple(BrokerNode(number, 1, 2) for number in range(brokers)))
        if brokers
        else None
    )
    injector = FaultInjector(f"embedded:{tmp_path / 'log'}", tmp_path, cluster, seed=1, report=print)
    return Counter(kind for kind, _ in plan_faults(injector, plan, tmp_path if disk else None))


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ss"), reason="connections are cut by root, with ss"
)
def test_on_three_brokers_every_kind_of_fault_is_inflicted_in_each_round(tmp_path: Path) -> None:
    found = kinds(tmp_path, FaultPlan(hits=2, rounds=3), brokers=3)
    assert found.keys() == set(KINDS)
    assert found[STEPS] == 2 * sum(
        place not in ("begun", "produced", "marked", "committed") for place in fault_points.POINTS
    )
    assert all(count >= 3 for count in found.values())


def test_a_single_broker_is_not_restarted_while_others_go_on(tmp_path: Path) -> None:
    on_one, on_none = (kinds(tmp_path, FaultPlan(1, 1), brokers=brokers) for brokers in (1, 0))
    assert "down" in on_one
    assert not {"broker", "rolling", "first"} & on_one.keys()
    assert not {"down", "silence", "cut"} & on_none.keys()
    assert "disk" not in kinds(tmp_path, FaultPlan(1, 1), brokers=0, disk=False)


def test_a_script_may_name_the_only_kinds_of_fault(tmp_path: Path) -> None:
    assert kinds(tmp_path, FaultPlan(4, 2, only=("down", "first")), brokers=3) == {"down": 2, "first": 2}


def test_the_same_seed_inflicts_the_same_faults_in_the_same_order(tmp_path: Path) -> None:
    injector = FaultInjector(f"embedded:{tmp_path / 'log'}", tmp_path, None, seed=1, report=print)
    orders = [[kind for kind, _ in plan_faults(injector, FaultPlan(5, 5, seed), None)] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


def test_a_kind_of_fault_that_is_unknown_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["chaos", "--only", "rolling,flood"])
    with pytest.raises(SystemExit):
        chaos.main()
    assert "'flood' is not a kind of fault; there are steps, torn" in capsys.readouterr().err


@pytest.mark.slow
def test_each_jump_of_the_clock_is_noticed_and_results_go_on(tmp_path: Path) -> None:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(POSITIONS)
    injector = FaultInjector(log.url, tmp_path, None, seed=1, report=print)
    with feed_events(log, vehicles=20, seed=1, pace=0.1):
        injector.make_clock_jump()
        injector.make_clock_jump()
    assert injector.tally.faults == {"clock jumped": 2}
    noticed = re.findall(r"jumped (?:30d|29d23h59m)\w* ahead", (tmp_path / "state.log").read_text())
    assert len(noticed) == 2, "each is 30 days ahead of the one before, give or take what passed meanwhile"
