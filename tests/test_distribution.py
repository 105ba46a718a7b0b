"""The distribution is called millrace-streams, because `millrace` on PyPI is another package; the module and
the command are `millrace`.
"""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import millrace

ROOT = Path(__file__).parents[1]
NAME = "millrace-streams"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTALLS = re.compile(r"pip install +(?:[\"'] *[\"'])?'?(?P<package>[\w./~-]+)(?:\[(?P<extra>[\w,]+)\])?")
"""A command, also where a text of Python is continued on the next line."""


def test_the_installed_distribution_has_the_version_of_the_module() -> None:
    assert PROJECT["name"] == NAME
    assert metadata.version(NAME) == millrace.__version__ == PROJECT["version"]
    [command] = metadata.entry_points(group="console_scripts", name="millrace")
    assert command.value == "millrace.cli.main:main"
    assert command.dist is not None
    assert command.dist.name == NAME


def test_whatever_says_pip_install_names_the_distribution_and_an_extra_that_it_has() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    sources = sorted((ROOT / "src").rglob("*.py"))
    found = [
        (path.name, match["package"], match["extra"])
        for path in [*pages, *sources]
        for match in INSTALLS.finditer(re.sub(r"\"\n +f?\"", "", path.read_text()))
    ]
    extras = {extra for _, package, extra in found if package == NAME and extra}
    assert extras <= PROJECT["optional-dependencies"].keys()
    assert len(extras) >= 8
    assert [
        entry for entry in found if entry[1].rpartition("/")[2] == "millrace" and "/" not in entry[1]
    ] == []
    assert [entry for entry in found if entry[2] and NAME not in entry[1].replace("_", "-")] == []
    assert all(extra.partition("[")[0] == NAME for extra in PROJECT["optional-dependencies"]["demo"])
