"""The jars of a broker. Maven fetches them once into the user's cache folder; checksums are verified at every
start.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from millrace.errors import ComponentMissing

VERSION = "4.1.1"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
DOCKER_HINT = "or, where Docker is, start the brokers of compose.yaml instead: docker compose up --wait"
_MODULE_FOLDER = Path(__file__).parent


def jars_folder() -> Path:
    """The folder of the jars, outside of any project."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "millrace" / f"kafka-{VERSION}"


def read_checksums() -> dict[str, str]:
    """The SHA-256 of each jar, by name."""
    lines = (_MODULE_FOLDER / "jars.sha256").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def explain_missing() -> str | None:
    """Why there are no jars and Maven cannot fetch them; None if they exist or can be fetched."""
    if jars_folder().is_dir() or shutil.which("mvn"):
        return None
    return (
        f"Kafka's jars are not in {jars_folder()}, and there is no mvn on the PATH to fetch them; "
        f"install Maven (Debian: apt install maven; macOS: brew install maven), {DOCKER_HINT}"
    )


def fetch() -> Path:
    """The folder of verified jars, fetched if necessary. `ComponentMissing` if that fails."""
    target = jars_folder()
    if not target.is_dir():
        if reason := explain_missing():
            raise ComponentMissing(reason)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetching-") as draft:
            jars = Path(draft) / "jars"
            _download(jars)
            check(jars)
            _install(jars, target)
    check(target)
    return target


def check(jars: Path) -> None:
    """Refuses a folder in which a jar is missing or has another checksum."""
    for name, digest in read_checksums().items():
        jar = jars / name
        if not jar.is_file():
            raise ComponentMissing(
                f"{jar} is missing; remove the folder {jars}, so that the jars are fetched anew"
            )
        if hashlib.sha256(jar.read_bytes()).hexdigest() != digest:
            raise ComponentMissing(
                f"{jar} is not the file that its checksum in millrace/devtools/brokers/jars.sha256 says; "
                f"remove the folder {jars}, and check the repository from which mvn fetches"
            )


def classpath(jars: Path) -> str:
    """The class path of exactly the known jars; other files in the folder are ignored."""
    return os.pathsep.join(str(jars / name) for name in sorted(read_checksums()))


def _download(jars: Path) -> None:
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(_MODULE_FOLDER / "pom.xml"), PLUGIN]
    result = subprocess.run(
        [*command, "-DincludeScope=runtime", f"-DoutputDirectory={jars}"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if result.returncode != 0:
        errors = [line for line in (result.stdout + result.stderr).splitlines() if "ERROR" in line][:1]
        raise ComponentMissing(
            f"mvn could not fetch Kafka {VERSION} "
            f"({errors[0] if errors else f'exit code {result.returncode}'}); check that it reaches Maven "
            f"Central or a mirror, {DOCKER_HINT}"
        )


def _install(jars: Path, target: Path) -> None:
    try:
        jars.rename(target)
    except OSError:
        if not target.is_dir():  # otherwise another process was faster
            raise
