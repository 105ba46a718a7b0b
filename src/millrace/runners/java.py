"""The Java that Spark needs: where it is, and whether it is new enough."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from millrace.errors import ComponentMissing

MIN_VERSION = 17
REMEDY = (
    f"install a Java {MIN_VERSION} or newer runtime (Debian: apt install openjdk-17-jre-headless; macOS: "
    "brew install openjdk@17), or point JAVA_HOME at one"
)


@dataclass(frozen=True)
class Java:
    """A Java that answered."""

    program: Path
    version: str

    @property
    def major(self) -> int:
        """17 of `17.0.15`; 8 of `1.8.0_392`."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)[:2]]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def find() -> Java:
    """The Java that Spark would start: JAVA_HOME's, else the one on the PATH.
    Raises ComponentMissing where it is absent or too old.
    """
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None or not Path(program).is_file():
        where = (
            f"JAVA_HOME is {home!r}, where there is no bin/java"
            if home
            else "there is no java on the PATH and JAVA_HOME is not set"
        )
        raise ComponentMissing(f"Spark needs Java, but {where}; {REMEDY}")
    java = Java(Path(program), _read_version(program))
    if java.major < MIN_VERSION:
        raise ComponentMissing(
            f"Spark needs Java {MIN_VERSION} or newer, but {program} is {java.version}; {REMEDY}"
        )
    return java


def _read_version(program: str) -> str:
    try:
        answer = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ComponentMissing(
            f"Spark needs Java, but {program} does not start ({error}); {REMEDY}"
        ) from error
    match = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    if answer.returncode != 0 or match is None or not re.match(r"\d", match[1]):
        first_line = (answer.stderr or answer.stdout).strip().splitlines()[:1]
        raise ComponentMissing(
            f"Spark needs Java, but {program} -version says "
            f"{first_line[0] if first_line else 'nothing'!r}; {REMEDY}"
        )
    return match[1]
