"""Kills runs again and again while events flow, and compares their results with an uninterrupted run and an
oracle in plain Python.

`python -m bench.chaos --kills 20` kills Spark on an embedded log; with `--log kafka`, on three brokers.
`--on local --log kafka` injects faults into the local runner: kills at every step of a commit, and faults of
its brokers, its disk and its clock. `--on local` does so on an embedded log, and flips bits in copies of log
and state. The last line is `20 kills, missing 0, doubled 0, wrong 0`.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from bench.bit_flips import flip_bits
from bench.city_flow import read_statuses, status_ends
from bench.event_feeder import feed_events
from bench.killable_runs import RUN, TIMEOUT, settings
from bench.local_chaos import KINDS, FaultPlan, run_faults
from bench.verdict import Verdict, compare, make_job
from millrace.config import Settings
from millrace.devtools import brokers as kafka
from millrace.errors import RunFailed, TopicMissing
from millrace.log import Log, fault_points, open_log
from millrace.runners.processes import list_tree
from millrace.transit.topics import CELL_COUNTS, POSITIONS

VICTIMS = ("everything", "driver", "jvm", "workers")
"""The parts of a run on Spark that are killed in turn; the supervisor must recover from each."""
DRIVER_STEPS = ("computed", "begun", "produced", "marked", "committed")
"""Steps of a batch in Spark's driver at which it is killed as well."""


def kill_spark(
    folder: Path,
    *,
    kills: int,
    url: str | None = None,
    victims: Sequence[str] = VICTIMS[:1],
    seed: int = 1,
    vehicles: int = 500,
    pace: float = 0.1,
    standby: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Appends events, kills Spark, lets the run catch up, and compares.

    Without a `url` the log is embedded; `standby`: with a standby session.
    """
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    log_url = url or f"embedded:{folder}/log"
    log = open_log(log_url)
    log.ensure(POSITIONS)
    with feed_events(log, vehicles=vehicles, seed=seed, pace=pace):
        for number in range(kills):
            victim = victims[number % len(victims)]
            is_early = number % 4 == 3 and victim == "everything"
            outcome = _kill_once(
                log, folder, log_url, victim, chance=chance, is_early=is_early, standby=standby
            )
            report(f"kill {number + 1} of {kills}: {outcome}; results reach {results_end(log)}")
    with _start_run(folder, log_url, "--until-caught-up") as child:
        if child.wait(TIMEOUT) != 0:
            raise RunFailed(f"the last run did not catch up; see {folder}/state/{RUN}/spark.log")
    verdict = compare(log, kills)
    log.close()
    return verdict


def _kill_once(
    log: Log,
    folder: Path,
    url: str,
    victim: str,
    *,
    chance: random.Random,
    is_early: bool,
    standby: bool,
) -> str:
    """Starts a run, kills a part of it, and waits until it goes on; returns a description.

    At a step of a batch the driver kills itself. `is_early`: perhaps before the first batch.
    """
    fault = None
    if victim in DRIVER_STEPS:
        fault = f"{victim}:{chance.randint(2, 4) + (120 if standby else 0)}"
    with _start_run(folder, url, *(["--standby"] if standby else []), fault=fault) as child:
        if fault is not None:
            _wait_for_death(child)
            killed = 1
        else:
            if not is_early:
                _wait_for_batches(log, child, chance.randint(1, 3))
                if standby:
                    _wait_for_standby(child, folder)
            time.sleep(chance.uniform(0, 8 if is_early else 1.5))
            killed = kill_part(child.pid, victim)
        killed_at = time.monotonic()
        if victim == "everything":
            child.wait()
        else:
            _wait_for_batches(log, child, 1)
    recovery = "" if victim == "everything" else f"; next result after {time.monotonic() - killed_at:.1f} s"
    return f"{f'driver at {fault}' if fault else victim}, {killed} processes{recovery}"


def results_end(log: Log) -> int:
    """The number of results."""
    try:
        return sum(log.end_offsets(CELL_COUNTS.name).values())
    except TopicMissing:
        return 0


@contextlib.contextmanager
def _start_run(
    folder: Path, url: str, *options: str, fault: str | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A supervised run in a process of its own, whose driver dies at `fault`.
    At the end all its processes are killed.
    """
    command = [sys.executable, "-m", "bench.chaos", "--run", str(folder), "--log", url, *options]
    env = {**os.environ, fault_points.VARIABLE: fault} if fault else None
    child = subprocess.Popen(command, start_new_session=True, env=env)
    try:
        yield child
    finally:
        kill_tree(child.pid)
        child.wait()


def kill_part(root: int, victim: str) -> int:
    """Kills everything, or one part of a run on Spark, with SIGKILL; returns the number of processes."""
    if victim == "everything":
        return kill_tree(root)
    driver = _find_driver(root)
    pids = [pid for pid in list_tree(driver) if _process_kind(pid) == victim] if driver else []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def _find_driver(root: int) -> int | None:
    """The driver of a supervised run; the driver of a standby is younger."""
    found = [pid for pid in list_tree(root) if _process_kind(pid) == "driver"]
    return min(found, key=_start_time, default=None)


def _start_time(pid: int) -> float:
    """When a process was started, in the kernel's ticks; infinite for one that has ended."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[19])
    return math.inf


def _process_kind(pid: int) -> str:
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
        for part, word in (
            ("jvm", "SparkSubmit"),
            ("driver", "millrace.runners.spark.supervisor.child"),
            ("workers", "millrace.runners.spark.worker_daemon"),
        ):
            if word in command:
                return part
    return "other"


def kill_tree(root: int) -> int:
    """Kills a process and all its descendants with SIGKILL; returns their number."""
    pids = list_tree(root)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def _wait_for_batches(log: Log, child: subprocess.Popen[bytes], count: int) -> None:
    """Waits until the run has committed so many more batches.
    Offsets do not show that: on Kafka an aborted transaction takes offsets, too.
    """
    deadline, upto = time.monotonic() + TIMEOUT, status_ends(log, RUN)
    while count > 0:
        now = status_ends(log, RUN)
        if now != upto:
            count, upto = count - len(read_statuses(log, RUN, upto)), now
        if child.poll() is not None:
            raise RunFailed(f"the run ended by itself, with code {child.returncode}")
        if time.monotonic() > deadline:
            raise RunFailed(f"no result for {TIMEOUT:.0f} s")
        time.sleep(0.02)


def _wait_for_standby(child: subprocess.Popen[bytes], folder: Path) -> None:
    """Waits until a standby has completed the batch of its rehearsal."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        drivers = sorted(
            (pid for pid in list_tree(child.pid) if _process_kind(pid) == "driver"), key=_start_time
        )
        if len(drivers) > 1 and list((folder / "state" / RUN / "scratch").glob("*/rehearsal/reaches.json")):
            return
        if child.poll() is not None or time.monotonic() > deadline:
            raise RunFailed(f"no standby was ready within {TIMEOUT:.0f} s")
        time.sleep(0.1)


def _wait_for_death(child: subprocess.Popen[bytes]) -> None:
    """Waits until the driver has died."""
    deadline, first = time.monotonic() + TIMEOUT, None
    while first is None or _find_driver(child.pid) == first:
        first = first or _find_driver(child.pid)
        if child.poll() is not None or time.monotonic() > deadline:
            raise RunFailed(f"its driver did not die within {TIMEOUT:.0f} s")
        time.sleep(0.02)


def inject_faults(
    folder: Path,
    url: str,
    cluster: kafka.Cluster | None = None,
    *,
    plan: FaultPlan,
    vehicles: int = 100,
    report: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Injects the faults of a plan into local runs; with a `cluster`, into its brokers as well."""
    log = open_log(settings(url, folder))
    log.ensure(POSITIONS)
    with feed_events(log, vehicles=vehicles, seed=plan.seed, pace=0.2) as feeder:
        inspect_state = (
            partial(_flip_bits, url, folder, plan, report) if url.startswith("embedded:") else lambda _: None
        )
        tally = run_faults(
            url, folder, cluster, plan, stop_events=feeder.finish, report=report, inspect_state=inspect_state
        )
    for line in tally.lines():
        report(line)
    verdict = compare(log, sum(tally.kills.values()))
    log.close()
    return verdict


def _flip_bits(url: str, folder: Path, plan: FaultPlan, report: Callable[[str], None], state: Path) -> None:
    """Flips bits in copies of an embedded log and its state; raises `RunFailed` if damaged data were read."""
    outcomes = flip_bits(
        Path(url.removeprefix("embedded:")), state, folder, flips=plan.flips, seed=plan.seed, report=report
    )
    report(
        f"{plan.flips} bits flipped: "
        f"{', '.join(f'{count} {outcome}' for outcome, count in sorted(outcomes.items()))}"
    )
    if failures := outcomes["wrong"] + outcomes["failed otherwise"]:
        raise RunFailed(f"{failures} runs over damaged files neither refused nor showed the right results")


def inject_faults_on_kafka(
    folder: Path,
    *,
    on: str,
    kills: int,
    plan: FaultPlan,
    brokers: int = 3,
    vehicles: int = 100,
    standby: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Starts brokers, and injects the faults of the plan into local runs, or kills Spark so many times."""
    cluster = kafka.start(folder / "kafka", brokers=brokers, port=0, timeout=TIMEOUT)
    try:
        if on == "spark":
            victims = VICTIMS[1:] + DRIVER_STEPS + VICTIMS[:1]
            return kill_spark(
                folder,
                kills=kills,
                url=cluster.url,
                victims=victims,
                seed=plan.seed,
                vehicles=vehicles,
                standby=standby,
                report=report,
            )
        return inject_faults(folder, cluster.url, cluster, plan=plan, vehicles=vehicles, report=report)
    finally:
        running_cluster = kafka.load_cluster(folder / "kafka")
        kafka.stop(running_cluster or cluster, timeout=5)


def _run_supervised(folder: Path, url: str, *, until_caught_up: bool, standby: bool) -> None:
    from millrace.runners import run

    logging.basicConfig(filename=folder / "run.log", format="%(created)f %(message)s", level=logging.INFO)
    changes = {
        "log_url": url,
        "state_dir": folder / "state",
        "run_name": RUN,
        "run_max_events_per_batch": 20_000,
        "spark_standby": standby,
    }
    run(make_job(), on="spark", settings=Settings().with_options(**changes), until_caught_up=until_caught_up)


def main() -> int:
    """Prints a line for each kill, and the verdict last."""
    args = _make_parser().parse_args()
    if args.run:
        _run_supervised(args.run, args.log, until_caught_up=args.until_caught_up, standby=args.standby)
        return 0
    with tempfile.TemporaryDirectory(prefix="millrace-chaos-") as name:
        verdict = _inject_chosen_faults(args, Path(name))
    print(verdict)
    return 0 if verdict.is_right else 1


def _inject_chosen_faults(args: argparse.Namespace, folder: Path) -> Verdict:
    plan = FaultPlan(args.hits, args.rounds, args.seed, args.seconds, args.flips, args.only)
    if args.log == "kafka":
        return inject_faults_on_kafka(
            folder,
            on=args.on,
            kills=args.kills,
            plan=plan,
            brokers=args.brokers,
            standby=args.standby,
            report=_print_line,
        )
    if args.on == "local":
        url = f"embedded:{folder}/log" if args.log == "embedded" else args.log
        return inject_faults(folder, url, plan=plan, report=_print_line)
    url = None if args.log == "embedded" else args.log
    return kill_spark(
        folder, kills=args.kills, url=url, seed=args.seed, standby=args.standby, report=_print_line
    )


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kills",
        type=int,
        default=int(os.environ.get("KILLS", "10")),
        help="how often Spark is killed; by default the variable KILLS, or 10",
    )
    parser.add_argument(
        "--log",
        default="embedded",
        help="embedded (the default); kafka, which starts brokers; or the URL of an empty log",
    )
    parser.add_argument("--on", choices=("spark", "local"), default="spark")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=3)
    _add_local_options(parser)
    parser.add_argument(
        "--standby", action="store_true", help="on Spark: with a standby session that takes over"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--until-caught-up", action="store_true", help=argparse.SUPPRESS)
    return parser


def _add_local_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hits",
        type=int,
        default=10,
        help=f"on the local runner: kills at each of {', '.join(fault_points.POINTS)}",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="on the local runner: how often each other fault is injected"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="on the local runner: no fault is injected after so many seconds",
    )
    parser.add_argument(
        "--flips",
        type=int,
        default=30,
        help="on the local runner with an embedded log: bits flipped in copies of log and state",
    )
    parser.add_argument(
        "--only",
        type=_parse_kinds,
        default=KINDS,
        metavar="KIND,...",
        help=f"on the local runner: only these kinds of faults, of {', '.join(KINDS)}",
    )


def _parse_kinds(value: str) -> tuple[str, ...]:
    kinds = tuple(kind.strip() for kind in value.split(","))
    for kind in kinds:
        if kind not in KINDS:
            raise argparse.ArgumentTypeError(f"{kind!r} is not a kind of fault; there are {', '.join(KINDS)}")
    return kinds


def _print_line(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
