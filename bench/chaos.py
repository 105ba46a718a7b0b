"""Kills runs again and again while events flow, and compares what they committed with an uninterrupted run and with an oracle in plain Python.

`python -m bench.chaos --kills 20` kills Spark on an embedded log, and with `--log kafka` on three brokers. `--on local --log kafka` torments
the local runner: kills at every step of a commit, and faults of its brokers, its disk and its clock. `--on local` does so on an embedded log, and flips
bits in copies of log and state. The last line is `20 kills, missing 0, doubled 0, wrong 0`.
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
from bench.city_flow import ends, statuses
from bench.feed import feeding
from bench.killable_runs import PATIENCE, RUN, settings
from bench.local_chaos import KINDS, Script, torment
from bench.verifying import Verdict, compare, job
from millrace.config import Settings
from millrace.devtools import brokers as kafka
from millrace.errors import RunFailed, TopicMissing
from millrace.log import Log, fault_points, open_log
from millrace.runners.processes import tree
from millrace.transit.topics import CELL_COUNTS, POSITIONS

VICTIMS = ("everything", "driver", "jvm", "workers")
"""What of a run on Spark is killed, in turn; whatever is left, the supervisor must begin again."""
DRIVER_STEPS = ("computed", "begun", "produced", "marked", "committed")
"""Where on the way of a batch Spark's driver is killed, too: the steps that are its own, and not Spark's."""


def chaos(
    folder: Path,
    *,
    kills: int,
    url: str | None = None,
    victims: Sequence[str] = VICTIMS[:1],
    seed: int = 1,
    vehicles: int = 500,
    pace: float = 0.1,
    standby: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Feeds, kills Spark, lets the run catch up, and compares; on an embedded log unless a `url` is given. `standby`: with a session that stands by."""
    luck = random.Random(seed)  # noqa: S311 - moments, not secrets
    place = url or f"embedded:{folder}/log"
    log = open_log(place)
    log.ensure(POSITIONS)
    with feeding(log, vehicles=vehicles, seed=seed, pace=pace):
        for number in range(kills):
            victim = victims[number % len(victims)]
            fault = (
                f"{victim}:{luck.randint(2, 4) + (120 if standby else 0)}" if victim in DRIVER_STEPS else None
            )
            with _started(folder, place, *(["--standby"] if standby else []), fault=fault) as child:
                early = number % 4 == 3 and victim == "everything"
                gone, began = 1, 0.0
                if fault is not None:
                    _wait_for_death(child)
                    began = time.monotonic()
                else:
                    if not early:
                        _wait_for_batches(log, child, luck.randint(1, 3))
                        if standby:
                            _wait_for_standby(child, folder)
                    time.sleep(luck.uniform(0, 8 if early else 1.5))
                    gone, began = kill(child.pid, victim), time.monotonic()
                if victim == "everything":
                    child.wait()
                else:
                    _wait_for_batches(log, child, 1)
            took = "" if victim == "everything" else f"; next result after {time.monotonic() - began:.1f} s"
            at = f"driver at {fault}" if fault else victim
            say(f"kill {number + 1} of {kills}: {at}, {gone} processes{took}; results reach {results(log)}")
    with _started(folder, place, "--until-caught-up") as child:
        if child.wait(PATIENCE) != 0:
            raise RunFailed(f"the last run did not catch up; see {folder}/state/{RUN}/spark.log")
    verdict = compare(log, kills)
    log.close()
    return verdict


def results(log: Log) -> int:
    """How far the results reach."""
    try:
        return sum(log.ends(CELL_COUNTS.name).values())
    except TopicMissing:
        return 0


@contextlib.contextmanager
def _started(
    folder: Path, url: str, *options: str, fault: str | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A supervised run in a process of its own, whose driver dies at `fault`; nothing of it is left in the end."""
    command = [sys.executable, "-m", "bench.chaos", "--run", str(folder), "--log", url, *options]
    env = {**os.environ, fault_points.VARIABLE: fault} if fault else None
    child = subprocess.Popen(command, start_new_session=True, env=env)
    try:
        yield child
    finally:
        kill_tree(child.pid)
        child.wait()


def kill(root: int, victim: str) -> int:
    """Kill -9 for everything, or for one part of a run on Spark; how many processes there were."""
    if victim == "everything":
        return kill_tree(root)
    driver = _driver(root)
    doomed = [pid for pid in tree(driver) if _part(pid) == victim] if driver else []
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(doomed)


def _driver(root: int) -> int | None:
    """Of a supervised run, the process whose query is at work: one that stands by is younger."""
    found = [pid for pid in tree(root) if _part(pid) == "driver"]
    return min(found, key=_began, default=None)


def _began(pid: int) -> float:
    """When a process was started, in the kernel's ticks; one that is gone comes last."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[19])
    return math.inf


def _part(pid: int) -> str:
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
    """Kill -9 for a process and all that descends from it, at once; how many there were."""
    doomed = tree(root)
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(doomed)


def _wait_for_batches(log: Log, child: subprocess.Popen[bytes], count: int) -> None:
    """Returns when the run has committed so many batches more. That a topic grows says less: on Kafka a transaction that is taken back takes up room, too."""
    deadline, upto = time.monotonic() + PATIENCE, ends(log, RUN)
    while count > 0:
        now = ends(log, RUN)
        if now != upto:
            count, upto = count - len(statuses(log, RUN, upto)), now
        if child.poll() is not None:
            raise RunFailed(f"the run ended by itself, with code {child.returncode}")
        if time.monotonic() > deadline:
            raise RunFailed(f"no result for {PATIENCE:.0f} s")
        time.sleep(0.02)


def _wait_for_standby(child: subprocess.Popen[bytes], folder: Path) -> None:
    """Returns when a second session has done a batch for practice."""
    deadline = time.monotonic() + PATIENCE
    while True:
        drivers = sorted((pid for pid in tree(child.pid) if _part(pid) == "driver"), key=_began)
        if len(drivers) > 1 and list((folder / "state" / RUN / "scratch").glob("*/rehearsal/reaches.json")):
            return
        if child.poll() is not None or time.monotonic() > deadline:
            raise RunFailed(f"no session stood by within {PATIENCE:.0f} s")
        time.sleep(0.1)


def _wait_for_death(child: subprocess.Popen[bytes]) -> None:
    """Returns when the driver at work is gone."""
    deadline, first = time.monotonic() + PATIENCE, None
    while first is None or _driver(child.pid) == first:
        first = first or _driver(child.pid)
        if child.poll() is not None or time.monotonic() > deadline:
            raise RunFailed(f"its driver did not die within {PATIENCE:.0f} s")
        time.sleep(0.02)


def chaos_at_every_step(
    folder: Path,
    url: str,
    cluster: kafka.Cluster | None = None,
    *,
    script: Script,
    vehicles: int = 100,
    say: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Torments the local runner on a log; with a `cluster` of several brokers, those too."""
    log = open_log(settings(url, folder))
    log.ensure(POSITIONS)
    with feeding(log, vehicles=vehicles, seed=script.seed, pace=0.2) as feeder:
        behind = (
            partial(_flip_bits, url, folder, script, say) if url.startswith("embedded:") else lambda _: None
        )
        tally = torment(url, folder, cluster, script, calm=feeder.finish, say=say, behind=behind)
    for line in tally.lines():
        say(line)
    verdict = compare(log, sum(tally.kills.values()))
    log.close()
    return verdict


def _flip_bits(url: str, folder: Path, script: Script, say: Callable[[str], None], state: Path) -> None:
    """Flips bits in copies of an embedded log and of the state; `RunFailed` if one was read as data."""
    flips = flip_bits(
        Path(url.removeprefix("embedded:")), state, folder, flips=script.flips, seed=script.seed, say=say
    )
    say(
        f"{script.flips} bits flipped: {', '.join(f'{count} {outcome}' for outcome, count in sorted(flips.items()))}"
    )
    if bad := flips["wrong"] + flips["failed otherwise"]:
        raise RunFailed(f"{bad} runs over damaged files neither refused nor showed the right results")


def chaos_on_kafka(
    folder: Path,
    *,
    on: str,
    kills: int,
    script: Script,
    brokers: int = 3,
    vehicles: int = 100,
    standby: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Starts brokers, and torments the local runner as the script says, or kills Spark so many times."""
    cluster = kafka.start(folder / "kafka", brokers=brokers, port=0, within=PATIENCE)
    try:
        if on == "spark":
            victims = VICTIMS[1:] + DRIVER_STEPS + VICTIMS[:1]
            return chaos(
                folder,
                kills=kills,
                url=cluster.url,
                victims=victims,
                seed=script.seed,
                vehicles=vehicles,
                standby=standby,
                say=say,
            )
        return chaos_at_every_step(folder, cluster.url, cluster, script=script, vehicles=vehicles, say=say)
    finally:
        left = kafka.running(folder / "kafka")
        kafka.stop(left or cluster, grace=5)


def _run(folder: Path, url: str, *, until_caught_up: bool, standby: bool) -> None:
    from millrace.runners import run

    logging.basicConfig(filename=folder / "run.log", format="%(created)f %(message)s", level=logging.INFO)
    chosen = {
        "log_url": url,
        "state_dir": folder / "state",
        "run_name": RUN,
        "run_max_events_per_batch": 20_000,
        "spark_standby": standby,
    }
    run(job(), on="spark", settings=Settings().changed(**chosen), until_caught_up=until_caught_up)


def main() -> int:
    """Prints a line for each kill, and the verdict last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kills",
        type=int,
        default=int(os.environ.get("KILLS", "10")),
        help="how often Spark is killed; by default what KILLS says, or 10",
    )
    parser.add_argument(
        "--log",
        default="embedded",
        help="embedded (the default); kafka, which starts brokers of its own; or the address of an empty log",
    )
    parser.add_argument("--on", choices=("spark", "local"), default="spark")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=3)
    parser.add_argument(
        "--hits",
        type=int,
        default=10,
        help=f"on the local runner: kills at each of {', '.join(fault_points.PLACES)}",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="on the local runner: how often each other trouble is made"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="on the local runner: after which nothing more is begun",
    )
    parser.add_argument(
        "--flips",
        type=int,
        default=30,
        help="on the local runner with an embedded log: bits flipped in copies of log and state",
    )
    parser.add_argument(
        "--only",
        type=_kinds,
        default=KINDS,
        metavar="KIND,...",
        help=f"on the local runner: of {', '.join(KINDS)}, only these",
    )
    parser.add_argument(
        "--standby", action="store_true", help="on Spark: with a session that stands by to take over"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--until-caught-up", action="store_true", help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.run:
        _run(said.run, said.log, until_caught_up=said.until_caught_up, standby=said.standby)
        return 0
    with tempfile.TemporaryDirectory(prefix="millrace-chaos-") as name:
        folder = Path(name)
        script = Script(said.hits, said.rounds, said.seed, said.seconds, said.flips, said.only)
        if said.on == "local" and said.log != "kafka":
            url = f"embedded:{folder}/log" if said.log == "embedded" else said.log
            verdict = chaos_at_every_step(folder, url, script=script, say=_say)
        elif said.log == "kafka":
            verdict = chaos_on_kafka(
                folder,
                on=said.on,
                kills=said.kills,
                script=script,
                brokers=said.brokers,
                standby=said.standby,
                say=_say,
            )
        else:
            url = None if said.log == "embedded" else said.log
            verdict = chaos(folder, kills=said.kills, url=url, seed=said.seed, standby=said.standby, say=_say)
    print(verdict)
    return 0 if verdict.right else 1


def _kinds(said: str) -> tuple[str, ...]:
    kinds = tuple(kind.strip() for kind in said.split(","))
    for kind in kinds:
        if kind not in KINDS:
            raise argparse.ArgumentTypeError(f"{kind!r} is not a kind of fault; there are {', '.join(KINDS)}")
    return kinds


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
