"""CPU time and memory of processes, and a description of the machine. It needs Linux's /proc."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from millrace.runners.processes import list_tree

_TICKS = os.sysconf("SC_CLK_TCK")


def describe_machine() -> str:
    """The machine in one line, for a report of figures."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in _read_lines("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return (
        f"{os.cpu_count()} × {model}, {memory:.0f} GiB, {platform.system()} {platform.release()}, Python "
        f"{platform.python_version()}"
    )


def cpu_seconds(root: int) -> dict[str, float]:
    """CPU seconds of a process and its descendants, by kind: `jvm`, its Python `workers`,
    and `driver` for all others.
    """
    stats, spent = dict(_read_stats()), {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
    for pid, kind in _kinds_of_processes(root).items():
        if pid in stats:
            spent[kind] += (int(stats[pid][11]) + int(stats[pid][12])) / _TICKS
    return spent


def memory_mb(root: int) -> float:
    """Resident memory of a process and its descendants in megabytes; shared pages count once."""
    return sum(memory_by_kind(root).values())


def memory_by_kind(root: int) -> dict[str, float]:
    """Resident memory by kind of process."""
    held = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
    for pid, kind in _kinds_of_processes(root).items():
        held[kind] += _resident_kb(pid) / 1024
    return held


def _kinds_of_processes(root: int) -> dict[int, str]:
    """The kind of each process of a tree.
    In a supervised run the driver and the JVM are descendants of the supervisor.
    """
    kinds = dict.fromkeys(list_tree(root), "driver")
    for pid in [pid for pid in kinds if _process_name(pid) == "java"]:
        kinds |= dict.fromkeys(list_tree(pid), "workers") | {pid: "jvm"}
    return kinds


def _resident_kb(pid: int) -> int:
    return sum(
        int(line.split()[1]) for line in _read_lines(f"/proc/{pid}/smaps_rollup") if line.startswith("Pss:")
    )


def _process_name(pid: int) -> str:
    return next(iter(_read_lines(f"/proc/{pid}/comm")), "").strip()


def _read_stats() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").glob("[0-9]*"):
        text = "".join(_read_lines(str(entry / "stat")))
        if text:
            yield int(entry.name), text.rsplit(")", 1)[1].split()


def _read_lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []
