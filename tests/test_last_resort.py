"""What nobody foresaw is one line too, and its trace is in a file without secrets."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from millrace.cli import main


def test_an_unforeseen_error_is_one_line_and_its_trace_is_in_a_file_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("MY_PASSWORD", "very-secret")

    def fail(words: list[str], *, debug: bool) -> int:
        raise ZeroDivisionError("with very-secret at postgresql://ann:hunter2@host/db")

    fail.__code__ = fail.__code__.replace(co_filename=main.__file__)  # the fault is millrace's own
    monkeypatch.setattr(main, "_run", fail)
    assert main.main(["topics", "list"]) == 1
    printed = capsys.readouterr().err
    assert len(printed.splitlines()) == 1
    assert "ZeroDivisionError" in printed
    (file,) = tmp_path.glob("millrace-*.trace")
    assert str(file) in printed
    trace = file.read_text()
    assert "Traceback" in trace
    for secret in ("very-secret", "hunter2"):
        assert secret not in printed + trace


def test_too_little_memory_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(words: list[str], *, debug: bool) -> int:
        raise MemoryError

    monkeypatch.setattr(main, "_run", fail)
    assert main.main(["topics", "list"]) == 1
    assert "not enough memory" in capsys.readouterr().err


@pytest.mark.parametrize("log", ["embedded:" + "x" * 5_000, "x" * 300, "embedded:\0", "embedded:a/" * 3_000])
def test_a_log_whose_name_cannot_be_is_one_line(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["topics", "list", "--log", log]) in (1, 2)
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    assert len(printed.splitlines()) == 1
    assert "unexpected error" not in printed


def test_settings_that_the_client_library_cannot_use_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("confluent_kafka")
    for setting in (
        'sasl.mechanism = "GSSAPI"\nsecurity.protocol = "SASL_PLAINTEXT"',
        'no.such = "1"',
        'socket.timeout.ms = "abc"',
        "socket.timeout.ms = 99999999999999",
    ):
        file = tmp_path / "millrace.toml"
        file.write_text(
            f'[log]\nurl = "kafka://localhost:1"\n[kafka]\nwait = "1s"\n[kafka.client]\n{setting}\n'
        )
        assert main.main(["topics", "list", "--config", str(file)]) == 1
        printed = capsys.readouterr().err
        assert "Traceback" not in printed
        assert "unexpected error" not in printed
        assert printed.count("\n") == 1, printed


INTERRUPTIBLE_COMMAND = """
import signal, sys
from millrace.cli import main as cli

def run_interruptible(*args, **options):
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        return run(*args, **options)
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

run, cli._run = cli._run, run_interruptible
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
print("up", flush=True)
sys.exit(cli.main(["topics", "list", "--log", "none"]))
"""
"""Ctrl-C reaches the command alone, not the lines of this program around it."""


@pytest.mark.slow
def test_an_interruption_soon_after_the_start_is_no_traceback() -> None:
    for delay in (0.0, 0.01, 0.03, 0.05, 0.1, 0.2):
        process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE_COMMAND],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=60)
        assert "Traceback" not in printed, (delay, printed)


@pytest.mark.slow
def test_an_interruption_while_a_dataclass_is_made_ends_with_130(tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(
        "import sys\nfrom millrace.cli import main as cli\n"
        "def run(words, *, debug):\n    exec('raise KeyboardInterrupt')\n"
        "cli._run = run\nsys.exit(cli.main([]))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "interrupted"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (130, "stopped\n")
