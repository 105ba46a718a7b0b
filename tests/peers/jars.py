"""Peers in Java: their jars are fetched by Maven into the cache folder,
and a small program is compiled beside them.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from peers.environments import CACHE

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
OPENED = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.nio", "java.util")]


class Worker:
    """A process that answers each line of JSON with a line of JSON."""

    def __init__(self, name: str, *artifacts: str) -> None:
        for tool in ("mvn", "javac", "java"):
            if shutil.which(tool) is None:
                pytest.skip(f"there is no {tool} on the PATH, so {name} cannot be asked")
        jars = _fetch(name, artifacts)
        classes = jars.parent / "classes"
        source = Path(__file__).parent / f"{name}.java"
        subprocess.run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(source)], check=True)
        command = ["java", "-Xmx1g", "-XX:+UseSerialGC", *OPENED, "-cp", f"{classes}:{jars}/*", name]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, question: Any) -> Any:
        """The answer; an error of the peer is a map with its message."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the peer ended with exit code {self.process.wait()} at {question}"
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


def _fetch(name: str, artifacts: Sequence[str]) -> Path:
    """The folder of the jars of Maven coordinates;
    a peer that cannot be fetched is left out, with the reason.
    """
    jars = CACHE / name / "jars"
    if not (CACHE / name / "ready").exists():
        jars.mkdir(parents=True, exist_ok=True)
        (CACHE / name / "pom.xml").write_text(_pom(artifacts))
        command = ["mvn", "--batch-mode", "--quiet", "--file", str(CACHE / name / "pom.xml"), PLUGIN]
        done = subprocess.run(
            [*command, f"-DoutputDirectory={jars}"], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            pytest.skip(f"mvn could not fetch {', '.join(artifacts)}: {(done.stdout + done.stderr)[-300:]}")
        (CACHE / name / "ready").touch()
    return jars


def _pom(artifacts: Sequence[str]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in (one.split(":") for one in artifacts)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>peers</groupId><artifactId>peers</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
