"""Groups of tests that need something beyond Python: left out aloud where it is missing,
failures where everything is required.
"""

import importlib.util
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault(
    "POLARS_MAX_THREADS", "1"
)  # frames in tests are small: threads only cost, here and in what is started

from ingest.connectors.mqtt import mosquitto
from millrace.devtools.brokers import Cluster, jars
from millrace.devtools.brokers import start as start_brokers
from millrace.devtools.brokers import stop as stop_brokers
from millrace.devtools.brokers.properties import BrokerOptions
from millrace.devtools.brokers.security import Security
from millrace.errors import ComponentMissing
from millrace.runners import java
from sinks import postgres
from web import chromium

for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if (
        signal.getsignal(number) is signal.SIG_IGN
    ):  # in the background of a shell they are, and what tests start inherits it
        signal.signal(number, usual)

settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.register_profile("few", deadline=None, derandomize=True, max_examples=5)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
"""The same examples every time, so that runs can be compared; HYPOTHESIS_PROFILE=random looks for new ones,
few (`make test-core`) tries a handful. No deadlines: timings belong in benchmarks.
"""

REQUIRED = os.environ.get("MILLRACE_REQUIRE_ALL") == "1"
"""Set by CI: a missing component then fails the tests that need it."""

RECORDINGS = Path(__file__).parents[2] / "shared" / "data" / "hfp"


def java_missing() -> str | None:
    """Why tests that start Spark cannot run."""
    try:
        java.find()
    except ComponentMissing as error:
        return str(error)
    return None


def recordings_missing() -> str | None:
    """Why tests on real recordings cannot run."""
    return (
        None
        if RECORDINGS.is_dir()
        else "the real recordings are not at ../shared/data/hfp, beside this checkout"
    )


def root_missing() -> str | None:
    """Why tests that mount a file system or become another user cannot run."""
    return (
        None
        if os.geteuid() == 0
        else "they mount a small file system or become another user, which takes root"
    )


def uv_missing() -> str | None:
    """Why the wheel cannot be installed into an environment of its own."""
    own = Path(__file__).parents[1] / ".uv" / "bin" / "uv"
    return (
        None
        if shutil.which("uv") or own.exists()
        else "uv is neither on the PATH nor in .uv; run: make setup"
    )


def kafka_missing() -> str | None:
    """Why no broker can be started."""
    if importlib.util.find_spec("confluent_kafka") is None:
        return "confluent-kafka is not installed; run: make setup"
    return java_missing() or jars.explain_missing()


def mosquitto_missing() -> str | None:
    """Why tests with a real MQTT broker cannot run."""
    return None if mosquitto.program() else "there is no mosquitto; on Debian: apt-get install mosquitto"


GROUPS: dict[str, Callable[[], str | None]] = {
    "spark": java_missing,
    "kafka": kafka_missing,
    "mqtt": mosquitto_missing,
    "postgres": postgres.missing,
    "recordings": recordings_missing,
    "root": root_missing,
    "web": chromium.missing,
    "wheel": uv_missing,
}
"""A marker, and why its tests cannot run here."""

_missing: dict[str, str] = {}
_left_out: Counter[str] = Counter()


@pytest.fixture
def users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in which a user works: programs are found in it, and output has no colours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


@pytest.fixture(scope="session")
def recordings() -> Path:
    """The folder of real recordings; tests that use it are marked `recordings`."""
    return RECORDINGS


USERS = {"admin": "the-admin's-secret", "reader": "a reader's secret"}
"""Who may come in by TLS and password: one may do everything, the other nothing."""


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One real broker for all tests, which are marked `kafka`.
    It removes nothing by itself: times in tests are long past.
    """
    folder = tmp_path_factory.mktemp("kafka")
    security = Security(folder / "tls", USERS, admins=("admin",))
    security.create_certificate()
    wanted = BrokerOptions(
        security, {"log.retention.check.interval.ms": "86400000", "log.initial.task.delay.ms": "86400000"}
    )
    cluster = start_brokers(folder / "brokers", port=0, options=wanted)
    yield cluster
    stop_brokers(cluster)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Looks for the components of those groups that were asked for, once."""
    for group, reason in GROUPS.items():
        if any(item.get_closest_marker(group) for item in items) and (why := reason()):
            _missing[group] = why


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leaves a test out, or fails it, where its component is missing."""
    for group, why in _missing.items():
        if item.get_closest_marker(group):
            if REQUIRED:
                pytest.fail(f"group {group}: {why}", pytrace=False)
            pytest.skip(f"group {group}: {why}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Counts what was left out by reports, which come together from all processes that run tests."""
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason.startswith("group "):
            _left_out[reason] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says last, and plainly, what was not tested."""
    for reason, count in _left_out.items():
        terminalreporter.write_line(f"LEFT OUT: {count} tests of {reason}", yellow=True, bold=True)
