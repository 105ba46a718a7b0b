"""A password is in the settings and on the line to the brokers, and nowhere else."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from conftest import USERS
from log.kafka.secure import secure
from millrace.devtools.brokers import Cluster
from millrace.log import open_log
from millrace.log.codecs.codec import encode
from runners.local_child import READINGS, TOTALS
from runners.test_local import CHILD, readings

pytestmark = pytest.mark.kafka
SECRET = USERS["admin"]


@pytest.mark.parametrize("given", ["in the file", "in the environment"])
@pytest.mark.parametrize("runner", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_run_with_a_password_leaves_no_trace_of_it(
    brokers: Cluster, tmp_path: Path, runner: str, given: str
) -> None:
    url = f"kafka://{brokers.secure_servers}/secret-{uuid.uuid4().hex[:8]}"
    log = open_log(url, kafka=secure(brokers, "admin", SECRET))
    log.ensure(READINGS)
    log.append(READINGS.name, encode(READINGS, readings(0, 100)))
    client = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": brokers.folder.parent / "tls" / "ca.pem",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "admin",
    }
    env = {**os.environ, "PYTHONPATH": str(CHILD.parents[1])}
    if given == "in the file":
        client["sasl.password"] = SECRET
    else:
        env["MILLRACE_KAFKA_CLIENT_SASL_PASSWORD"] = SECRET
    settings = tmp_path / "settings" / "millrace.toml"
    settings.parent.mkdir()
    settings.write_text(
        f'[log]\nurl = "{url}"\n[kafka.client]\n'
        + "".join(f'{key} = "{value}"\n' for key, value in client.items())
    )
    words = [
        "--debug",
        "run",
        "runners.local_child:JOB",
        "--on",
        runner,
        "--until-caught-up",
        "--state",
        str(tmp_path / "state"),
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "millrace.cli.main", *words, "--config", str(settings)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert sum(log.end_offsets(TOTALS.name).values()) > 0
    log.close()
    traces = [
        path
        for path in (tmp_path / "state").rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert (SECRET in ran.stdout + ran.stderr, traces) == (False, [])
